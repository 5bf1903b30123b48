"""Goal: stock clients do their work against a served node and an in-process one.

Method: confluent-kafka (librdkafka), kafka-python and aiokafka; each creates, lists and deletes
topics, produces plain and idempotent with every codec, and reads back by assignment, by offset and
by time. The served node runs on uvloop, the in-process one on asyncio's loop.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralBroker
from nodes.process import serve
from protocols.kafka_socket import KafkaSocket

with warnings.catch_warnings():
    # It reads its definitions through a function that the standard library has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyPartition
    from kafka.admin import NewTopic as PyNewTopic
    from kafka.errors import TopicAlreadyExistsError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_BITS = {name: number for number, name in enumerate(CODECS)}
TIMEOUT_S = 60.0
COUNT = 200


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "uvloop":
        data: Path = tmp_path_factory.mktemp("data")
        with serve(data) as node:
            yield node.bootstrap_servers
            assert node.stop() == 0
            assert node.complaints == []
    else:
        with EphemeralBroker() as broker:
            yield broker.bootstrap_servers


def value(number: int) -> bytes:
    return b"value %d " % number + b"x" * (number % 97)


VALUES = [value(number) for number in range(COUNT)]
#: A second apart, so that a time names a record.
TIMES = [1_700_000_000_000 + 1000 * number for number in range(COUNT)]


def codecs_used(servers: str, topic: str) -> set[int]:
    """What is really in the log, read without the client."""
    with KafkaSocket(servers) as client:
        records = client.fetch(topic, 0).records
        assert isinstance(records, bytes | bytearray | memoryview)
        data, used = bytes(records), set()
        while data:
            used.add(data[22] & 7)
            data = data[12 + int.from_bytes(data[8:12], "big") :]
    return used


def producer_ids_used(servers: str, topic: str) -> set[bool]:
    with KafkaSocket(servers) as client:
        records = client.fetch(topic, 0).records
        assert isinstance(records, bytes | bytearray | memoryview)
        data, used = bytes(records), set()
        while data:
            used.add(int.from_bytes(data[43:51], "big", signed=True) >= 0)
            data = data[12 + int.from_bytes(data[8:12], "big") :]
    return used


def check_written(servers: str, topic: str, codec: str, idempotent: bool) -> None:
    # A client sends a batch as it is when compressing does not make it smaller.
    assert codecs_used(servers, topic) - {0} == {CODEC_BITS[codec]} - {0}
    assert producer_ids_used(servers, topic) == {idempotent}


# ---- confluent-kafka


def confluent(servers: str, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": servers, "log_level": 0, **more}


def confluent_consumer(servers: str) -> Consumer:
    # A seek and a question wait behind the fetch that is parked on their connection.
    return Consumer(confluent(servers, **{"group.id": "unused", "fetch.wait.max.ms": 50}))


def confluent_read(consumer: Consumer, count: int) -> list[tuple[int, bytes, int]]:
    found: list[tuple[int, bytes, int]] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), TIMEOUT_S):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value(), message.timestamp()[1]))
    return found


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_produces_and_reads(servers: str, codec: str, idempotent: bool) -> None:
    topic = f"confluent-{codec}-{idempotent}"
    admin = AdminClient(confluent(servers))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    producer = Producer(
        confluent(
            servers,
            **{"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5},
        )
    )
    failures: list[object] = []
    for content, time in zip(VALUES, TIMES, strict=True):
        producer.produce(
            topic, content, timestamp=time, on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == [None] * COUNT
    check_written(servers, topic, codec, idempotent)
    consumer = confluent_consumer(servers)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert confluent_read(consumer, COUNT) == list(zip(range(COUNT), VALUES, TIMES, strict=True))
    consumer.seek(TopicPartition(topic, 0, 150))
    assert confluent_read(consumer, 1)[0][:2] == (150, VALUES[150])
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, COUNT)
    wanted = [TopicPartition(topic, 0, time) for time in (TIMES[42] - 1, TIMES[-1] + 1)]
    found = [consumer.offsets_for_times([each], TIMEOUT_S)[0].offset for each in wanted]
    assert found[0] == 42
    # librdkafka shows "no such record" as the end of the partition.
    assert found[1] in (-1, COUNT)
    consumer.close()


def test_confluent_lists_refuses_and_deletes_topics(servers: str) -> None:
    admin = AdminClient(confluent(servers))
    admin.create_topics([NewTopic("to-delete", 3, 1)])["to-delete"].result(TIMEOUT_S)
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    assert sorted(metadata.topics["to-delete"].partitions) == [0, 1, 2]
    assert metadata.brokers[1].port == int(servers.rpartition(":")[2])
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic("to-delete", 3, 1)])["to-delete"].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics(["to-delete"])["to-delete"].result(TIMEOUT_S)
    assert "to-delete" not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_confluent_creates_by_producing_and_waits_for_data(servers: str) -> None:
    topic = "confluent-on-first-use"
    producer = Producer(confluent(servers))
    producer.produce(topic, b"first")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_consumer(servers)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert confluent_read(consumer, 1)[0][1] == b"first"
    # Nothing there: the long poll is woken by the next record.
    producer.produce(topic, b"second")
    assert producer.flush(TIMEOUT_S) == 0
    assert confluent_read(consumer, 1)[0][1] == b"second"
    consumer.close()


def test_confluent_producer_reports_message_too_large(servers: str) -> None:
    topic = "confluent-small"
    with KafkaSocket(servers) as client:
        client.create_topic(topic, max_message_bytes="500")
    producer = Producer(confluent(servers, **{"enable.idempotence": False}))
    failures: list[KafkaError] = []
    producer.produce(topic, b"x" * 600, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failures[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_retention_leaves_records_of_confluent_without_a_time() -> None:
    """librdkafka states 0 as the latest time of such a batch, which is older than any retention."""
    topics = {name: {"retention.ms": "3600000"} for name in ("timeless", "old")}
    with EphemeralBroker(settings={"log.retention.check.interval.ms": "20"}) as broker:
        servers = broker.bootstrap_servers
        new = [NewTopic(name, 1, 1, config=config) for name, config in topics.items()]
        admin = AdminClient(confluent(servers))
        for created in admin.create_topics(new).values():
            created.result(TIMEOUT_S)
        producer = Producer(confluent(servers))
        for content in VALUES:
            producer.produce("timeless", content, timestamp=-1)
        assert producer.flush(TIMEOUT_S) == 0
        consumer = confluent_consumer(servers)
        # What is too old goes twice, so that a whole round of retention came in between.
        for count in (1, 2):
            producer.produce("old", b"old", timestamp=1)
            assert producer.flush(TIMEOUT_S) == 0
            while watermarks(consumer, "old") != (count, count):
                pass
        assert watermarks(consumer, "timeless") == (0, COUNT)
        consumer.assign([TopicPartition("timeless", 0, 0)])
        assert confluent_read(consumer, COUNT) == [
            (offset, content, -1) for offset, content in enumerate(VALUES)
        ]
        consumer.close()


def watermarks(consumer: Consumer, topic: str) -> tuple[int, int]:
    found = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    assert found is not None
    return found


# ---- kafka-python


@pytest.fixture
def _leaks_of_kafka_python() -> Iterator[None]:
    """kafka-python leaves the sockets with which it wakes itself to the garbage collector: collect
    them here, and not in the middle of a later test, which would fail with a warning.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.mark.usefixtures("_leaks_of_kafka_python")
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_produces_and_reads(servers: str, codec: str, idempotent: bool) -> None:
    topic = f"kafka-python-{codec}-{idempotent}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([PyNewTopic(topic, 1, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([PyNewTopic(topic, 1, 1)])
    assert topic in admin.list_topics()
    producer = KafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    sent = [
        producer.send(topic, content, partition=0, timestamp_ms=time)
        for content, time in zip(VALUES, TIMES, strict=True)
    ]
    producer.flush(TIMEOUT_S)
    assert [each.get(TIMEOUT_S).offset for each in sent] == list(range(COUNT))
    producer.close()
    check_written(servers, topic, codec, idempotent)
    consumer = KafkaConsumer(bootstrap_servers=servers, fetch_max_wait_ms=50)
    partition = PyPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = kafka_python_read(consumer, COUNT)
    assert found == list(zip(range(COUNT), VALUES, TIMES, strict=True))
    consumer.seek(partition, 150)
    assert kafka_python_read(consumer, 1)[0][:2] == (150, VALUES[150])
    by_time = consumer.offsets_for_times({partition: TIMES[42] - 1})[partition]
    assert (by_time.offset, by_time.timestamp) == (42, TIMES[42])
    assert consumer.offsets_for_times({partition: TIMES[-1] + 1})[partition] is None
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    consumer.close()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def kafka_python_read(consumer: KafkaConsumer, count: int) -> list[tuple[int, bytes, int]]:
    found: list[tuple[int, bytes, int]] = []
    while len(found) < count:
        for records in consumer.poll(TIMEOUT_S * 1000).values():
            found += [(each.offset, each.value, each.timestamp) for each in records]
    return found


