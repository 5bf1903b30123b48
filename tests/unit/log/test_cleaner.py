"""Goal: retention and compaction remove what they may and nothing else.

Method: a log on a disk in memory, with tiny segments; what a reader sees is compared with a model
that is a plain dictionary of the newest record of each key.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from dragoman.log.batch import Marker, Record, build_batch, build_marker, read_header
from dragoman.log.cleaner import (
    CompactionPolicy,
    RetentionPolicy,
    compact,
    dirty_ratio,
    retain,
    roll_due,
)
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import Durability, LogStore
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.testing.sim.clock import SimClock
from dragoman.testing.sim.scheduler import SimScheduler

NONE = RetentionPolicy()
POLICY = CompactionPolicy(delete_retention_ms=1000)


class Config(msgspec.Struct):
    segment_bytes: int = 600
    segment_ms: int = 1 << 40
    index_interval_bytes: int = 200


class World:
    """A store with one partition, and short names for what the tests do with it."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.scheduler = SimScheduler()
        self.clock = SimClock(self.scheduler)
        self.store = LogStore(
            self.disk,
            ImmediateBackground(self.disk, self.scheduler),
            self.scheduler,
            self.clock,
            random.Random(1),
            Durability.FSYNC,
        )
        self.store.on_stable = lambda found: [
            each.advance_high_watermark(each.stable_end) for each in found
        ]
        identity = Identity(partition_id=1, topic="t", partition=0, topic_id="")
        self.log: PartitionLog = self.store.partition(identity, "1-t-0", Config())
        self.store.finish_recovery()

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: int | None = None,
        producer: int = -1,
        sequence: int = -1,
    ) -> int:
        record = Record(
            key=key,
            value=value,
            timestamp=self.clock.wall_ms() if timestamp is None else timestamp,
        )
        batch = build_batch(
            [record],
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=sequence,
            attributes=0x10 if producer >= 0 else 0,
        )
        return self.log.append(batch, read_header(batch), 0).base_offset

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        marker = Marker(commit, 0)
        batch = build_marker(marker, producer_id=producer, producer_epoch=0, timestamp=5)
        self.log.append_marker(batch, read_header(batch), 0, marker)

    def settle(self) -> None:
        self.scheduler.advance(0.0)
        self.store.checkpoint_now()

    def roll(self) -> None:
        self.log.roll(self.log.log_end_offset)
        self.settle()

    def compact(self, policy: CompactionPolicy = POLICY) -> None:
        for _ in compact(self.log, policy, self.clock.wall_ms()):
            self.scheduler.advance(0.0)
        self.settle()

    def visible(self) -> list[tuple[int, bytes | None, bytes | None]]:
        self.log.clear_tail()
        start, end = self.log.log_start_offset, self.log.high_watermark
        return [(each.offset, each.key, each.value) for each in self.log.iterate(start, end)]

    def reopen(self) -> World:
        self.store.abandon()
        return World(self.disk)


@pytest.fixture
def world() -> World:
    return World()


def fill(world: World, count: int) -> None:
    for number in range(count):
        world.append(b"k%d" % number, b"v" * 50)
    world.settle()


# ---- retention


def test_retention_by_segment_count_keeps_the_newest(world: World) -> None:
    fill(world, 40)
    before = len(world.log.all_segments())
    assert before > 5
    dropped = retain(world.log, RetentionPolicy(retention_segments=3), world.clock.wall_ms())
    assert dropped == before - 3
    assert world.visible()[0][0] == world.log.log_start_offset > 0
    assert world.visible()[-1][0] == 39


def test_retention_by_bytes_keeps_at_least_the_limit(world: World) -> None:
    fill(world, 40)
    retain(world.log, RetentionPolicy(retention_bytes=1500), world.clock.wall_ms())
    assert world.log.size >= 1500
    assert world.log.size - world.log.segments[0].size < 1500


def test_retention_by_age_counts_from_the_newest_record_of_a_segment(world: World) -> None:
    now_ms = world.clock.wall_ms()
    for number in range(20):
        world.append(b"k", b"v" * 50, timestamp=now_ms - 10_000 + number)
    world.roll()
    fill(world, 10)
    retain(world.log, RetentionPolicy(retention_ms=5_000), now_ms)
    assert world.log.log_start_offset == 20


def test_no_limit_drops_nothing(world: World) -> None:
    fill(world, 40)
    assert retain(world.log, NONE, world.clock.wall_ms() + 10**12) == 0


def test_an_active_segment_is_rolled_when_it_is_old_enough(world: World) -> None:
    fill(world, 2)
    world.log.config.segment_ms = 1000  # type: ignore[misc]
    now_ms = world.clock.wall_ms()
    assert not roll_due(world.log, now_ms)
    assert roll_due(world.log, now_ms + 2000)
    world.settle()
    assert len(world.log.segments) == 1


def test_files_of_dropped_segments_go_and_stay_away_after_a_restart(world: World) -> None:
    fill(world, 40)
    retain(world.log, RetentionPolicy(retention_segments=2), world.clock.wall_ms())
    world.settle()
    names = [each for each in world.disk.names("partitions/1-t-0") if each.endswith(".log")]
    assert len(names) == 2
    start = world.log.log_start_offset
    again = world.reopen()
    assert again.log.log_start_offset == start
    assert again.visible()[-1][0] == 39


# ---- compaction


