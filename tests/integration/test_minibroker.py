"""Goal: minibroker and Kafka clients share topics, groups and offsets.

Method: a real broker over loopback, the client of this package and confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from dragoman.client.minibroker import (
    BlockingMinibrokerClient,
    BlockingSubscription,
    Delivered,
    RefusedError,
)
from dragoman.testing import EphemeralBroker

WAIT_S = 30.0


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka", "minibroker")) as started:
        yield started


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingMinibrokerClient]:
    with BlockingMinibrokerClient(broker.address("minibroker")) as opened:
        yield opened


def consumer(broker: EphemeralBroker, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def take(reading: Consumer, count: int) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < count:
        message = reading.poll(WAIT_S)
        assert message is not None, f"only {len(taken)} of {count} records came"
        assert message.error() is None, message.error()
        taken.append(message)
    return taken


def next_of(subscription: BlockingSubscription) -> Delivered:
    record = subscription.next(WAIT_S)
    assert record is not None
    return record


def test_kafka_reads_what_minibroker_wrote(
    broker: EphemeralBroker, client: BlockingMinibrokerClient
) -> None:
    written = {}
    for number, key in enumerate((b"", b"k1", b"user-1", b"k1")):
        place = client.publish("t", b"\x00\xff%d" % number, key)
        written[place.partition, place.offset] = (key or None, b"\x00\xff%d" % number)
    reading = consumer(broker, "readers")
    reading.subscribe(["t"])
    messages = take(reading, 4)
    found = {(each.partition(), each.offset()): (each.key(), each.value()) for each in messages}
    assert found == written
    assert all(each.headers() is None for each in messages)
    reading.close()


def test_minibroker_reads_what_kafka_wrote(
    broker: EphemeralBroker, client: BlockingMinibrokerClient
) -> None:
    client.commit("t", "maker", 0, 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    written = [(b"k", b"v"), (None, b"no key"), (b"no value", None), (b"", b"")]
    for key, value in written:
        producer.produce("t", key=key, value=value, partition=2, headers={"h": b"x"})
    assert producer.flush(WAIT_S) == 0
    with client.subscribe("t", 2, 0) as subscription:
        found = [next_of(subscription) for _ in written]
    assert [(each.key, each.payload) for each in found] == [
        (key or b"", value or b"") for key, value in written
    ]
    assert [each.offset for each in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_minibroker_reads_compressed_batches(
    broker: EphemeralBroker, client: BlockingMinibrokerClient, codec: str
) -> None:
    client.commit("t", "maker", 0, 0)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50}
    )
    for number in range(500):
        producer.produce("t", b"%d" % number * 20, partition=0)
    assert producer.flush(WAIT_S) == 0
    with client.subscribe("t", 0, 0) as subscription:
        assert [next_of(subscription).payload for _ in range(500)] == [
            b"%d" % number * 20 for number in range(500)
        ]


def test_group_goes_on_in_kafka_and_back(
    broker: EphemeralBroker, client: BlockingMinibrokerClient
) -> None:
    client.publish_many("t", [b"%d" % number for number in range(6)], b"k1")
    with client.join("t", "g") as member:
        first = next_of(member)
        member.commit(first)
    assert first.offset == 0
    reading = consumer(broker, "g")
    reading.subscribe(["t"])
    messages = take(reading, 5)
    assert [each.offset() for each in messages] == [1, 2, 3, 4, 5]
    reading.commit(message=messages[2], asynchronous=False)
    reading.close()
    with client.join("t", "g") as member:
        assert [next_of(member).offset for _ in range(2)] == [4, 5]


def test_live_kafka_group_is_closed_to_minibroker(
    broker: EphemeralBroker, client: BlockingMinibrokerClient
) -> None:
    client.publish("t", b"v", b"k1")
    reading = consumer(broker, "g")
    reading.subscribe(["t"])
    take(reading, 1)
    for call in (lambda: client.join("t", "g"), lambda: client.commit("t", "g", 1, 0)):
        with pytest.raises(RefusedError, match="live members of protocol kafka"):
            call()
    reading.close()
    with client.join("t", "g") as member:
        assert next_of(member).payload == b"v"


def test_live_minibroker_group_is_closed_to_kafka(
    broker: EphemeralBroker, client: BlockingMinibrokerClient
) -> None:
    client.publish("t", b"v", b"k1")
    with client.join("t", "g"):
        reading = consumer(broker, "g")
        with pytest.raises(KafkaException):
            reading.commit(offsets=[TopicPartition("t", 1, 1)], asynchronous=False)
        reading.subscribe(["t"])
        message = reading.poll(WAIT_S)
        assert message is not None
        assert message.error() is not None
        reading.close()
    reading = consumer(broker, "g")
    reading.subscribe(["t"])
    assert take(reading, 1)[0].value() == b"v"
    reading.close()
