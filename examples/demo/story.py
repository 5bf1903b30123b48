"""The order of a demo: steps, what they share, and how one is shown while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from demo.broker_process import BrokerProcess
from demo.screen import Screen
from demo.spark_process import SparkProcess
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from demo.capture import Database
    from demo.shop import Shop


class DemoError(DragomanError):
    """Something shown was not as it should be."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What every step works with."""

    screen: Screen
    broker: BrokerProcess
    spark: SparkProcess
    database: Database
    shop: Shop
    record_count: int
    has_database: bool
    has_spark: bool


class Step(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    #: Does the work and returns one line about it. Raises `DemoError` when it went wrong.
    run: Callable[[Stage], str]


def play(steps: Sequence[Step], stage: Stage) -> None:
    for step in steps:
        with stage.screen.step(step.title) as finish:
            finish(step.run(stage))
