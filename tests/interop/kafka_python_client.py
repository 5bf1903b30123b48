"""kafka-python: pure Python, blocking."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from operations import SECONDS_MAX, Row, Unsupported

name = "kafka-python"
version = version(name)


def _admin(servers: str) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=servers)


def create_topic(servers: str, topic: str, partitions: int) -> None:
    admin = _admin(servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        admin.close()


def delete_topic(servers: str, topic: str) -> None:
    admin = _admin(servers)
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()


def list_topics(servers: str) -> set[str]:
    admin = _admin(servers)
    try:
        return set(admin.list_topics())
    finally:
        admin.close()


def produce(
    servers: str, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
) -> None:
    try:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
        )
    except RuntimeError as error:
        # Its codecs are packages of their own.
        if "Libraries for" in str(error):
            raise Unsupported(str(error)) from None
        raise
    try:
        sent = [
            producer.send(topic, value, key=b"%d" % number) for number, value in enumerate(values)
        ]
        for future in sent:
            future.get(SECONDS_MAX)
    finally:
        producer.close(SECONDS_MAX)


def transact(servers: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=topic)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for future in [producer.send(topic, value) for value in values]:
            future.get(SECONDS_MAX)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close(SECONDS_MAX)


def consume(servers: str, topic: str, count: int, *, committed_only: bool = False) -> list[Row]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=None,
        isolation_level="read_committed" if committed_only else "read_uncommitted",
    )
    try:
        found = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(found)
        consumer.seek_to_beginning(*found)
        return _take(consumer, count)
    finally:
        consumer.close()


def consume_in_group(servers: str, topic: str, group: str, count: int) -> list[Row]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    )
    try:
        return _take(consumer, count, is_member=True)
    finally:
        consumer.close()


def _take(consumer: KafkaConsumer, count: int, *, is_member: bool = False) -> list[Row]:
    rows: list[Row] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} records came"
        for messages in consumer.poll(timeout_ms=1000).values():
            rows += [
                Row(each.partition, each.offset, each.key, each.value, each.timestamp)
                for each in messages
            ]
        if is_member:
            consumer.commit()
    return rows


def offset_for_time(servers: str, topic: str, partition: int, timestamp: int) -> int:
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    try:
        place = TopicPartition(topic, partition)
        return int(consumer.offsets_for_times({place: timestamp})[place].offset)
    finally:
        consumer.close()
