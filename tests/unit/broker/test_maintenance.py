"""Goal: retention, rolling, compaction and producer expiry happen by themselves, by the settings.

Method: a broker in virtual time; the clock is moved over the intervals.
"""

from __future__ import annotations

import errno
import struct

import pytest
from crc32c import crc32c

from dragoman.broker.accumulator import RecordAccumulator
from dragoman.broker.topics import NewTopic
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.log.batch import Record, assign
from dragoman.log.cleaner import _Output
from dragoman.outcome import start
from dragoman.replication.replica import Replica
from worlds.broker import Follower, World, batch_of

HOUR_S = 3600
SMALL = {"segment.bytes": "500"}


def fill(world: World, replica: Replica, count: int, key: bytes = b"k") -> None:
    for number in range(count):
        batch = batch_of(b"%d" % number * 20, key=key, timestamp=world.clock.wall_ms())
        world.append(replica, batch)


def values(replica: Replica) -> list[bytes | None]:
    log = replica.log
    return [each.value for each in log.iterate(log.log_start_offset, log.high_watermark)]


def test_old_records_go_after_the_interval_and_not_before() -> None:
    world = World(Settings(log_retention_check_interval_ms=60_000))
    (replica,) = world.create("t", config={**SMALL, "retention.ms": "3600000"})
    fill(world, replica, 30)
    world.advance(HOUR_S - 120)
    assert replica.log.log_start_offset == 0
    world.advance(300)
    assert replica.log.log_start_offset == 30
    assert values(replica) == []


def test_records_without_a_time_stay_for_the_retention_after_the_last_write() -> None:
    world = World(Settings(log_retention_check_interval_ms=60_000))
    (replica,) = world.create("t", config={"retention.ms": "3600000"})
    for _ in range(2):
        batch = batch_of(b"v", timestamp=-1)
        # What librdkafka states as the maximum of such records.
        struct.pack_into(">q", batch, 35, 0)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        world.append(replica, batch)
        world.advance(HOUR_S * 0.75)
    assert replica.log.log_start_offset == 0
    world.advance(HOUR_S * 0.5)
    assert replica.log.log_start_offset == 2


def test_without_a_cleanup_policy_nothing_goes_by_itself() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000, log_cleaner_backoff_ms=1000))
    limits = {"retention.ms": "1000", "retention.bytes": "0", "min.cleanable.dirty.ratio": "0"}
    (replica,) = world.create("t", config={**SMALL, **limits, "cleanup.policy": ""})
    fill(world, replica, 30)
    world.advance(HOUR_S)
    assert replica.log.log_start_offset == 0
    assert len(values(replica)) == 30


def test_size_and_segment_limits_hold_after_the_interval() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000))
    (by_size,) = world.create("size", config={**SMALL, "retention.bytes": "2000"})
    (by_count,) = world.create("count", config={**SMALL, "retention.segments": "2"})
    for replica in (by_size, by_count):
        fill(world, replica, 60)
    world.advance(3)
    assert 2000 <= by_size.log.size < 2600
    assert len(by_count.log.all_segments()) == 2


def test_segments_past_the_limit_go_when_a_new_one_begins() -> None:
    world = World(Settings(log_retention_check_interval_ms=HOUR_S * 1000))
    for limit in (0, 1, 2, 5):
        config = {**SMALL, "retention.segments": str(limit)}
        (replica,) = world.create(f"t{limit}", config=config)
        fill(world, replica, 60)
        world.settle()
        log = replica.log
        assert len(log.all_segments()) == max(1, limit)
        assert log.log_start_offset == log.all_segments()[0].base_offset


def test_segments_past_the_limit_stay_until_what_follows_is_committed() -> None:
    world = World(Settings(log_retention_check_interval_ms=HOUR_S * 1000))
    (replica,) = world.create("t", config={**SMALL, "retention.segments": "1"})
    follower = replica.role = Follower(replica)
    fill(world, replica, 30)
    replica.advance()
    world.settle()
    assert replica.log.log_start_offset == 0
    assert len(replica.log.all_segments()) > 2
    follower.is_back = True
    replica.advance()
    world.settle()
    assert len(replica.log.all_segments()) == 1


