"""Goal: a batch that expands to more than a reader takes is refused when it is produced; one that
is in the log already is an error to who needs its records, and to Kafka's clients the same bytes.

Method: a broker on virtual time; expansions are counted, not timed.
"""

from __future__ import annotations

import gzip
import struct

import pytest

from dragoman.broker import produce
from dragoman.broker.errors import MessageTooLarge
from dragoman.broker.local_reader import LocalReader
from dragoman.checksum import crc32c
from dragoman.limits import DECODED_AT_ONCE_RECORDS_MAX, EXPANDED_BATCH_BYTES_MAX
from dragoman.log.batch import Record, build_batch
from dragoman.log.compression import Codec
from dragoman.log.store import Durability
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.replication.replica import Replica
from worlds.broker import Wire as KafkaWire
from worlds.broker import World, batch_of, fetch_request, only, only_produced, produce_request
from worlds.cursus import CursusPipe

COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


@pytest.fixture
def world() -> World:
    return World(durability=Durability.OS)


def bomb(codec: Codec = Codec.GZIP, size: int = 40 << 20) -> bytearray:
    """One record of zeros."""
    return build_batch([Record(value=bytes(size), timestamp=5)], codec=codec)


def many(count: int, codec: Codec = Codec.GZIP) -> bytearray:
    made = [Record(value=b"%d" % at, timestamp=1000 + at) for at in range(count)]
    return build_batch(made, codec=codec)