# ---- aiokafka


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_produces_and_reads(servers: str, codec: str, idempotent: bool) -> None:
    topic = f"aiokafka-{codec}-{idempotent}"
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([AioNewTopic(topic, 1, 1)])
    assert topic in await admin.list_topics()
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        linger_ms=5,
    )
    await producer.start()
    sent = [
        await producer.send(topic, content, partition=0, timestamp_ms=time)
        for content, time in zip(VALUES, TIMES, strict=True)
    ]
    offsets = [each.offset for each in await asyncio.gather(*sent)]
    assert offsets == list(range(COUNT))
    await producer.stop()
    check_written(servers, topic, codec, idempotent)
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, fetch_max_wait_ms=50)
    await consumer.start()
    partition = AioPartition(topic, 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    found = [await consumer.getone() for _ in range(COUNT)]
    assert [(each.offset, each.value, each.timestamp) for each in found] == list(
        zip(range(COUNT), VALUES, TIMES, strict=True)
    )
    consumer.seek(partition, 150)
    assert (await consumer.getone()).value == VALUES[150]
    by_time = (await consumer.offsets_for_times({partition: TIMES[42] - 1}))[partition]
    assert (by_time.offset, by_time.timestamp) == (42, TIMES[42])
    assert (await consumer.offsets_for_times({partition: TIMES[-1] + 1}))[partition] is None
    assert await consumer.end_offsets([partition]) == {partition: COUNT}
    await consumer.stop()
    await admin.delete_topics([topic])
    assert topic not in await admin.list_topics()
    await admin.close()


# ---- one another


@pytest.mark.usefixtures("_leaks_of_kafka_python")
def test_what_one_writes_the_others_read(servers: str) -> None:
    topic = "shared"
    producer = Producer(confluent(servers, **{"compression.type": "lz4"}))
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic, "grün".encode(), b"k", headers=headers)
    producer.produce(topic, None, b"k")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = KafkaConsumer(bootstrap_servers=servers, fetch_max_wait_ms=50)
    partition = PyPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = []
    while len(found) < 2:
        for records in consumer.poll(TIMEOUT_S * 1000).values():
            found += records
    assert [(each.key, each.value) for each in found] == [
        (b"k", "grün".encode()),
        (b"k", None),
    ]
    assert list(found[0].headers) == [("h", b"1"), ("h", None)]
    consumer.close()


async def test_in_process_broker_inside_the_clients_own_loop() -> None:
    async with EphemeralBroker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        sent = await producer.send_and_wait("t", b"v")
        assert sent.offset == 0
        await producer.stop()


def test_fixture_serves_a_real_client(broker: EphemeralBroker) -> None:
    producer = Producer(confluent(broker.bootstrap_servers))
    producer.produce("t", b"v")
    assert producer.flush(TIMEOUT_S) == 0
    with KafkaSocket(broker.bootstrap_servers) as client:
        response = client.ask(m.MetadataRequest(topics=None), 9, m.MetadataResponse)
        assert [topic.name for topic in response.topics if not topic.is_internal] == ["t"]
