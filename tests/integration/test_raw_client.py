"""Goal: the raw client and other people's clients understand each other, and nothing acknowledged
is lost or doubled when the broker goes away.

Method: real brokers on loopback. What one client writes the other reads, with every codec and with
transactions. Then the broker restarts under a producer, and a wire that loses replies stands
between the two.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from dragoman.checksum import crc32c
from dragoman.cli.main import main
from dragoman.client.kafka import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    BlockingKafkaClient,
    ClientError,
    ClientSettings,
    Codec,
    FetchFrom,
    Isolation,
    KafkaClient,
    KafkaError,
    LiveGroupError,
    NewRecord,
    NewTopic,
    OffsetRangeError,
    ProducerOptions,
    StagedBatch,
    StagedPiece,
    TopicExistsError,
    TopicPartition,
    UnknownTopicError,
    partition_for_key,
)
from dragoman.log.batch import Record, build_batch, check_batch
from dragoman.testing import EphemeralBroker

WHERE = TopicPartition("t", 0)
PATIENT = ClientSettings(
    operation_timeout_s=60, request_timeout_s=10, backoff_first_s=0.005, backoff_max_s=0.05
)


@pytest.fixture
async def client(broker: EphemeralBroker) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(broker.bootstrap_servers, PATIENT) as opened:
        yield opened


async def read_all(
    client: KafkaClient, topic: str, isolation: Isolation = Isolation.READ_COMMITTED
) -> list[tuple[int, int, bytes | None]]:
    partitions = (await client.topic(topic)).all_partitions()
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST), isolation=isolation)
    until = {where: each.offset for where, each in ends.items()}
    async with client.reader(
        dict.fromkeys(partitions, 0), until=until, isolation=isolation
    ) as reader:
        return [(each.partition, each.offset, each.value) async for each in reader]


def confluent_read(bootstrap: str, topic: str, count: int) -> list:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(count, timeout=60)
        while len(messages) < count:
            more = consumer.consume(count - len(messages), timeout=60)
            assert more
            messages += more
    finally:
        consumer.close()
    assert all(message.error() is None for message in messages)
    return messages


# ---- other people's clients


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
async def test_confluent_reads_what_the_raw_client_writes(
    client: KafkaClient, broker: EphemeralBroker, codec: Codec
) -> None:
    await client.create_topic(NewTopic(name="t", partitions=3))
    records = [
        NewRecord(key=b"k%d" % n, value=b"value %d" % n, headers=(("n", b"%d" % n), ("none", None)))
        for n in range(200)
    ]
    positions = await client.produce_records("t", records, ProducerOptions(codec=codec))
    messages = await asyncio.to_thread(confluent_read, broker.bootstrap_servers, "t", 200)
    found = {
        (each.partition(), each.offset()): (each.key(), each.value(), each.headers())
        for each in messages
    }
    expected = {
        (where.partition, where.offset): (record.key, record.value, list(record.headers))
        for where, record in zip(positions, records, strict=True)
    }
    assert found == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_raw_client_reads_what_confluent_writes(
    client: KafkaClient, broker: EphemeralBroker, codec: str
) -> None:
    await client.create_topic(NewTopic(name="t", partitions=3))
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "partitioner": "murmur2",
        }
    )
    for n in range(200):
        producer.produce(
            "t", b"v%d" % n, key=b"k%d" % n, headers=[("n", b"%d" % n)], timestamp=n + 1
        )
    assert await asyncio.to_thread(producer.flush, 30) == 0
    partitions = (await client.topic("t")).all_partitions()
    ends = await client.list_offsets(dict.fromkeys(partitions, LATEST))
    async with client.reader(
        dict.fromkeys(partitions, 0), until={where: each.offset for where, each in ends.items()}
    ) as reader:
        records = [record async for record in reader]
    assert sorted(record.timestamp for record in records) == list(range(1, 201))
    for record in records:
        n = b"%d" % (record.timestamp - 1)
        assert (record.key, record.value, record.headers) == (b"k" + n, b"v" + n, (("n", n),))
        assert record.partition == partition_for_key(b"k" + n, 3)


async def test_aborted_and_open_transactions_are_left_out(
    client: KafkaClient, broker: EphemeralBroker
) -> None:
    def write() -> Producer:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
        )
        producer.init_transactions(30)
        for name, is_kept in (("a", True), ("b", False), ("c", True), ("d", False)):
            producer.begin_transaction()
            for n in range(3):
                producer.produce("t", f"{name}{n}".encode(), partition=0)
            producer.flush(30)
            if is_kept:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce("t", b"open", partition=0)
        assert producer.flush(30) == 0
        return producer

    await client.create_topic(NewTopic(name="t", partitions=1))
    producer = await asyncio.to_thread(write)
    committed = [value for _, _, value in await read_all(client, "t")]
    assert committed == [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]
    everything = [value for _, _, value in await read_all(client, "t", Isolation.READ_UNCOMMITTED)]
    assert len(everything) == 13
    assert everything[-1] == b"open"
    fetched = (await client.fetch({WHERE: FetchFrom(0)}))[WHERE]
    assert [each.first_offset for each in fetched.aborted] == [4, 12]
    assert fetched.last_stable_offset == 16
    assert fetched.high_watermark == 17
    await asyncio.to_thread(producer.abort_transaction, 30)


async def test_offsets_are_shared_with_other_clients(
    client: KafkaClient, broker: EphemeralBroker
) -> None:
    await client.create_topic(NewTopic(name="t", partitions=1))
    await client.produce_records("t", [NewRecord(value=b"%d" % n) for n in range(10)])
    await client.commit_offsets("g", {WHERE: 4})

    def go_on() -> bytes:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
            | {"auto.offset.reset": "error", "enable.auto.commit": False}
        )
        consumer.subscribe(["t"])
        message = consumer.poll(30)
        consumer.commit(offsets=[ConfluentPartition("t", 0, 9)], asynchronous=False)
        with pytest.raises(LiveGroupError):
            asyncio.run(commit_again())
        consumer.close()
        return message.value()

    async def commit_again() -> None:
        async with KafkaClient(broker.bootstrap_servers) as other:
            await other.commit_offsets("g", {WHERE: 1})

    assert await asyncio.to_thread(go_on) == b"4"
    assert (await client.committed_offsets("g"))[WHERE].offset == 9
    await client.commit_offsets("g", {WHERE: 2})
    assert (await client.committed_offsets("g", [WHERE]))[WHERE].offset == 2


def test_reset_of_a_group_with_members_is_refused(
    broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    with BlockingKafkaClient(broker.bootstrap_servers) as client:
        client.produce_records("t", [NewRecord(value=b"v")])
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
            | {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe(["t"])
        assert consumer.poll(30).value() == b"v"
        reset = ["group", "reset", "g", "--topic", "t", "--to", "end", "--yes"]
        assert main([*reset, "--server", broker.http_url]) == 1
        refused = capsys.readouterr()
        assert refused.out == ""
        assert "group 'g'" in refused.err
        assert "members first" in refused.err or "them first" in refused.err
        consumer.close()
        assert client.committed_offsets("g") == {}
        assert main([*reset, "--server", broker.http_url]) == 0
        assert client.committed_offsets("g")[WHERE].offset == 1


# ---- whole batches and administration


async def test_batch_is_read_as_it_was_written(client: KafkaClient) -> None:
    records = [Record(key=b"k", value=b"v%d" % n, timestamp=1000 + n) for n in range(5)]
    batch = bytes(build_batch(records, codec=Codec.ZSTD))
    for round_number in range(3):
        produced = await client.produce("t", 0, batch)
        assert produced.base_offset == 5 * round_number
    fetched = (await client.fetch({WHERE: FetchFrom(7)}))[WHERE]
    assert fetched.high_watermark == fetched.last_stable_offset == 15
    header = check_batch(fetched.records)
    assert header.base_offset == 5
    # Only base offset and leader epoch were assigned; everything the checksum covers is the same.
    assert bytes(fetched.records[16 : header.size]) == batch[16:]


async def test_offsets_are_found_by_age(client: KafkaClient) -> None:
    for timestamps in ((100, 300, 200), (500, 400)):
        records = [Record(value=b"v", timestamp=each) for each in timestamps]
        await client.produce("t", 0, build_batch(records))
    for wanted, offset in (
        (EARLIEST, 0),
        (LATEST, 5),
        (MAX_TIMESTAMP, 3),
        (0, 0),
        (250, 1),
        (301, 3),
        (501, -1),
    ):
        assert (await client.list_offsets({WHERE: wanted}))[WHERE].offset == offset, wanted


async def test_topics_come_and_go(client: KafkaClient) -> None:
    info = await client.create_topic(
        NewTopic(name="t", partitions=4, config={"retention.ms": "1000"})
    )
    assert len(info.partitions) == 4
    with pytest.raises(TopicExistsError):
        await client.create_topic(NewTopic(name="t"))
    assert (await client.cluster()).topics["t"].topic_id == info.topic_id
    await client.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        await client.fetch({WHERE: FetchFrom(0)})
    with pytest.raises(UnknownTopicError):
        await client.delete_topic("t")
    again = await client.create_topic(NewTopic(name="t", partitions=1))
    assert again.topic_id != info.topic_id
    with pytest.raises(OffsetRangeError):
        await client.fetch({WHERE: FetchFrom(1)})


async def test_waiting_fetch_does_not_hold_up_other_requests(client: KafkaClient) -> None:
    await client.create_topic(NewTopic(name="t", partitions=1))
    waiting = asyncio.create_task(client.fetch({WHERE: FetchFrom(0)}, max_wait_ms=60_000))
    await client.produce_records("t", [NewRecord(value=b"v")])
    assert len((await waiting)[WHERE].records)


async def test_many_calls_side_by_side(client: KafkaClient) -> None:
    await client.create_topic(NewTopic(name="t", partitions=1))
    batch = build_batch([Record(value=b"v", timestamp=1)])
    produced = await asyncio.gather(*(client.produce("t", 0, batch) for _ in range(200)))
    assert sorted(each.base_offset for each in produced) == list(range(200))


def test_client_works_on_uvloop(broker: EphemeralBroker) -> None:
    async def write_and_read() -> list[bytes | None]:
        async with KafkaClient(broker.bootstrap_servers) as client:
            records = [NewRecord(value=b"%d" % n * 1000) for n in range(1000)]
            await client.produce_records("t", records)
            return [value for _, _, value in await read_all(client, "t")]

    assert uvloop.run(write_and_read()) == [b"%d" % n * 1000 for n in range(1000)]


# ---- a broker that goes away


async def test_restart_in_the_middle_loses_and_doubles_nothing() -> None:
    """Records are written while the broker restarts three times, then read back."""
    async with (
        EphemeralBroker(storage="directory") as broker,
        KafkaClient(broker.bootstrap_servers, PATIENT) as client,
    ):
        await client.create_topic(NewTopic(name="t", partitions=3))
        writing = asyncio.create_task(write_slowly(client, acknowledged := {}))
        for part in (1, 2, 3):
            while len(acknowledged) < part * 600:
                assert not writing.done()
                await asyncio.sleep(0.001)
            await asyncio.to_thread(broker.restart)
        await writing
        found = {
            value: (partition, offset) for partition, offset, value in await read_all(client, "t")
        }
        assert len(acknowledged) == 3000
        assert found == acknowledged
        for partition in range(3):
            offsets = sorted(offset for where, offset in found.values() if where == partition)
            assert offsets == list(range(1000))


async def write_slowly(client: KafkaClient, acknowledged: dict[bytes, tuple[int, int]]) -> None:
    """Fifty records at a time, each noted with its position when the broker has it."""
    async with client.producer(ProducerOptions(batch_bytes=2000)) as producer:
        for start in range(0, 3000, 50):
            numbers = range(start, start + 50)
            sent = await producer.send_many(
                "t", [NewRecord(value=b"%d" % n, partition=n % 3) for n in numbers]
            )
            for n, delivery in zip(numbers, sent, strict=True):
                where = await delivery
                acknowledged[b"%d" % n] = (where.partition, where.offset)


class LossyWire(asyncio.Protocol):
    """One connection to the broker on which the reply that `is_lost` picks never arrives.

    The request was carried out, which is what makes retries dangerous. Installed between a client's
    protocol and its real transport: the broker names its own port, so no proxy could stand there.
    """

    def __init__(self, link: asyncio.BufferedProtocol, is_lost: Callable[[], bool]) -> None:
        self._link = link
        self._is_lost = is_lost
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._link.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[:end], self._buffer[end:]
            if self._is_lost():
                self._transport.abort()
                return
            self._hand_over(frame)

    def _hand_over(self, frame: bytes) -> None:
        while frame:
            room = self._link.get_buffer(-1)
            count = min(len(room), len(frame))
            room[:count] = frame[:count]
            self._link.buffer_updated(count)
            frame = frame[count:]


async def test_lost_replies_double_nothing(
    broker: EphemeralBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every seventh reply is lost, whatever it answers; the first ones let the client open."""
    replies = itertools.count(1)
    lost = 0

    def is_lost() -> bool:
        nonlocal lost
        is_seventh = next(replies) % 7 == 0
        lost += is_seventh
        return is_seventh

    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def connect_lossy(
        factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        link = factory()
        transport, _ = await connect(lambda: LossyWire(link, is_lost), host, port)
        return transport, link

    monkeypatch.setattr(loop, "create_connection", connect_lossy)
    async with KafkaClient(broker.bootstrap_servers, PATIENT) as client:
        await write_through_losses(client)
    assert lost > 5


async def write_through_losses(client: KafkaClient) -> None:
    async with client.producer(ProducerOptions(batch_bytes=500)) as producer:
        sent = [await producer.send("t", NewRecord(value=b"%d" % n)) for n in range(500)]
        positions = [await delivery for delivery in sent]
    found = await read_all(client, "t")
    assert Counter(value for _, _, value in found) == Counter(b"%d" % n for n in range(500))
    expected = [(where.partition, where.offset, b"%d" % n) for n, where in enumerate(positions)]
    assert sorted(found) == sorted(expected)


async def test_broker_that_stays_away_is_named_in_time() -> None:
    broker = EphemeralBroker()
    await asyncio.to_thread(broker.start)
    settings = ClientSettings(operation_timeout_s=0.3, backoff_max_s=0.05)
    async with KafkaClient(broker.bootstrap_servers, settings) as client:
        await client.create_topic(NewTopic(name="t", partitions=1))
        await asyncio.to_thread(broker.stop)
        with pytest.raises(ClientError, match=r"cannot reach 127\.0\.0\.1:.*: connection refused"):
            await client.fetch({WHERE: FetchFrom(0)})


async def test_staged_batches_are_published_once(client: KafkaClient) -> None:
    await client.create_topic(NewTopic(name="t", partitions=1))

    async def stage(*values: bytes) -> StagedPiece:
        place = await client.open_staging("writer")
        batch = build_batch(
            [Record(value=value) for value in values],
            producer_id=place.identity.producer_id,
            producer_epoch=place.identity.producer_epoch,
            base_sequence=0,
        )
        at = (await client.produce(*place.partition, batch)).base_offset
        checksum = crc32c(batch[17:21])
        count = len(values)
        return StagedPiece(place.partition.partition, at, at + count, count, checksum)

    pieces = [await stage(b"a", b"b"), await stage(b"c")]
    await stage(b"loser")
    uncommitted = Isolation.READ_UNCOMMITTED
    assert await read_all(client, "t", uncommitted) == []
    batch = StagedBatch(writer_id="writer", query_id="q", batch_id=0, pieces={WHERE: pieces})
    assert await client.publish_staged(batch) is False
    assert await client.publish_staged(batch) is True
    found = await read_all(client, "t", uncommitted)
    assert [value for *_, value in found] == [b"a", b"b", b"c"]
    other = StagedBatch(writer_id="writer", query_id="other", batch_id=0, pieces={})
    with pytest.raises(KafkaError, match="belongs to query q"):
        await client.publish_staged(other)