def test_compaction_keeps_the_newest_record_of_each_key_at_its_offset(world: World) -> None:
    for number in range(60):
        world.append(b"k%d" % (number % 7), b"v%d" % number)
    world.roll()
    assert dirty_ratio(world.log) == 1.0
    world.compact()
    assert world.visible() == [(n, b"k%d" % (n % 7), b"v%d" % n) for n in range(53, 60)]
    assert dirty_ratio(world.log) == 0.0
    assert world.log.log_end_offset == 60


def test_a_read_at_a_gap_returns_the_next_record(world: World) -> None:
    for number in range(30):
        world.append(b"same", b"v%d" % number)
    world.roll()
    world.compact()
    world.log.clear_tail()
    result = world.log.read(3, 1000, 30)
    assert read_header(result.buffers[0]).base_offset == 29


def test_compaction_survives_a_restart_and_is_not_repeated(world: World) -> None:
    for number in range(60):
        world.append(b"k%d" % (number % 7), b"v%d" % number)
    world.roll()
    world.compact()
    expected = world.visible()
    again = world.reopen()
    assert again.visible() == expected
    assert dirty_ratio(again.log) == 0.0


def test_a_tombstone_stays_until_its_horizon_and_then_goes(world: World) -> None:
    world.append(b"a", b"1")
    world.append(b"b", b"2")
    world.append(b"a", None)
    world.roll()
    world.compact()
    assert [each[1:] for each in world.visible()] == [(b"b", b"2"), (b"a", None)]
    world.clock.jump(POLICY.delete_retention_ms - 1)
    world.compact()
    assert len(world.visible()) == 2
    world.clock.jump(10)
    world.compact()
    assert [each[1:] for each in world.visible()] == [(b"b", b"2")]


def test_timestamps_are_the_same_after_the_horizon_was_set(world: World) -> None:
    world.append(b"a", None, timestamp=1234)
    world.roll()
    world.compact()
    world.log.clear_tail()
    assert [each.timestamp for each in world.log.iterate(0, 1)] == [1234]


def test_records_of_aborted_transactions_go_and_committed_ones_stay(world: World) -> None:
    world.append(b"a", b"aborted", producer=1, sequence=0)
    world.append(b"b", b"committed", producer=2, sequence=0)
    world.end_transaction(1, commit=False)
    world.end_transaction(2, commit=True)
    world.roll()
    world.compact()
    assert [each[1:] for each in world.visible()] == [(b"b", b"committed")]


def test_an_aborted_record_does_not_replace_an_older_one(world: World) -> None:
    world.append(b"a", b"old")
    world.append(b"a", b"aborted", producer=1, sequence=0)
    world.end_transaction(1, commit=False)
    world.roll()
    world.compact()
    assert [each[1:] for each in world.visible()] == [(b"a", b"old")]


def test_an_open_transaction_holds_compaction_back(world: World) -> None:
    for number in range(3):
        world.append(b"k", b"v%d" % number)
    world.append(b"k", b"open", producer=1, sequence=0)
    world.roll()
    world.compact()
    assert len(world.visible()) == 4


def test_young_segments_are_left_alone(world: World) -> None:
    for number in range(5):
        world.append(b"k", b"v%d" % number)
    world.roll()
    world.compact(CompactionPolicy(min_compaction_lag_ms=60_000))
    assert len(world.visible()) == 5


def test_appends_and_retention_during_compaction_lose_nothing(world: World) -> None:
    for number in range(200):
        world.append(b"k%d" % (number % 50), b"v%d" % number * 10)
    world.roll()
    work = compact(world.log, POLICY, world.clock.wall_ms())
    for steps, _ in enumerate(work):
        world.append(b"new%d" % steps, b"x")
        world.scheduler.advance(0.0)
        if steps == 3:
            retain(world.log, RetentionPolicy(retention_segments=20), world.clock.wall_ms())
    world.settle()
    visible = world.visible()
    newest = {key: value for _, key, value in visible}
    start = world.log.log_start_offset
    for number in range(max(150, start), 200):
        assert newest[b"k%d" % (number % 50)] == b"v%d" % number * 10
    assert any(key and key.startswith(b"new") for key in newest)


def test_a_large_number_of_keys_is_compacted_in_several_rounds(world: World) -> None:
    for number in range(60):
        world.append(b"k%d" % (number % 12), b"v%d" % number)
    world.roll()
    for _ in range(60):
        world.compact(CompactionPolicy(key_map_bytes_max=800))
    assert dirty_ratio(world.log) == 0.0
    newest = {key: value for _, key, value in world.visible()}
    assert newest == {b"k%d" % (n % 12): b"v%d" % n for n in range(48, 60)}


@pytest.mark.parametrize("seed", range(12))
def test_compaction_against_a_model(seed: int) -> None:
    world = World()
    chance = random.Random(seed)
    newest: dict[bytes, bytes] = {}
    for number in range(300):
        key = b"key-%d" % chance.randrange(20) * chance.choice((1, 1, 4))
        value = b"%d" % number * chance.randrange(1, 12)
        world.append(key, value)
        newest[key] = value
        if chance.random() < 0.05:
            world.roll()
            world.compact()
        if chance.random() < 0.02:
            world.settle()
            world = world.reopen()
    world.roll()
    world.compact()
    visible = world.visible()
    assert {key: value for _, key, value in visible} == newest
    assert len(visible) == len(newest)
