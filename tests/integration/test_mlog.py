"""Goal: mlog and Kafka clients share topics, records and committed offsets.

Method: confluent-kafka and the mlog client against one node, over its own listeners and over `any`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.client.mlog import BlockingMlogClient, CommitRefusedError, Entry
from dragoman.testing import EphemeralBroker

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("kafka", "mlog", "any")) as running:
        yield running


@pytest.fixture
def client(broker: EphemeralBroker) -> Iterator[BlockingMlogClient]:
    with BlockingMlogClient(broker.address("mlog")) as connected:
        yield connected


def kafka(broker: EphemeralBroker, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **more}


def consumer_of(broker: EphemeralBroker, group: str, topic: str) -> Consumer:
    config = kafka(
        broker,
        **{
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 100,
        },
    )
    consumer = Consumer(config)
    consumer.subscribe([topic])
    return consumer


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(message)
    return found


def test_records_of_mlog_are_read_by_kafka_as_values(
    broker: EphemeralBroker, client: BlockingMlogClient
) -> None:
    client.create_topic("to-kafka")
    client.produce("to-kafka", b"one")
    client.produce_batch("to-kafka", [b"\x00\xff", b""])
    consumer = consumer_of(broker, "to-kafka", "to-kafka")
    found = take(consumer, 3)
    consumer.close()
    assert [(each.offset(), each.value()) for each in found] == [
        (0, b"one"),
        (1, b"\x00\xff"),
        (2, b""),
    ]
    for each in found:
        assert each.key() is None
        assert each.headers() is None
        assert each.timestamp()[1] > 1_700_000_000_000


def test_records_of_kafka_are_read_by_mlog_without_keys_and_headers(
    broker: EphemeralBroker, client: BlockingMlogClient
) -> None:
    admin = AdminClient(kafka(broker))
    admin.create_topics([NewTopic("to-mlog", 2, 1)])["to-mlog"].result(PATIENCE_S)
    producer = Producer(kafka(broker, **{"compression.type": "zstd"}))
    for number in range(4):
        producer.produce(
            "to-mlog", b"v%d" % number, key=b"k", headers={"h": b"x"}, partition=number % 2
        )
    producer.produce("to-mlog", None, key=b"k", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert client.fetch_batch("to-mlog") == [
        Entry(offset=0, value=b"v0"),
        Entry(offset=1, value=b"v2"),
        Entry(offset=2, value=None),
    ]
    assert [each.value for each in client.fetch_batch("to-mlog@1")] == [b"v1", b"v3"]


def test_group_goes_on_in_kafka_where_it_stopped_in_mlog_and_back(
    broker: EphemeralBroker, client: BlockingMlogClient
) -> None:
    client.create_topic("moving")
    client.produce_batch("moving", [b"%d" % number for number in range(10)])
    reading = client.consume("moving", id="movers", max_count=4)
    assert [each.value for each in reading.next_entries()] == [b"0", b"1", b"2", b"3"]
    reading.commit()
    consumer = consumer_of(broker, "movers", "moving")
    found = take(consumer, 3)
    assert [each.value() for each in found] == [b"4", b"5", b"6"]
    consumer.commit(found[-1], asynchronous=False)
    consumer.close()
    assert client.committed("moving", id="movers") == 7
    again = client.consume("moving", id="movers")
    assert [each.value for each in again.next_entries()] == [b"7", b"8", b"9"]
    again.commit()
    after = Consumer(kafka(broker, **{"group.id": "movers"}))
    (where,) = after.committed([TopicPartition("moving", 0)], PATIENCE_S)
    after.close()
    assert where.offset == 10


def test_commit_into_a_group_with_live_kafka_members_is_refused(
    broker: EphemeralBroker, client: BlockingMlogClient
) -> None:
    client.create_topic("live")
    client.produce("live", b"v")
    consumer = consumer_of(broker, "lively", "live")
    (message,) = take(consumer, 1)
    with pytest.raises(CommitRefusedError, match="live members of protocol kafka") as caught:
        client.commit("live", 1, id="lively")
    assert caught.value.number == 7
    # Reading is nobody's privilege, and another group is not concerned.
    assert client.fetch("live", id="lively") == Entry(offset=0, value=b"v")
    client.commit("live", 1, id="other")
    consumer.commit(message, asynchronous=False)
    consumer.close()
    assert client.committed("live", id="lively") == 1
    client.commit("live", 0, id="lively")
    assert client.committed("live", id="lively") == 0


def test_records_of_minibroker_and_mlog_are_the_same_records(broker: EphemeralBroker) -> None:
    address = broker.address("any")
    with BlockingMlogClient(address) as client, BlockingMinibrokerClient(address) as other:
        client.create_topic("three")
        client.produce("three", b"of mlog")
        assert other.publish("three", b"of minibroker", b"key").offset == 1
        assert [each.value for each in client.fetch_batch("three")] == [
            b"of mlog",
            b"of minibroker",
        ]


def test_one_port_for_both(broker: EphemeralBroker) -> None:
    address = broker.address("any")
    with BlockingMlogClient(address) as client:
        client.create_topic("one-port")
        assert client.topic_leader("one-port") == address
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        producer.produce("one-port", b"from kafka")
        assert producer.flush(PATIENCE_S) == 0
        client.produce("one-port", b"from mlog")
        config = {
            "bootstrap.servers": address,
            "log_level": 0,
            "group.id": "one-port",
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer(config)
        consumer.subscribe(["one-port"])
        found = take(consumer, 2)
        metadata = consumer.list_topics(timeout=PATIENCE_S)
        consumer.close()
    assert [each.value() for each in found] == [b"from kafka", b"from mlog"]
    # Kafka clients stay on the port they came in on.
    assert {f"{each.host}:{each.port}" for each in metadata.brokers.values()} == {address}
