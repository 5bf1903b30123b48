"""Goal: a delayed record appears in its partition once, at its time and not before.

Method: one node on virtual time; the wall clock is set by hand, the node is stopped and killed.
"""

from __future__ import annotations

import logging
from unittest import mock

import pytest

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.delayed import DELAYED_TOPIC, Token
from dragoman.broker.delayed.store import DELAYED_PARTITIONS
from dragoman.broker.errors import (
    InvalidRecord,
    MessageTooLarge,
    NotAuthorized,
    NotLeader,
    Overloaded,
    RequestTimedOut,
    UnknownDelayedRecord,
    UnknownTopic,
)
from dragoman.errors import DiskFullError, DragomanError
from dragoman.limits import DELAYED_LOOK_S_MAX, DELAYED_RETRY_S
from dragoman.log.batch import Record, batches
from dragoman.log.producer_states import ProducerStates
from dragoman.outcome import start
from worlds.broker import Outcome, World
from worlds.delayed_records import SETTINGS, TOPIC, Told, delay, delivered, drop, never, record_of

_STORE = "dragoman.broker.delayed.store"
_DELIVERY = "dragoman.broker.delayed.delivery"


@pytest.fixture
def world() -> World:
    return _world()


def _world() -> World:
    made = World(SETTINGS)
    made.create(TOPIC, 2)
    return made


def _in(world: World, seconds: float) -> int:
    return world.clock.wall_ms() + int(seconds * 1000)


def _batch_sizes(world: World, partition: int = 0) -> list[int]:
    log = world.broker.partitions.find(TOPIC, partition).log
    found = log.read(0, 1 << 30, log.high_watermark).buffers
    return [header.record_count for each in found for header, _ in batches(memoryview(each))]


# ---- time


def test_a_record_appears_when_it_is_due(world: World) -> None:
    token = delay(world, b"a", _in(world, 5)).token
    homes = world.broker.image.topics[DELAYED_TOPIC].partitions
    assert token.partition_id in {each.partition_id for each in homes}
    world.advance(4.99)
    assert delivered(world) == []
    world.advance(0.02)
    assert delivered(world) == [b"a"]
    world.advance(100)
    assert delivered(world) == [b"a"]
    assert world.broker.delayed.record_count == 0


def test_the_record_is_what_it_was_with_the_time_of_its_delivery(world: World) -> None:
    due_ms = _in(world, 5)
    delay(world, b"a", due_ms)
    world.advance(6)
    log = world.broker.partitions.find(TOPIC, 0).log
    (found,) = log.iterate(0, log.high_watermark)
    assert (found.key, found.value, found.headers) == (b"k", b"a", (("h", b"1"),))
    assert found.timestamp in range(due_ms, due_ms + 10)


def test_who_is_due_first_comes_first_and_equals_keep_their_order(world: World) -> None:
    for value, seconds in ((b"c", 3), (b"a", 1), (b"d", 3), (b"b", 2), (b"e", 3)):
        delay(world, value, _in(world, seconds))
    world.advance(2.5)
    assert delivered(world) == [b"a", b"b"]
    world.advance(1)
    assert delivered(world) == [b"a", b"b", b"c", b"d", b"e"]


def test_one_that_is_late_already_comes_at_once(world: World) -> None:
    delay(world, b"a", 0)
    assert delivered(world) == [b"a"]


def test_a_clock_that_is_set_back_delivers_nothing_early(world: World) -> None:
    due_ms = _in(world, 5)
    delay(world, b"a", due_ms)
    world.clock.jump(-3_600_000)
    world.advance(3600)
    assert delivered(world) == []
    world.advance(5)
    assert world.clock.wall_ms() >= due_ms
    assert delivered(world) == [b"a"]


def test_a_clock_that_is_set_forwards_is_noticed(world: World) -> None:
    delay(world, b"a", _in(world, 3600))
    world.clock.jump(3_600_000)
    world.advance(DELAYED_LOOK_S_MAX)
    assert delivered(world) == [b"a"]


# ---- batches


def test_many_that_are_due_at_once_go_as_one_batch(world: World) -> None:
    values = [b"%d" % number for number in range(100)]
    for number, value in enumerate(values):
        delay(world, value, _in(world, 5), partition=number % 2)
    world.advance(6)
    assert delivered(world, 0) == values[0::2]
    assert delivered(world, 1) == values[1::2]
    assert _batch_sizes(world) == [50]


def test_a_batch_is_cut_by_number_and_by_size(world: World) -> None:
    with mock.patch(f"{_DELIVERY}.DELAYED_BATCH_RECORDS_MAX", 4):
        for _ in range(10):
            delay(world, b"x", _in(world, 5))
        world.advance(6)
    assert _batch_sizes(world) == [4, 4, 2]
    for _ in range(3):
        delay(world, b"x" * 400_000, _in(world, 5), partition=1)
    world.advance(6)
    assert _batch_sizes(world, 1) == [2, 1]


