"""Goal: what the publication of staged writes promises and refuses, one rule at a time.

Method: a broker on virtual time. Crashes at every step are in
tests/simulation/test_staged_writes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from unittest import mock

import msgspec
import pytest

from dragoman.broker.errors import (
    CoordinatorLoading,
    InvalidPublication,
    InvalidRecord,
    MessageTooLarge,
    NotAuthorized,
    Overloaded,
    ShuttingDown,
    StagedRecordsGone,
    UnknownTopic,
    WriterOfAnotherQuery,
)
from dragoman.broker.produce import check_produced
from dragoman.broker.staged_writes import (
    STAGING_EPOCH,
    STAGING_TOPIC,
    Destination,
    Piece,
    Publication,
    StagingPlace,
    Target,
    Writer,
)
from dragoman.broker.staged_writes import records as stored
from dragoman.broker.staged_writes.staging_topic import check_writable
from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, DiskFullError, DragomanError, FormatError
from dragoman.limits import (
    PUBLICATIONS_WAITING_MAX,
    SINGLE_WRITER_IDLE_MS_MAX,
    WRITER_EXPIRY_INTERVAL_S,
    WRITER_IDLE_MS_MAX,
)
from dragoman.log.batch import batches, build_batch, stamp_producer
from dragoman.log.compression import Codec
from dragoman.log.partition import PartitionLog
from dragoman.outcome import start
from worlds.broker import World, batch_of
from worlds.staged_writes import (
    SETTINGS,
    TOPIC,
    Published,
    never,
    opened,
    publication,
    publish,
    small_slices,
    stage,
    values_of,
)

#: In place of a day: timers go by the second.
AGE_MAX_S = 120.0


@pytest.fixture
def world() -> Iterator[World]:
    settings = msgspec.structs.replace(SETTINGS, producer_id_expiration_ms=60_000)
    world = World(settings)
    world.create(TOPIC, partitions=2)
    with mock.patch(f"{STAGING}.STAGING_AGE_MAX_S", AGE_MAX_S):
        yield world


def to(*pieces: Piece, topic: str = TOPIC, partition: int = 0) -> Destination:
    return Destination(topic, partition, pieces)


STAGING = "dragoman.broker.staged_writes.staging_topic"
PUBLISHER = "dragoman.broker.staged_writes.publisher"
COPY = "dragoman.broker.staged_writes.destinations.Destinations.copy"


def no_copying() -> AbstractContextManager[object]:
    return mock.patch(COPY, side_effect=DiskFullError("the disk is full"))


def staged_start(world: World, partition: int) -> int:
    return world.broker.partitions.find(STAGING_TOPIC, partition).log.log_start_offset


# ---- what is published


def test_named_pieces_appear_in_the_order_named_and_no_others(world: World):
    first, loser, second = (stage(world, [name]) for name in (b"a", b"loser", b"b"))
    assert loser.record_count == 1
    assert publish(world, publication(0, to(second, first), to(first, partition=1))) is False
    assert values_of(world) == [b"b", b"a"]
    assert values_of(world, partition=1) == [b"a"]


def test_staged_records_are_in_no_topic_before_their_publication(world: World):
    stage(world, [b"a"])
    assert values_of(world) == []


def test_repeated_batch_is_acknowledged_and_writes_nothing(world: World):
    assert publish(world, publication(3, to(stage(world, [b"a"])))) is False
    assert publish(world, publication(3, to(stage(world, [b"again"])))) is True
    assert publish(world, publication(1, to(stage(world, [b"older"])))) is True
    assert values_of(world) == [b"a"]


def test_batches_of_several_slices_keep_their_order_and_borders(world: World):
    values = [[b"%d" % number] * 3 for number in range(40)]
    with small_slices():
        assert publish(world, publication(0, to(stage(world, *values)))) is False
    assert values_of(world) == [value for each in values for value in each]
    log = world.broker.partitions.find(TOPIC, 0).log
    sequences = [
        header.base_sequence
        for buffer in log.read(0, 1 << 20, log.high_watermark).buffers
        for header, _ in batches(memoryview(buffer))
    ]
    assert sequences == list(range(0, 120, 3))


def test_one_identity_writes_all_batches_of_a_writer(world: World):
    publish(world, publication(0, to(stage(world, [b"a"]))))
    publish(world, publication(1, to(stage(world, [b"b", b"c"]))))
    producers = world.broker.partitions.find(TOPIC, 0).log.producers
    assert producers is not None
    (state,) = producers.describe()
    assert (state.epoch, state.last_sequence) == (0, 2)


def test_a_batch_without_records_counts_as_published(world: World):
    assert publish(world, publication(0)) is False
    assert publish(world, publication(0, to(stage(world, [b"a"])))) is True
    assert values_of(world) == []


def test_the_topic_configuration_is_applied_to_what_is_published(world: World):
    world.create("stamped", config={"message.timestamp.type": "LogAppendTime"})
    world.create("packed", config={"compression.type": "zstd"})
    piece = stage(world, [b"a" * 100] * 3)
    world.advance(60)
    request = publication(0, to(piece, topic="stamped"), to(piece, topic="packed"))
    assert publish(world, request) is False
    for topic, codec in (("stamped", Codec.NONE), ("packed", Codec.ZSTD)):
        log = world.broker.partitions.find(topic, 0).log
        ((header, _),) = batches(memoryview(b"".join(log.read(0, 1 << 20, 3).buffers)))
        assert header.attributes & 7 == codec
        assert bool(header.attributes & 8) == (topic == "stamped")
        assert values_of(world, topic) == [b"a" * 100] * 3


# ---- what is refused, before anything has happened


def test_a_writer_id_of_another_query_is_refused(world: World):
    publish(world, publication(5, to(stage(world, [b"a"])), query="first"))
    refused = publish(world, publication(0, to(stage(world, [b"b"])), query="second"))
    assert isinstance(refused, WriterOfAnotherQuery)
    assert "first" in str(refused)
    assert values_of(world) == [b"a"]


def altered(piece: Piece, **changes: int) -> Piece:
    fields = {name: getattr(piece, name) for name in piece.__struct_fields__}
    return Piece(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 3},
        {"checksum": 1},
        {"first_offset": 1},
        {"next_offset": 1},
        {"next_offset": 99},
        {"first_offset": -1},
        {"first_offset": 2, "next_offset": 2},
    ],
    ids=str,
)
def test_a_piece_that_is_not_what_was_staged_is_refused(world: World, changes: dict[str, int]):
    piece = stage(world, [b"a", b"b"])
    refused = publish(world, publication(0, to(altered(piece, **changes))))
    assert isinstance(refused, InvalidPublication)
    assert publish(world, publication(0, to(piece))) is False, "nothing was decided"


def test_what_the_topic_would_refuse_is_refused_before_the_decision(world: World):
    world.create("small", config={"max.message.bytes": "100"})
    world.create("keyed", config={"cleanup.policy": "compact"})
    large = stage(world, [b"x" * 200])
    keyless = opened(world)
    batch = batch_of(
        b"v",
        key=None,
        producer_id=keyless.producer_id,
        producer_epoch=keyless.epoch,
        base_sequence=0,
    )
    replica = world.broker.partitions.find(STAGING_TOPIC, keyless.partition)
    at = world.append(replica, batch)
    piece = Piece(keyless.partition, at.base_offset, at.next_offset, 1, crc32c(batch[17:21]))
    cases: list[tuple[Destination, type[DragomanError]]] = [
        (to(large, topic="small"), MessageTooLarge),
        (to(piece, topic="keyed"), InvalidRecord),
        (to(large, topic="missing"), UnknownTopic),
        (to(large, topic=STAGING_TOPIC), InvalidPublication),
        (to(large, partition=7), UnknownTopic),
    ]
    for destination, kind in cases:
        refused = publish(world, publication(0, to(large), destination))
        assert isinstance(refused, kind), destination.topic
    assert values_of(world) == [], "not even the part that was right"


def test_a_partition_may_be_named_once(world: World):
    piece = stage(world, [b"a"])
    assert isinstance(publish(world, publication(0, to(piece), to(piece))), InvalidPublication)


@pytest.mark.parametrize(
    "request_",
    [
        publication(-1),
        publication(0, writer=""),
        publication(0, writer="w" * 1025),
        publication(0, query=""),
        publication(0, Destination(TOPIC, 0, (Piece(0, 0, 1, 1, 0),) * 100_001)),
    ],
    ids=["batch id", "no writer", "long writer", "no query", "pieces"],
)
def test_requests_past_a_bound_are_refused(world: World, request_: Publication):
    assert isinstance(publish(world, request_), InvalidPublication)


def test_no_more_writers_than_the_bound(world: World):
    with mock.patch(f"{PUBLISHER}.WRITERS_MAX", 1):
        assert publish(world, publication(0, to(stage(world, [b"a"])))) is False
        assert isinstance(publish(world, publication(0, writer="other")), Overloaded)
        assert publish(world, publication(1, to(stage(world, [b"b"])))) is False


def test_publications_of_one_writer_wait_for_each_other_up_to_a_bound(world: World):
    piece = stage(world, [b"a"])
    publisher = world.broker.staged_writes.publisher
    replies = [Published() for _ in range(PUBLICATIONS_WAITING_MAX + 2)]
    for reply in replies:
        start(publisher.publish(publication(0, to(piece)))).then(reply)
    assert isinstance(replies[-1].outcome, Overloaded)
    world.settle()
    assert [reply.outcome for reply in replies[:-1]] == [False] + [True] * PUBLICATIONS_WAITING_MAX
    assert values_of(world) == [b"a"]


# ---- failures on the way


def test_a_decided_batch_is_published_after_an_error_on_the_way(world: World):
    replica = world.broker.partitions.find(TOPIC, 0)
    values = [[b"%d" % number] for number in range(20)]
    reply = Published()
    with small_slices(), mock.patch.object(type(replica.log), "append", _failing(after=5)):
        request = publication(0, to(stage(world, *values)))
        start(world.broker.staged_writes.publisher.publish(request)).then(reply)
        world.settle()
    assert not reply.answers
    repeated = Published()
    start(world.broker.staged_writes.publisher.publish(request)).then(repeated)
    world.advance(2)
    assert (reply.outcome, repeated.outcome) == (False, True)
    assert values_of(world) == [value for each in values for value in each]


def _failing(after: int) -> Callable[..., object]:
    original, calls = PartitionLog.append, iter(range(1000))

    def append(self: PartitionLog, *arguments: object) -> object:
        is_target = self.identity.topic == TOPIC
        if is_target and next(calls) >= after:
            raise DiskFullError("the disk is full")
        return original(self, *arguments)  # type: ignore[arg-type]

    return append


def test_a_topic_deleted_after_the_decision_does_not_keep_the_others(world: World):
    world.create("gone")
    piece = stage(world, [b"a"])
    reply = Published()
    with no_copying():
        request = publication(0, to(piece, topic="gone"), to(piece))
        start(world.broker.staged_writes.publisher.publish(request)).then(reply)
        world.settle()
    start(world.broker.topics.delete("gone")).then(lambda _: None)
    world.settle()
    world.create("gone")
    world.advance(2)
    assert reply.outcome is False
    assert values_of(world) == [b"a"]
    assert values_of(world, "gone") == [], "another topic of the same name"


def test_a_partition_that_lost_published_records_goes_on(world: World):
    """A power cut under `durability=os` may take what the decision counted on."""
    publish(world, publication(0, to(stage(world, [b"a"], [b"b"]))))
    reply = Published()
    with no_copying():
        request = publication(1, to(stage(world, [b"c"], [b"d"])))
        start(world.broker.staged_writes.publisher.publish(request)).then(reply)
        world.settle()
    log = world.broker.partitions.find(TOPIC, 0).log
    log.truncate(1)
    log.high_watermark = 1
    world.advance(2)
    assert reply.outcome is False
    assert values_of(world) == [b"a", b"c", b"d"]


def test_stop_fails_waiting_requests_and_the_next_start_continues(world: World):
    replies = [Published(), Published()]
    with mock.patch(COPY, mock.Mock(side_effect=never)):
        request = publication(0, to(stage(world, [b"a"])))
        for reply in replies:
            start(world.broker.staged_writes.publisher.publish(request)).then(reply)
        world.settle()
        assert not any(reply.answers for reply in replies)
        again = world.reopened()
    assert all(isinstance(reply.outcome, ShuttingDown) for reply in replies)
    assert isinstance(publish(world, publication(1)), ShuttingDown)
    again.settle()
    again = again.reopened(kill=True)
    assert values_of(again) == [b"a"]
    assert publish(again, request) is True


def test_requests_are_refused_while_writers_are_read_back(world: World):
    for batch_id in range(3):
        assert publish(world, publication(batch_id, to(stage(world, [b"a"])))) is False
    staged_writes = world.broker.staged_writes
    staged_writes.log.resign(0)
    with mock.patch("dragoman.broker.internal_topic.INTERNAL_RECORDS_PER_SLICE", 1):
        staged_writes.log.lead(0, 0)
        reply = Published()
        start(staged_writes.publisher.publish(publication(3))).then(reply)
        assert isinstance(reply.outcome, CoordinatorLoading)
        world.settle()
    assert publish(world, publication(2)) is True


# ---- staging


def test_what_was_published_leaves_staging_and_what_was_not_waits_for_its_age(world: World):
    place = opened(world)
    first = stage(world, [b"a"], place=place)
    loser = stage(world, [b"x"], place=_same_partition(world, place.partition))
    second = stage(world, [b"b"], place=_same_partition(world, place.partition))
    publish(world, publication(0, to(first, second)))
    world.advance(2)
    assert staged_start(world, place.partition) == loser.first_offset
    world.advance(AGE_MAX_S)
    assert staged_start(world, place.partition) == second.next_offset


def _same_partition(world: World, partition: int) -> StagingPlace:
    while (place := opened(world)).partition != partition:
        pass
    return place


def test_a_publication_of_staged_records_that_are_gone_is_refused(world: World):
    piece = stage(world, [b"a"])
    world.advance(2 * AGE_MAX_S)
    refused = publish(world, publication(0, to(piece)))
    assert isinstance(refused, StagedRecordsGone)
    assert publish(world, publication(0, to(stage(world, [b"a"])))) is False


def test_decided_records_stay_in_staging_whatever_their_age(world: World):
    reply = Published()
    piece = stage(world, [b"a"])
    with no_copying():
        start(world.broker.staged_writes.publisher.publish(publication(0, to(piece)))).then(reply)
        world.advance(2 * AGE_MAX_S)
    assert staged_start(world, piece.partition) == piece.first_offset
    world.advance(2)
    assert reply.outcome is False
    assert values_of(world) == [b"a"]


def test_attempts_that_are_over_are_forgotten_as_producers(world: World):
    first = opened(world)
    stage(world, [b"a"], place=first)
    log = world.broker.partitions.find(STAGING_TOPIC, first.partition).log
    world.advance(2)
    assert log.producers
    with mock.patch(f"{STAGING}.STAGING_PRODUCER_IDLE_MS_MAX", 1000):
        world.advance(AGE_MAX_S / 4)
    assert not log.producers


def test_released_pieces_are_forgotten_at_the_bound(world: World):
    staging = world.broker.staged_writes.staging_topic
    with mock.patch(f"{STAGING}.STAGING_RELEASED_MAX", 2):
        staging.release(Piece(0, first, first + 1, 1, 0) for first in (5, 6, 7))
    piece = stage(world, [b"a"])
    world.advance(2)
    assert staged_start(world, piece.partition) == 0


def test_only_attempts_write_to_internal_topics_and_only_to_staging(world: World):
    place = opened(world)
    publish(world, publication(0))
    topics = world.broker.image.topics
    identity = {"producer_id": place.producer_id, "base_sequence": 0}
    attempt = batch_of(b"v", producer_epoch=STAGING_EPOCH, **identity)
    ordinary = batch_of(b"v", producer_epoch=0, **identity)
    transactional = batch_of(b"v", producer_epoch=STAGING_EPOCH, attributes=16, **identity)
    check_writable(world.broker.topics, topics[TOPIC], check_produced(memoryview(ordinary)), None)
    check_writable(
        world.broker.topics, topics[STAGING_TOPIC], check_produced(memoryview(attempt)), None
    )
    for topic, batch in (
        (STAGING_TOPIC, ordinary),
        (STAGING_TOPIC, batch_of(b"v")),
        (stored.TOPIC, attempt),
    ):
        with pytest.raises(NotAuthorized):
            check_writable(
                world.broker.topics, topics[topic], check_produced(memoryview(batch)), None
            )
    with pytest.raises(InvalidRecord):
        check_writable(
            world.broker.topics,
            topics[STAGING_TOPIC],
            check_produced(memoryview(transactional)),
            None,
        )


def test_producer_state_is_kept_while_a_batch_is_on_its_way(world: World):
    replica = world.broker.partitions.find(TOPIC, 0)
    publisher = world.broker.staged_writes.publisher
    publish(world, publication(0, to(stage(world, [b"a"]))))
    with no_copying():
        start(publisher.publish(publication(1, to(stage(world, [b"b"]))))).then(Published())
        world.advance(2 * world.settings.producer_id_expiration_ms / 1000)
        world.broker.maintenance.retain(replica)
        assert replica.log.producers
    world.advance(2)
    assert not publisher.is_publishing_to(replica.metadata.partition_id)
    world.advance(2 * world.settings.producer_id_expiration_ms / 1000)
    world.broker.maintenance.retain(replica)
    assert not replica.log.producers
    publish(world, publication(2, to(stage(world, [b"c"]))))
    assert values_of(world) == [b"a", b"b", b"c"], "a forgotten writer continues"


# ---- memory of writers


def test_idle_writers_are_forgotten_those_of_a_single_batch_soon(world: World):
    publish(world, publication(0, to(stage(world, [b"a"])), writer="batch", is_single=True))
    publish(world, publication(0, to(stage(world, [b"b"])), writer="stream"))
    assert SINGLE_WRITER_IDLE_MS_MAX < 86_400_000 < 30 * 86_400_000 < WRITER_IDLE_MS_MAX
    with mock.patch(f"{PUBLISHER}.SINGLE_WRITER_IDLE_MS_MAX", 1000):
        world.advance(2 * WRITER_EXPIRY_INTERVAL_S)
    world = world.reopened(kill=True)
    assert publish(world, publication(0, writer="stream")) is True
    assert publish(world, publication(0, writer="batch", is_single=True)) is False
    with mock.patch(f"{PUBLISHER}.WRITER_IDLE_MS_MAX", 1000):
        world.advance(2 * WRITER_EXPIRY_INTERVAL_S)
    assert publish(world, publication(0, writer="stream")) is False


def test_a_writer_survives_encoding():
    target = Target(7, 3, (Piece(0, 1, 4, 3, 0xFFFFFFFF),))
    writer = Writer(
        writer_id="ü",
        query_id="q",
        producer_id=5,
        batch_id=1 << 40,
        targets=(target,),
        is_single=True,
        updated_ms=9,
    )
    key, value = stored.to_record(writer)
    assert value is not None
    assert stored.decode_value(stored.decode_key(key), value) == writer


@pytest.mark.parametrize("data", [b"", b"\x01\xff", b"\x01\x90"])
def test_damaged_records_are_corruption(data: bytes):
    with pytest.raises(CorruptionError):
        stored.decode_value("w", data)
    if not data.endswith(b"\x90"):
        with pytest.raises(CorruptionError):
            stored.decode_key(data)


def test_records_of_a_later_version_are_refused():
    with pytest.raises(FormatError):
        stored.decode_key(b"\x02w")


def test_a_stamped_batch_is_sound_and_of_the_new_producer():
    batch = build_batch([], last_offset_delta=0, codec=Codec.ZSTD, producer_id=1)
    stamp_producer(batch, 77, 3, 5)
    ((header, _),) = batches(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
