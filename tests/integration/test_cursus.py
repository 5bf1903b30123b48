"""Goal: Cursus and Kafka clients share topics, groups and offsets.

Method: records written on one side are read on the other, with the documented key, value and
headers; a group commits on one side, empties, and goes on on the other; a join into a group with
live members of the other protocol is refused in the joiner's own form.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from dragoman.client.cursus import BlockingCursusClient, CursusError, Event
from dragoman.testing import EphemeralBroker

TIMEOUT_S = 30.0


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka", "cursus")) as started:
        yield started


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingCursusClient]:
    with BlockingCursusClient(broker.address("cursus")) as opened:
        opened.create_topic("orders", 1)
        yield opened


def kafka_consumer(broker: EphemeralBroker, group: str = "g") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def kafka_read(consumer: Consumer, count: int) -> list[object]:
    found = consumer.consume(count, TIMEOUT_S)
    assert len(found) == count
    assert all(each.error() is None for each in found)
    return found


def test_what_cursus_writes_kafka_reads(
    broker: EphemeralBroker, client: BlockingCursusClient
) -> None:
    with client.producer() as producer:
        producer.send("orders", b"\x00\xffbinary", key=b"k1")
        producer.send("orders", b"without key")
    consumer = kafka_consumer(broker)
    consumer.assign([TopicPartition("orders", 0, 0)])
    first, second = kafka_read(consumer, 2)
    assert (first.key(), first.value(), first.offset()) == (b"k1", b"\x00\xffbinary", 0)
    (name, identity), *others = first.headers()
    assert (name, others) == ("cursus.producer", [])
    assert identity.startswith(b"dragoman-")
    assert identity.endswith(b":0:1")
    assert (second.key(), second.value()) == (None, b"without key")
    consumer.close()


def test_events_have_headers(broker: EphemeralBroker, client: BlockingCursusClient) -> None:
    client.create_topic("es", 1, event_sourcing="true")
    event = Event(payload=b"{}", event_type="Created", schema_version=3, metadata="m")
    client.append_event("es", "o-1", 1, event)
    consumer = kafka_consumer(broker)
    consumer.assign([TopicPartition("es", 0, 0)])
    (record,) = kafka_read(consumer, 1)
    assert (record.key(), record.value()) == (b"o-1", b"{}")
    assert record.headers() == [
        ("cursus.eventType", b"Created"),
        ("cursus.schemaVersion", b"3"),
        ("cursus.aggregateVersion", b"1"),
        ("cursus.metadata", b"m"),
    ]
    consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_what_kafka_writes_cursus_reads(
    broker: EphemeralBroker, client: BlockingCursusClient, codec: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec})
    producer.produce("orders", b"value", key=b"key", headers={"h": b"1"})
    producer.produce("orders", None, key=b"gone")
    producer.flush(TIMEOUT_S)
    first, second = client.consume("orders", 0, 0)
    assert (first.offset, first.key, first.payload) == (0, b"key", b"value")
    assert (second.offset, second.key, second.payload) == (1, b"gone", b"")
    assert (first.producer_id, first.event_type, first.metadata) == ("", "", "")


def test_a_kafka_transaction_is_seen_when_it_is_committed(
    broker: EphemeralBroker, client: BlockingCursusClient
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(TIMEOUT_S)
    for value, ends in (
        (b"lost", producer.abort_transaction),
        (b"kept", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(TIMEOUT_S)
        assert client.consume("orders", 0, 0) == []
        ends(TIMEOUT_S)
    found = client.consume("orders", 0, 0, wait_s=TIMEOUT_S)
    assert [each.payload for each in found] == [b"kept"]


def test_a_group_moves_from_cursus_to_kafka_and_back(
    broker: EphemeralBroker, client: BlockingCursusClient
) -> None:
    with client.producer() as producer:
        producer.send_many("orders", [b"%d" % number for number in range(9)])
    with client.consumer("orders", "g") as member:
        assert [next(member).offset for _ in range(3)] == [0, 1, 2]
        member.commit()
    kafka = kafka_consumer(broker)
    kafka.subscribe(["orders"])
    assert [each.offset() for each in kafka_read(kafka, 3)] == [3, 4, 5]
    kafka.commit(asynchronous=False)
    kafka.close()
    with client.consumer("orders", "g") as member:
        assert [next(member).offset for _ in range(3)] == [6, 7, 8]


def test_a_join_into_a_live_group_of_the_other_protocol_is_refused(
    broker: EphemeralBroker, client: BlockingCursusClient
) -> None:
    client.publish("orders", b"v")
    with client.consumer("orders", "g", heartbeat_s=0.5) as member:
        next(member)
        errors: list[KafkaError] = []
        refused = threading.Event()

        def failed(error: KafkaError) -> None:
            errors.append(error)
            refused.set()

        stranger = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "error_cb": failed,
            }
        )
        stranger.subscribe(["orders"])
        while not refused.is_set():
            message = stranger.poll(0.1)
            if message is not None and message.error() is not None:
                errors.append(message.error())
                break
        assert errors[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        stranger.close()
    kafka = kafka_consumer(broker, "k")
    kafka.subscribe(["orders"])
    kafka_read(kafka, 1)
    wanted = "group 'k' has live members of protocol kafka"
    with pytest.raises(CursusError, match=f'command_failed reason="{wanted}"'):
        client.consumer("orders", "k").__enter__()
    with pytest.raises(CursusError, match="live members of protocol kafka"):
        client.command(
            "COMMIT_OFFSET",
            {"topic": "orders", "partition": 0, "group": "k", "offset": 1, "member": "m"},
        )
    kafka.close()
