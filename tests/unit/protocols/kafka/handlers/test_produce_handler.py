"""Goal: Produce appends once, answers as asked, and each refusal has Kafka's number for it."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from dragoman.broker.topics import NewTopic
from dragoman.log.batch import CONTROL, TRANSACTIONAL, Record, build_batch
from dragoman.log.compression import Codec
from dragoman.log.store import Durability
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Outcome, Wire, World, batch_of, only_produced, produce_request

NAMED_VERSIONS = range(3, 13)


def produce(
    wire: Wire, batch: bytearray | bytes | None, *, version: int = 9, acks: int = -1
) -> m.ProduceResponsePartition:
    request = produce_request("t", batch, acks=acks)
    return only_produced(wire.ask(request, version, m.ProduceResponse))


@pytest.mark.parametrize("version", NAMED_VERSIONS)
def test_every_version_that_names_topics(world: World, wire: Wire, version: int) -> None:
    (replica,) = world.create("t")
    for offset in (0, 2):
        part = produce(wire, batch_of(b"a", b"b"), version=version)
        assert (part.error_code, part.base_offset, part.log_append_time_ms) == (0, offset, -1)
        if version >= 5:
            assert part.log_start_offset == 0
    assert replica.log.high_watermark == 4


def test_version_13_names_topics_by_id(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    topic_id = replica.metadata.topic.topic_id
    response = wire.ask(
        produce_request("", batch_of(b"a"), topic_id=topic_id), 13, m.ProduceResponse
    )
    assert response.responses[0].topic_id == topic_id
    assert only_produced(response).error_code == 0
    unknown = produce_request("", batch_of(b"a"), topic_id=b"\1" * 16)
    part = only_produced(wire.ask(unknown, 13, m.ProduceResponse))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert part.base_offset == -1


@pytest.mark.parametrize("acks", [1, -1])
def test_answer_waits_for_the_records_to_be_stable(wire: Wire, world: World, acks: int) -> None:
    world.create("t")
    wire.send(produce_request("t", batch_of(b"a"), acks=acks), 9)
    assert not wire.replies()
    world.settle()
    assert len(wire.replies()) == 1


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(world: World, wire: Wire, acks: int) -> None:
    (replica,) = world.create("t")
    part = produce(wire, batch_of(b"a"), acks=acks)
    assert part.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert replica.log.log_end_offset == 0


def test_acks_0_that_succeeds_has_no_reply(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    wire.send(produce_request("t", batch_of(b"a"), acks=0), 9)
    world.settle()
    assert not wire.transport.sent
    assert not wire.is_closed
    assert replica.log.high_watermark == 1


def test_acks_0_that_fails_closes_the_connection(world: World, wire: Wire) -> None:
    wire.send(produce_request("nowhere", batch_of(b"a"), acks=0), 9)
    world.settle()
    assert wire.is_closed
    assert not wire.transport.sent


def test_unknown_topic_is_never_created(world: World, wire: Wire) -> None:
    part = produce(wire, batch_of(b"a"))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not world.broker.image.topics


def test_unknown_partition(world: World, wire: Wire) -> None:
    world.create("t")
    request = produce_request("t", batch_of(b"a"), partition=1)
    part = only_produced(wire.ask(request, 9, m.ProduceResponse))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_fail_each_for_itself_and_answers_keep_the_order(
    world: World, wire: Wire
) -> None:
    world.create("a", 3)
    world.create("b")
    bad = batch_of(b"x")
    bad[-1] ^= 1
    request = m.ProduceRequest(
        acks=-1,
        topic_data=[
            m.ProduceRequestTopic(
                name="b", partition_data=[m.ProduceRequestPartition(0, batch_of(b"1"))]
            ),
            m.ProduceRequestTopic(
                name="a",
                partition_data=[
                    m.ProduceRequestPartition(2, batch_of(b"2")),
                    m.ProduceRequestPartition(0, bad),
                    m.ProduceRequestPartition(9, batch_of(b"3")),
                    m.ProduceRequestPartition(1, batch_of(b"4")),
                ],
            ),
        ],
    )
    response = wire.ask(request, 9, m.ProduceResponse)
    found = [
        (topic.name, part.index, part.error_code)
        for topic in response.responses
        for part in topic.partition_responses
    ]
    assert found == [("b", 0, 0), ("a", 2, 0), ("a", 0, 2), ("a", 9, 3), ("a", 1, 0)]


def test_empty_request_is_answered(wire: Wire) -> None:
    response = wire.ask(m.ProduceRequest(acks=1), 9, m.ProduceResponse)
    assert response.responses == []


def legacy(magic: int) -> bytes:
    return struct.pack(">qiIbb", 0, 22, 0, magic, 0) + bytes(60)


def with_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def overwritten(position: int, form: str, value: int) -> bytearray:
    batch = batch_of(b"a", b"b")
    struct.pack_into(form, batch, position, value)
    return with_crc(batch)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (b"x" * 60, ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        (batch_of(b"a") + b"tail", ErrorCode.INVALID_RECORD),
        (legacy(0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (legacy(1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (legacy(9), ErrorCode.CORRUPT_MESSAGE),
        (overwritten(57, ">i", 5), ErrorCode.INVALID_RECORD),
        (overwritten(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (overwritten(21, ">h", CONTROL), ErrorCode.INVALID_RECORD),
        (overwritten(21, ">h", TRANSACTIONAL), ErrorCode.INVALID_RECORD),
        (batch_of(b"x" * 1_048_600), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"v", timestamp=1 << 50), ErrorCode.INVALID_TIMESTAMP),
    ],
)
@pytest.mark.parametrize("version", [7, 8, 9])
def test_refused_batches(
    world: World, wire: Wire, batch: bytearray | bytes | None, code: int, version: int
) -> None:
    (replica,) = world.create("t")
    part = produce(wire, batch, version=version)
    assert (part.error_code, part.base_offset) == (code, -1)
    if version >= 8:
        assert part.error_message
    assert replica.log.log_end_offset == 0


def test_compacted_topic_names_the_bad_records(world: World, wire: Wire) -> None:
    world.create("t", config={"cleanup.policy": "compact"})
    batch = build_batch([Record(key=key, value=b"v", timestamp=0) for key in (b"k", None, None)])
    part = produce(wire, batch)
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in part.record_errors] == [1, 2]


@pytest.mark.parametrize("version", [3, 6, 7, 12])
def test_zstd_needs_version_7(world: World, wire: Wire, version: int) -> None:
    (replica,) = world.create("t")
    part = produce(wire, batch_of(b"v" * 100, codec=Codec.ZSTD), version=version)
    if version < 7:
        assert part.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert replica.log.log_end_offset == (0 if version < 7 else 1)


@pytest.mark.parametrize("timestamp", [-1, 0])
@pytest.mark.parametrize("epoch", [-1, 0, 77])
def test_missing_timestamps_and_any_leader_epoch_are_legal(
    world: World, wire: Wire, timestamp: int, epoch: int
) -> None:
    world.create("t")
    batch = batch_of(b"v", timestamp=timestamp)
    struct.pack_into(">i", batch, 12, epoch)
    assert produce(wire, batch).error_code == 0


# ---- idempotence


def numbered(sequence: int, *, epoch: int = 0) -> bytearray:
    value = b"v%d" % sequence
    return batch_of(value, producer_id=5, producer_epoch=epoch, base_sequence=sequence)


def test_repeat_is_answered_with_the_original_offset(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    for sequence in range(5):
        assert produce(wire, numbered(sequence)).base_offset == sequence
    for sequence in range(5):
        part = produce(wire, numbered(sequence))
        assert (part.error_code, part.base_offset) == (0, sequence)
    assert replica.log.log_end_offset == 5


def test_repeat_in_the_same_turn_waits_for_the_original(world: World, wire: Wire) -> None:
    world.create("t")
    for _ in range(2):
        wire.send(produce_request("t", numbered(0)), 9)
    assert not wire.replies()
    world.settle()
    for reply in wire.replies():
        assert isinstance(reply.message, m.ProduceResponse)
        assert only_produced(reply.message).base_offset == 0


def test_repeat_on_an_append_time_topic_has_the_original_time(world: World, wire: Wire) -> None:
    world.create("t", config={"message.timestamp.type": "LogAppendTime"})
    first = produce(wire, numbered(0))
    assert first.log_append_time_ms == world.clock.wall_ms()
    world.advance(5)
    assert produce(wire, numbered(0)).log_append_time_ms == first.log_append_time_ms
    assert produce(wire, numbered(1)).log_append_time_ms == world.clock.wall_ms()


def test_sequence_errors(world: World, wire: Wire) -> None:
    world.create("t")
    for sequence in range(8):
        produce(wire, numbered(sequence))
    assert produce(wire, numbered(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, numbered(0)).error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert produce(wire, numbered(0, epoch=1)).error_code == 0
    assert produce(wire, numbered(8)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# ---- things in the way


@pytest.mark.parametrize("deleted_first", [False, True])
def test_deletion_in_the_same_turn(world: World, wire: Wire, deleted_first: bool) -> None:
    world.create("t")
    if deleted_first:
        start(world.broker.topics.delete("t")).then(Outcome())
    wire.send(produce_request("t", batch_of(b"a")), 9)
    if not deleted_first:
        start(world.broker.topics.delete("t")).then(Outcome())
    world.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.ProduceResponse)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if deleted_first else ErrorCode.NONE
    assert only_produced(reply.message).error_code == code
    assert "t" not in world.broker.image.topics


def test_internal_topics_are_not_written_by_clients(world: World, wire: Wire) -> None:
    assert world.create_outcome(NewTopic(name="t", is_internal=True)) is None
    assert produce(wire, batch_of(b"a")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_stopped_log_answers_with_a_storage_error() -> None:
    world = World(durability=Durability.FSYNC)
    wire = Wire(world)
    world.create("t")
    world.store.fail(OSError(5, "gone"))
    assert produce(wire, batch_of(b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("acks", "code"), [(-1, 19), (1, 0)])
def test_acks_all_needs_enough_replicas_in_sync(
    world: World, wire: Wire, acks: int, code: int
) -> None:
    (replica,) = world.create("t", config={"min.insync.replicas": "2"})
    assert produce(wire, batch_of(b"a"), acks=acks).error_code == code
    assert replica.log.log_end_offset == (0 if code else 1)


class NoWriting(AllowAll):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not Operation.WRITE


def test_authorizer_is_asked() -> None:
    world = World(authorizer=NoWriting())
    (replica,) = world.create("t")
    part = produce(Wire(world), batch_of(b"a"))
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert replica.log.log_end_offset == 0