def test_followers_leave_trimming_to_their_leader() -> None:
    world = World(Settings(log_retention_check_interval_ms=HOUR_S * 1000))
    (replica,) = world.create("t", config={**SMALL, "retention.segments": "1"})
    replica.is_led = False
    for _ in range(30):
        batch = batch_of(b"v" * 20)
        assign(batch, replica.log.log_end_offset, 0)
        replica.log.append_as_is(batch)
        world.settle()
    assert replica.log.log_start_offset == 0


def test_the_nodes_limit_is_for_topics_without_their_own_and_not_for_internal_ones() -> None:
    world = World(Settings(log_retention_segments=2, log_segment_bytes=500))
    (plain,) = world.create("plain")
    (own,) = world.create("own", config={"retention.segments": "4"})
    (compacted,) = world.create("compacted", config={"cleanup.policy": "compact"})
    new = NewTopic(name="__internal", partition_count=1, is_internal=True)
    start(world.broker.topics.create(new)).then(lambda _: None)
    world.settle()
    internal = world.broker.partitions.find("__internal", 0)
    for replica in (plain, own, compacted, internal):
        fill(world, replica, 60)
        world.broker.maintenance.retain(replica)
    assert len(plain.log.all_segments()) == 2
    assert len(own.log.all_segments()) == 4
    assert compacted.log.log_start_offset == internal.log.log_start_offset == 0


def test_a_topic_with_a_limit_on_segments_keeps_its_active_one_whatever_its_age() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000))
    config = {**SMALL, "retention.ms": "5000"}
    (counted,) = world.create("counted", config={**config, "retention.segments": "100"})
    (kafka,) = world.create("kafka", config=config)
    for replica in (counted, kafka):
        fill(world, replica, 30)
    world.advance(60)
    assert kafka.log.log_start_offset == 30
    assert not counted.log.segments
    assert counted.log.active is not None
    assert counted.log.log_start_offset == counted.log.active.base_offset < 30
    assert values(counted)[-1] == b"29" * 20


def test_changed_retention_takes_effect_without_a_restart() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000))
    (replica,) = world.create("t", config=SMALL)
    fill(world, replica, 30)
    world.advance(3)
    assert replica.log.log_start_offset == 0
    start(world.broker.topics.change_config("t", {**SMALL, "retention.segments": "1"})).then(
        lambda _: None
    )
    world.advance(3)
    assert len(replica.log.all_segments()) == 1


def test_retention_covers_unopened_partitions() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000))
    (replica,) = world.create("t", config={**SMALL, "retention.ms": "5000"})
    fill(world, replica, 30)
    again = world.reopened()
    again.clock.jump(60_000)
    again.advance(5)
    assert again.broker.partitions.find("t", 0).log.log_start_offset == 30


def test_active_segment_is_rolled_when_it_is_old_enough() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000))
    (replica,) = world.create("t", config={"segment.ms": "10000"})
    fill(world, replica, 3)
    world.advance(5)
    assert not replica.log.segments
    world.advance(10)
    assert len(replica.log.segments) == 1


def test_compacted_topic_is_compacted_once_it_is_dirty_enough() -> None:
    world = World(Settings(log_cleaner_backoff_ms=1000))
    config = {**SMALL, "cleanup.policy": "compact"}
    (replica,) = world.create("t", config=config)
    fill(world, replica, 60)
    world.advance(30)
    kept = values(replica)
    assert kept[-1] == b"59" * 20
    assert len(kept) < 10


def test_max_compaction_lag_ms() -> None:
    for lag_ms, is_compacted in (("5000", True), ("10000000", False)):
        world = World(Settings(log_cleaner_backoff_ms=1000))
        config = {
            **SMALL,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1.0",
            "max.compaction.lag.ms": lag_ms,
        }
        (replica,) = world.create("t", config=config)
        fill(world, replica, 60)
        world.advance(60)
        first = len(values(replica))
        fill(world, replica, 8)
        world.advance(60)
        # Once cleaned, it is never dirty as a whole again: only waiting long enough counts.
        assert (len(values(replica)) < first + 8) is is_compacted


