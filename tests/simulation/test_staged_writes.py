"""Goal: staged batches are published exactly once, in order, wherever the power goes.

Method: a query with losing attempts, drivers that die before and after the decision, and a broker
whose power is cut at every single operation of its disk in turn, or at seeded moments, restarts
included. The mutants show that the scenario would notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from unittest import mock

import pytest

from dragoman.broker.internal_topic import KeyValue
from dragoman.broker.staged_writes import Publisher, StagedWrites
from dragoman.broker.staged_writes.records import decode_value
from dragoman.log.batch import stamp_producer
from dragoman.testing.sim.powercut import Plan, PowerCutError, run, run_everywhere
from worlds.staged_writes import PublishingScenario, small_slices

_PLAN = Plan(cycles=6, operations_max=120, steps_max=12, kill_rate=0.3, restart_operations_max=60)


@pytest.fixture(autouse=True)
def _small_world() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    before, logger.disabled = logger.disabled, True
    with small_slices():
        yield
    logger.disabled = before


def test_a_cut_at_every_single_operation():
    assert run_everywhere(11, PublishingScenario, Plan(steps_max=4)) > 40


def test_cuts_and_kills_at_seeded_moments():
    crashes = 0
    told_before = 0
    for seed in range(40):
        scenario = PublishingScenario()
        crashes += run(seed, scenario, _PLAN).crashes
        told_before += scenario.told_before
    assert crashes >= 200
    assert told_before > 20, "no driver came back after its batch had been published"


async def _without_decision(self: StagedWrites, writer_id: str, record: KeyValue) -> None:
    writer = decode_value(writer_id, record[1]) if record[1] is not None else None
    if writer is None or not writer.is_decided:
        await _persist(self, writer_id, record)


def _without_producer(batch: bytearray, *_: int) -> None:
    stamp_producer(batch, -1, -1, -1)


def _without_memory(self: Publisher, key: bytes, value: bytes | None) -> None:
    return None


_persist = StagedWrites.persist
_DESTINATIONS = "dragoman.broker.staged_writes.destinations"
_MUTANTS = {
    "no decision": lambda: mock.patch.object(StagedWrites, "persist", _without_decision),
    "no producer id": lambda: mock.patch(f"{_DESTINATIONS}.stamp_producer", _without_producer),
    "no replay guard": lambda: mock.patch.object(Publisher, "load", _without_memory),
}


@pytest.mark.parametrize("name", _MUTANTS)
def test_mutants_die(name: str):
    with _MUTANTS[name](), pytest.raises(PowerCutError):
        _run_seeds(100)


def _run_seeds(count: int) -> None:
    for seed in range(count):
        run(seed, PublishingScenario(), _PLAN)
