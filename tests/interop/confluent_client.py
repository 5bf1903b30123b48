"""confluent-kafka: librdkafka behind a Python face."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from operations import SECONDS_MAX, Row

name = "confluent-kafka"
version = version(name)


def _settings(servers: str, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": servers, "log_level": 0, **more}


def create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient(_settings(servers))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS_MAX)


def delete_topic(servers: str, topic: str) -> None:
    admin = AdminClient(_settings(servers))
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)


def list_topics(servers: str) -> set[str]:
    return set(AdminClient(_settings(servers)).list_topics(timeout=SECONDS_MAX).topics)


def produce(
    servers: str, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
) -> None:
    failures: list[object] = []
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "acks": "all"}
    producer = Producer(_settings(servers, **settings))
    for number, value in enumerate(values):
        producer.produce(
            topic, value, str(number), on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == [None] * len(values), failures


def transact(servers: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    producer = Producer(_settings(servers, **{"transactional.id": topic}))
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(SECONDS_MAX)
    if commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


def consume(servers: str, topic: str, count: int, *, committed_only: bool = False) -> list[Row]:
    isolation = "read_committed" if committed_only else "read_uncommitted"
    consumer = Consumer(_settings(servers, **{"group.id": "-", "isolation.level": isolation}))
    known = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in known])
    try:
        return _take(consumer, count, is_member=False)
    finally:
        consumer.close()


def consume_in_group(servers: str, topic: str, group: str, count: int) -> list[Row]:
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(_settings(servers, **settings))
    consumer.subscribe([topic])
    try:
        return _take(consumer, count, is_member=True)
    finally:
        consumer.close()


def _take(consumer: Consumer, count: int, *, is_member: bool) -> list[Row]:
    rows: list[Row] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} records came"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        if is_member:
            consumer.commit(message, asynchronous=False)
        rows.append(_row(message))
    return rows


def _row(message: Message) -> Row:
    return Row(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
    )


def offset_for_time(servers: str, topic: str, partition: int, timestamp: int) -> int:
    consumer = Consumer(_settings(servers, **{"group.id": "-"}))
    try:
        (found,) = consumer.offsets_for_times(
            [TopicPartition(topic, partition, timestamp)], timeout=SECONDS_MAX
        )
    finally:
        consumer.close()
    return found.offset
