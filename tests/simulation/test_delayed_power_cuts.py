"""Goal: records that wait for their time appear exactly once, not early, and none is lost that was
acknowledged, wherever the power goes; those that are held only when they were released.

Method: clients that delay, hold, release and drop, and a node whose power is cut at every single
operation of its disk in turn, or at seeded moments, restarts included. The mutants show that the
scenario would notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from unittest import mock

import pytest

from dragoman.broker.delayed.records import Kind, decode_key
from dragoman.broker.delayed.state import StoredPartition
from dragoman.broker.delayed.store import RecordStore
from dragoman.broker.delayed.targets import Targets
from dragoman.broker.internal_topic import KeyValue
from dragoman.log.batch import Record, build_batch
from dragoman.outcome import start
from dragoman.testing.sim.powercut import Plan, PowerCutError, run, run_everywhere
from worlds.delayed_records import DelayedScenario

_PLAN = Plan(cycles=6, operations_max=120, steps_max=25, kill_rate=0.3, restart_operations_max=60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


def test_a_cut_at_every_single_operation() -> None:
    assert run_everywhere(5, DelayedScenario, Plan(steps_max=8)) > 40


def test_cuts_and_kills_at_seeded_moments() -> None:
    crashes = delivered = dropped = 0
    for seed in range(20):
        scenario = DelayedScenario()
        crashes += run(seed, scenario, _PLAN).crashes
        delivered += sum(each.is_certain and not each.is_drop for each in scenario.sent.values())
        dropped += sum(each.is_certain and each.is_drop for each in scenario.sent.values())
    assert crashes >= 100
    assert delivered > 500
    assert dropped > 50


# ---- mutants


def _without_producer(found: Sequence[Record], **_: int) -> bytearray:
    return build_batch(found)


async def _done_before_delivered(self: Targets, target_id: int, batch: bytearray) -> None:
    # By then that it is done is durable, and the batch is not.
    later = self._context.scheduler.call_later
    later(0.05, lambda: start(_deliver(self, target_id, batch)))


async def _without_decision(self: RecordStore, index: int, records: Sequence[KeyValue]) -> None:
    decisions = [each for each in records if decode_key(each[0]).kind is Kind.BATCH and each[1]]
    await _persist(self, index, [each for each in records if each not in decisions])


def _early(self: StoredPartition, now_ms: int, most: int) -> list[int]:
    return _due(self, now_ms + 500, most)


async def _unwritten(self: RecordStore, index: int, records: Sequence[KeyValue]) -> None:
    if decode_key(records[0][0]).kind is not Kind.RELEASE:
        await _persist(self, index, records)


def _forgetful(self: RecordStore, key: bytes, value: bytes | None) -> None:
    if value is not None:
        _load(self, key, value)


_deliver, _persist, _due, _load = (
    Targets.deliver,
    RecordStore.persist,
    StoredPartition.due,
    RecordStore._load,
)
_MUTANTS = {
    "no sequence": lambda: mock.patch(
        "dragoman.broker.delayed.delivery.build_batch", _without_producer
    ),
    "removed before appended": lambda: mock.patch.object(
        Targets, "deliver", _done_before_delivered
    ),
    "no decision": lambda: mock.patch.object(RecordStore, "persist", _without_decision),
    "early": lambda: mock.patch.object(StoredPartition, "due", _early),
    "release not stored": lambda: mock.patch.object(RecordStore, "persist", _unwritten),
    "removals not read back": lambda: mock.patch.object(RecordStore, "_load", _forgetful),
}


#: The seed that is tried first, where the first ones do not show the mutant.
_FIRST_SEEDS = {"release not stored": 37}


@pytest.mark.parametrize("name", _MUTANTS)
def test_mutants_die(name: str) -> None:
    with _MUTANTS[name](), pytest.raises(PowerCutError):
        _run_seeds(_FIRST_SEEDS.get(name, 0), 100)


def _run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run(seed, DelayedScenario(), _PLAN)