def lying(size: int = 40 << 20) -> bytearray:
    """Two members, of which the last is small: the size at the end is that one's."""
    batch = bomb(Codec.GZIP, size)
    batch += gzip.compress(b"")
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def smuggle(
    world: World, replica: Replica, batch: bytearray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an older release had taken it."""
    with monkeypatch.context() as patch:
        patch.setattr(produce, "check_expansion", lambda *_: None)
        world.append(replica, batch)


# ---- produced


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_bomb_is_refused_when_it_is_produced(world: World, codec: Codec) -> None:
    config = {"max.message.bytes": str(8 << 20)}
    (replica,) = world.create("t", config=config)
    wire = KafkaWire(world)
    answer = wire.ask(produce_request("t", bomb(codec)), 9, m.ProduceResponse)
    part = only_produced(answer)
    assert part.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "expands to more than" in (part.error_message or "")
    assert replica.log.log_end_offset == 0
    fine = bomb(codec, EXPANDED_BATCH_BYTES_MAX - (1 << 20))
    answer = wire.ask(produce_request("t", fine), 9, m.ProduceResponse)
    assert only_produced(answer).error_code == 0
    assert world.store.expansions.count == 0


def test_topic_with_larger_messages_may_have_larger_batches(world: World) -> None:
    (replica,) = world.create("t", config={"max.message.bytes": str(64 << 20)})
    world.append(replica, bomb())
    tail = LocalReader(replica, 0, lambda: None)
    assert [len(each.value or b"") for each in tail.read(1, 1)] == [40 << 20]


def test_bomb_is_refused_on_the_express_as_well(world: World) -> None:
    """Requests like earlier ones take a shorter way."""
    (replica,) = world.create("t")
    wire = KafkaWire(world)
    for _ in range(3):
        wire.ask(produce_request("t", batch_of(b"v")), 9, m.ProduceResponse)
    answer = wire.ask(produce_request("t", bomb()), 9, m.ProduceResponse)
    assert only_produced(answer).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert replica.log.log_end_offset == 3


def test_batch_of_more_records_than_one_may_have_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "BATCH_RECORDS_MAX", 10)
    (replica,) = world.create("t")
    for codec in (Codec.NONE, Codec.ZSTD):
        world.append(replica, many(10, codec))
        with pytest.raises(MessageTooLarge, match="11 records"):
            world.append(replica, many(11, codec))


@pytest.mark.parametrize("config", [{"cleanup.policy": "compact"}, {"compression.type": "lz4"}])
def test_topics_that_look_into_batches_expand_no_more_than_the_bound(
    world: World, config: dict[str, str]
) -> None:
    (replica,) = world.create("t", config=config)
    with pytest.raises(MessageTooLarge):
        world.append(replica, lying())


# ---- read


def test_small_reads_of_one_batch_expand_it_once(world: World) -> None:
    (replica,) = world.create("t")
    count = 5 * DECODED_AT_ONCE_RECORDS_MAX
    world.append(replica, many(count))
    for offset in range(0, count, 997):
        tail = LocalReader(replica, offset, lambda: None)
        found = tail.read(60, 3)
        assert [each.value for each in found] == [
            b"%d" % at for at in range(offset, min(offset + 3, count))
        ]
        assert tail.offset == found[-1].offset + 1
        tail.close()
    assert world.store.expansions.count == 1


def test_large_batch_is_read_to_its_end_and_on(world: World) -> None:
    (replica,) = world.create("t")
    count = 2 * DECODED_AT_ONCE_RECORDS_MAX + 5
    world.write(replica, b"before")
    world.append(replica, many(count, Codec.ZSTD))
    world.write(replica, b"after")
    tail = LocalReader(replica, 0, lambda: None)
    found: list[bytes | None] = []
    while batch := tail.read(1 << 20, 700):
        assert len(batch) <= 700
        found += [each.value for each in batch]
    assert found == [b"before", *(b"%d" % at for at in range(count)), b"after"]
    assert not tail.has_more


def test_cursus_reads_of_one_batch_expand_it_once(world: World) -> None:
    (replica,) = world.create("orders")
    world.append(replica, many(10_000))
    for offset in range(0, 5000, 500):
        # A connection remembers where it reads; another one begins anew.
        command = f"CONSUME topic=orders partition=0 offset={offset} member=m batch=2"
        reply = CursusPipe(world).ask_batch(command)
        assert reply.messages[0].payload == b"%d" % offset
    assert world.store.expansions.count == 1


# ---- in the log already


@pytest.mark.parametrize("kind", ["large", "lying"])
def test_reader_hears_that_a_batch_is_too_large_and_kafka_gets_the_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (replica,) = world.create("t")
    batch = bomb() if kind == "large" else lying()
    smuggle(world, replica, batch, monkeypatch)
    world.write(replica, b"after")
    for _ in range(5):
        tail = LocalReader(replica, 0, lambda: None)
        with pytest.raises(MessageTooLarge, match="t-0: batch decompresses to more than"):
            tail.read(60, 1)
    assert world.store.expansions.count == 1
    assert not replica.log.is_damaged
    tail.seek(1)
    assert [each.value for each in tail.read(60, 1)] == [b"after"]
    response = KafkaWire(world).ask(fetch_request("t"), 12, m.FetchResponse)
    assert len(only(response).records or b"") > len(batch)


def test_time_in_a_batch_that_is_too_large_is_found_by_its_header(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"before")
    smuggle(world, replica, bomb(), monkeypatch)
    found = replica.log.offset_for_time(0, replica.log.log_end_offset)
    assert found is not None
    (asked,) = (m.ListOffsetsRequestPartition(partition_index=0, timestamp=1),)
    request = m.ListOffsetsRequest(topics=[m.ListOffsetsRequestTopic(name="t", partitions=[asked])])
    answer = KafkaWire(world).ask(request, 7, m.ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == 0


def test_times_of_one_batch_expand_it_once(world: World) -> None:
    (replica,) = world.create("t")
    world.append(replica, many(10_000))
    asked = [
        m.ListOffsetsRequestPartition(partition_index=0, timestamp=1000 + at)
        for at in range(0, 10_000, 100)
    ]
    request = m.ListOffsetsRequest(topics=[m.ListOffsetsRequestTopic(name="t", partitions=asked)])
    answer = KafkaWire(world).ask(request, 7, m.ListOffsetsResponse)
    assert [each.offset for each in answer.topics[0].partitions] == list(range(0, 10_000, 100))
    assert world.store.expansions.count == 1