def test_a_record_as_large_as_its_topic_allows(world: World) -> None:
    outcome = Outcome()
    start(world.broker.topics.change_config(TOPIC, {"max.message.bytes": "8000000"})).then(outcome)
    world.settle()
    assert outcome.error is None
    for value in (b"x", b"y"):
        delay(world, value * 5_000_000, _in(world, 5))
    world.advance(6)
    assert [(each[:1], len(each)) for each in delivered(world)] == [
        (b"x", 5_000_000),
        (b"y", 5_000_000),
    ]


def test_more_than_are_taken_in_one_turn(world: World) -> None:
    with mock.patch(f"{_STORE}.DELAYED_RECORDS_PER_SLICE", 3):
        for number in range(10):
            delay(world, b"%d" % number, _in(world, 5))
        world.advance(6)
    assert delivered(world) == [b"%d" % number for number in range(10)]


def test_more_batches_than_may_be_under_way(world: World) -> None:
    world.create("wide", 20)
    with mock.patch(f"{_DELIVERY}.DELAYED_DELIVERIES_MAX", 3):
        for index in range(20):
            start(
                world.broker.delayed.delay(
                    "wide", index, record_of(b"a"), _in(world, 5), NODE_ITSELF
                )
            ).then(Told())
        world.settle()
        world.advance(6)
    for index in range(20):
        assert delivered(world, index, "wide") == [b"a"]


def test_rules_that_became_stricter_hold_for_others(world: World) -> None:
    delay(world, b"x" * 1000, _in(world, 5))
    outcome = Outcome()
    start(world.broker.topics.change_config(TOPIC, {"max.message.bytes": "500"})).then(outcome)
    world.settle()
    assert outcome.error is None
    world.advance(6)
    assert delivered(world) == [b"x" * 1000]


# ---- refusals


@pytest.mark.parametrize(
    ("topic", "partition", "record", "due_ms", "expected"),
    [
        ("nowhere", 0, record_of(b"a"), 5, UnknownTopic),
        (TOPIC, 2, record_of(b"a"), 5, UnknownTopic),
        (TOPIC, -1, record_of(b"a"), 5, UnknownTopic),
        (TOPIC, 0, record_of(b"x" * 2_000_000), 5, MessageTooLarge),
        ("compacted", 0, Record(value=b"a"), 5, InvalidRecord),
        (TOPIC, 0, record_of(b"a"), -1, InvalidRecord),
        (TOPIC, 0, record_of(b"a"), 1 << 63, InvalidRecord),
        ("__consumer_offsets", 0, record_of(b"a"), 5, NotAuthorized),
    ],
)
def test_what_cannot_be_delivered_is_refused(
    world: World,
    topic: str,
    partition: int,
    record: Record,
    due_ms: int,
    expected: type[DragomanError],
) -> None:
    world.create("compacted", config={"cleanup.policy": "compact"})
    start(world.broker.coordination.groups.log.ensure())
    world.settle()
    told = Told()
    start(world.broker.delayed.delay(topic, partition, record, due_ms, NODE_ITSELF)).then(told)
    world.settle()
    assert isinstance(told.outcome, expected)
    assert world.broker.delayed.record_count == 0


def test_labels_are_bounded(world: World) -> None:
    told = Told()
    start(
        world.broker.delayed.hold(TOPIC, 0, record_of(b"a"), {"a": "x" * 5000}, None, NODE_ITSELF)
    ).then(told)
    world.settle()
    assert isinstance(told.outcome, InvalidRecord)


def test_one_too_many_is_refused_until_there_is_room(world: World) -> None:
    with mock.patch(f"{_STORE}.DELAYED_RECORDS_MAX", 2):
        told = [delay(world, b"%d" % each, _in(world, 5), settle=False) for each in range(3)]
        world.settle()
        assert isinstance(told[2].outcome, Overloaded)
        world.advance(6)
        assert isinstance(delay(world, b"again", _in(world, 1)).outcome, Token)
        world.advance(2)
    assert delivered(world) == [b"0", b"1", b"again"]


def test_full_disk_is_reported_and_nothing_is_delivered(world: World) -> None:
    delay(world, b"a", _in(world, 5))
    with mock.patch.object(world.store.commits, "admit", side_effect=DiskFullError("full")):
        assert isinstance(delay(world, b"b", _in(world, 5)).outcome, DiskFullError)
        world.advance(10)
        assert delivered(world) == []
    world.advance(DELAYED_RETRY_S)
    assert delivered(world) == [b"a"]


def test_delivery_to_a_partition_without_leader_is_retried(world: World) -> None:
    delay(world, b"a", _in(world, 1))
    with mock.patch.object(world.broker.directory, "locate", side_effect=NotLeader("no leader")):
        world.advance(10)
        assert delivered(world) == []
    world.advance(DELAYED_RETRY_S)
    assert delivered(world) == [b"a"]


def test_a_target_of_which_this_node_has_not_heard_yet_is_waited_for(world: World) -> None:
    delay(world, b"a", _in(world, 1))
    target = world.broker.partitions.find(TOPIC, 0).metadata
    del world.broker.image.partitions[target.partition_id]
    with mock.patch.object(world.broker.image, "next_partition_id", target.partition_id):
        world.advance(10)
        assert world.broker.delayed.record_count == 1
        world.broker.image.partitions[target.partition_id] = target
        world.advance(DELAYED_RETRY_S)
    assert delivered(world) == [b"a"]


