"""Goal: those who may add a capture see the tables of its database; each look is in the audit log.

Method: captures without processes, in virtual time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from captures.runner import FakeRunner, defined
from dragoman.api.captures import CaptureService
from dragoman.broker.errors import CaptureRefused
from dragoman.captures.control import DatabaseTable
from dragoman.limits import CAPTURE_TABLES_LISTED_MAX
from dragoman.security.access import Caller
from worlds.broker import World
from worlds.http import ask

CALLER = Caller()


def test_tables_are_bounded_and_looks_are_recorded_without_secrets() -> None:
    world = World()
    captures: Any = world.captures
    captures.runner = runner = FakeRunner()
    recorded: list[Any] = []
    audit: Any = SimpleNamespace(record=recorded.append)
    service = CaptureService(world.broker.context, captures, world.broker, audit)
    page = ask(world, service.database_tables(CALLER, defined()))
    assert (page.items, page.has_more) == (runner.listed, False)
    many = CAPTURE_TABLES_LISTED_MAX + 1
    runner.listed = tuple(DatabaseTable(schema="s", name=f"t{n}") for n in range(many))
    page = ask(world, service.database_tables(CALLER, defined()))
    assert (len(page.items), page.has_more) == (CAPTURE_TABLES_LISTED_MAX, True)
    runner.listed = CaptureRefused("the database refuses hunter2")
    with pytest.raises(CaptureRefused):
        ask(world, service.database_tables(CALLER, defined()))
    assert [(each.action, each.resource, each.result) for each in recorded] == [
        ("capture.tables", "capture:shop", "succeeded"),
        ("capture.tables", "capture:shop", "succeeded"),
        ("capture.tables", "capture:shop", "failed"),
    ]
    assert "hunter2" not in str(recorded)