def test_topic_that_is_only_compacted_keeps_old_records() -> None:
    world = World(Settings(log_retention_check_interval_ms=1000, log_cleaner_backoff_ms=1000))
    (replica,) = world.create("t", config={"cleanup.policy": "compact", "retention.ms": "1000"})
    fill(world, replica, 3)
    world.advance(60)
    assert values(replica)


def test_tombstones_are_removed_after_their_time_without_new_writes() -> None:
    world = World(Settings(log_cleaner_backoff_ms=1000, log_retention_check_interval_ms=1000))
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": "60000",
        "segment.ms": "2000",
    }
    (replica,) = world.create("t", config=config)
    world.append(replica, batch_of(b"v", key=b"a", timestamp=world.clock.wall_ms()))
    world.append(replica, batch_of(None, key=b"a", timestamp=world.clock.wall_ms()))
    world.advance(20)
    assert values(replica) == [None]
    world.advance(120)
    assert values(replica) == []
    assert replica.log.log_end_offset == 2


def test_idle_producers_are_forgotten() -> None:
    world = World(Settings(producer_id_expiration_ms=5000, log_retention_check_interval_ms=1000))
    (replica,) = world.create("t")
    world.append(
        replica,
        batch_of(
            b"v",
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            timestamp=world.clock.wall_ms(),
        ),
    )
    assert replica.log.producers is not None
    assert len(replica.log.producers) == 1
    world.advance(20)
    assert len(replica.log.producers) == 0


def test_records_gathered_in_one_turn_are_one_batch_in_order() -> None:
    world = World()
    (replica,) = world.create("t")
    accumulator = RecordAccumulator(world.scheduler, world.clock)
    placed: list[tuple[int, DragomanError | None]] = []
    now_ms = world.clock.wall_ms()
    for number in range(5):
        record = Record(value=b"%d" % number, timestamp=now_ms)
        accumulator.add(replica, record, lambda *result: placed.append(result))
    assert placed == []
    world.settle()
    assert placed == [(offset, None) for offset in range(5)]
    assert len(replica.log.read(0, 1000, 5).buffers) == 1


def test_refused_batch_fails_all_its_gathered_records() -> None:
    world = World()
    (replica,) = world.create("t", config={"max.message.bytes": "100"})
    accumulator = RecordAccumulator(world.scheduler, world.clock)
    placed: list[tuple[int, DragomanError | None]] = []
    for _ in range(3):
        accumulator.add(replica, Record(value=bytes(200)), lambda *result: placed.append(result))
    world.settle()
    assert [offset for offset, _ in placed] == [-1, -1, -1]
    assert all(isinstance(error, DragomanError) for _, error in placed)


def test_partition_that_cannot_be_compacted_yet_does_not_hold_up_others() -> None:
    world = World(Settings(log_cleaner_backoff_ms=1000))
    config = {**SMALL, "cleanup.policy": "compact"}
    (young,) = world.create("young", config={**config, "min.compaction.lag.ms": "86400000"})
    (other,) = world.create("other", config=config)
    fill(world, young, 60)
    fill(world, other, 60)
    world.advance(60)
    assert len(values(other)) < 10
    assert len(values(young)) == 60


def test_compaction_goes_on_after_an_error_of_the_disk() -> None:
    world = World(Settings(log_cleaner_backoff_ms=1000))
    (replica,) = world.create("t", config={**SMALL, "cleanup.policy": "compact"})
    fill(world, replica, 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Output, "flush", _no_descriptor)
        world.advance(30)
    fill(world, replica, 60)
    world.advance(120)
    assert len(values(replica)) < 10


def _no_descriptor(_: object) -> None:
    raise OSError(errno.EMFILE, "too many open files")


def test_records_without_a_time_that_are_only_in_the_journal_are_new() -> None:
    """The segment's file was last written to long ago; what came since is not in it yet."""
    world = World(Settings(log_retention_check_interval_ms=600_000_000))
    (replica,) = world.create("t", config={"retention.ms": "3600000"})
    world.append(replica, batch_of(b"old", timestamp=-1))
    world.advance(HOUR_S * 2)
    world.append(replica, batch_of(b"new", timestamp=-1))
    assert replica.log.dirty_bytes
    world.broker.maintenance.retain(replica)
    assert values(replica) == [b"old", b"new"]