# ---- dropping


def test_one_that_is_not_due_yet_can_be_dropped(world: World) -> None:
    token = delay(world, b"a", _in(world, 5)).token
    delay(world, b"b", _in(world, 5))
    assert drop(world, token, {}) is None
    assert drop(world, token, {}) is None
    world.advance(6)
    assert delivered(world) == [b"b"]
    other = delay(world, b"c", _in(world, 5)).token
    world.advance(6)
    assert isinstance(drop(world, other, {}), UnknownDelayedRecord)


def test_records_for_a_deleted_topic_are_dropped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.create("kept")
    for number in range(5):
        delay(world, b"%d" % number, _in(world, 5))
    start(
        world.broker.delayed.delay("kept", 0, record_of(b"kept"), _in(world, 5), NODE_ITSELF)
    ).then(Told())
    world.settle()
    outcome = Outcome()
    with caplog.at_level(logging.WARNING, "dragoman.delayed"):
        start(world.broker.topics.delete(TOPIC)).then(outcome)
        world.settle()
    assert outcome.error is None
    assert [each.getMessage().split(" records")[0] for each in caplog.records] == ["5 delayed"]
    assert world.broker.delayed.record_count == 1
    world.create(TOPIC, 2)
    later = world.reopened()
    later.advance(10)
    assert delivered(later) == []
    assert delivered(later, topic="kept") == [b"kept"]


def test_many_records_for_a_deleted_topic_are_dropped_a_few_at_a_time(world: World) -> None:
    for number in range(10):
        delay(world, b"%d" % number, _in(world, 5))
    with mock.patch(f"{_DELIVERY}.DELAYED_RECORDS_PER_SLICE", 3):
        start(world.broker.topics.delete(TOPIC)).then(Outcome())
        world.settle()
    assert world.broker.delayed.record_count == 0


def test_a_topic_that_was_deleted_while_the_node_was_down(world: World) -> None:
    delay(world, b"a", _in(world, 5))
    with mock.patch(f"{_STORE}.RecordStore.targets_deleted"):
        start(world.broker.topics.delete(TOPIC)).then(Outcome())
        world.settle()
    later = world.reopened(kill=True)
    assert later.broker.delayed.record_count == 0


# ---- restarts


@pytest.mark.parametrize("kill", [False, True])
def test_what_waits_survives_a_restart(world: World, kill: bool) -> None:
    for number in range(5):
        delay(world, b"%d" % number, _in(world, 5 + number), partition=number % 2)
    world.advance(6.5)
    assert (delivered(world, 0), delivered(world, 1)) == ([b"0"], [b"1"])
    later = world.reopened(kill=kill)
    assert later.broker.delayed.record_count == 3
    later.advance(20)
    assert (delivered(later, 0), delivered(later, 1)) == ([b"0", b"2", b"4"], [b"1", b"3"])
    again = later.reopened(kill=kill)
    assert again.broker.delayed.record_count == 0
    again.advance(20)
    assert (delivered(again, 0), delivered(again, 1)) == ([b"0", b"2", b"4"], [b"1", b"3"])


def test_what_waits_survives_compaction(world: World) -> None:
    for number in range(6):
        delay(world, b"%d" % number, _in(world, 1 if number % 2 else 60))
    world.advance(5)
    assert delivered(world) == [b"1", b"3", b"5"]
    logs = [
        world.broker.partitions.find(DELAYED_TOPIC, each).log for each in range(DELAYED_PARTITIONS)
    ]
    (log,) = [each for each in logs if each.log_end_offset]
    log.roll(log.log_end_offset)
    before = log.size
    world.advance(40)
    assert log.size < before
    later = world.reopened()
    assert later.broker.delayed.record_count == 3
    later.advance(70)
    assert delivered(later) == [b"1", b"3", b"5", b"0", b"2", b"4"]


def test_a_partition_that_lost_records_gets_the_next_ones(world: World) -> None:
    delay(world, b"a", _in(world, 1))
    world.advance(2)
    world.broker.partitions.find(TOPIC, 0).log.producers = ProducerStates()
    delay(world, b"b", _in(world, 1))
    world.advance(2)
    delay(world, b"c", _in(world, 1))
    world.advance(2)
    assert delivered(world) == [b"a", b"b", b"c"]


def test_producers_of_batches_under_way_are_remembered(world: World) -> None:
    target = world.broker.partitions.find(TOPIC, 0).metadata.partition_id
    assert not world.broker.delayed.is_delivering_to(target)
    delay(world, b"a", _in(world, 1))
    with mock.patch.object(world.broker.delayed.targets, "deliver", never):
        world.advance(2)
        assert world.broker.delayed.is_delivering_to(target)


def test_stopping_the_node_fails_waiting_requests(world: World) -> None:
    told = delay(world, b"a", _in(world, 5), settle=False)
    world.broker.stop()
    world.settle()
    assert isinstance(told.outcome, RequestTimedOut)
    assert world.broker.delayed.record_count == 0
