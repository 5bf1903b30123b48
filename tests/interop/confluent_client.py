"""confluent-kafka: librdkafka behind a Python face."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import version
from typing import Any

from client import LARGE_BYTES_MAX, SECONDS_MAX, Client, Record, Row
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)


def set_up() -> str:
    return ""


class ConfluentClient(Client):
    name = "confluent-kafka"
    version = version(name)
    lacks = frozenset(
        {
            "delete_group_offset",
            "list_transactions",
            "producer_states",
            "list_reassignments",
            "features",
            "quota",
            "alter_quota",
            "log_directory_bytes",
        }
    )

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._admin = AdminClient(self._settings())

    def _settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.servers, "log_level": 0, **more}

    # ---- records

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        failures: list[object] = []
        settings = {
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "acks": acks,
            "message.max.bytes": LARGE_BYTES_MAX,
        }
        producer = Producer(self._settings(**settings))
        for record in records:
            # It tells apart what is left out from what is None.
            placed = {"partition": record.partition, "timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=lambda error, _: failures.append(error),
                **{name: value for name, value in placed.items() if value is not None},
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert failures == [None] * len(records), failures

    def consume(self, topic: str, count: int, committed_only: bool = False) -> list[Row]:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        settings = {"group.id": "-", "isolation.level": isolation}
        consumer = Consumer(self._settings(**settings))
        known = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions
        first = consumer.get_watermark_offsets
        consumer.assign(
            [TopicPartition(topic, at, first(TopicPartition(topic, at))[0]) for at in known]
        )
        rows: list[Row] = []
        deadline = time.monotonic() + SECONDS_MAX
        try:
            while len(rows) < count:
                assert time.monotonic() < deadline, f"{len(rows)} of {count} records came"
                rows += _take(consumer, 1.0)
            return rows
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        consumer = Consumer(self._settings(**{"group.id": "-"}))
        try:
            asked = [TopicPartition(topic, partition, timestamp)]
            (found,) = consumer.offsets_for_times(asked, timeout=SECONDS_MAX)
        finally:
            consumer.close()
        return int(found.offset)

    def member(
        self,
        group: str,
        topics: Sequence[str],
        pattern: str | None = None,
        protocol: str = "classic",
        instance: str | None = None,
    ) -> _Member:
        settings: dict[str, object] = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # A pattern of the first protocol is matched by the client when it asks for metadata.
            "topic.metadata.refresh.interval.ms": 500,
        }
        if protocol == "consumer":
            settings["group.protocol"] = "consumer"
        else:
            settings["heartbeat.interval.ms"] = 100
        if protocol == "cooperative":
            settings["partition.assignment.strategy"] = "cooperative-sticky"
        if instance is not None:
            settings["group.instance.id"] = instance
        return _Member(Consumer(self._settings(**settings)), [pattern] if pattern else topics)

    def transactor(self, name: str) -> _Transactor:
        return _Transactor(Producer(self._settings(**{"transactional.id": name})))

    # ---- administration

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        _result(self._admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        _result(self._admin.delete_topics([topic]))

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=SECONDS_MAX).topics)

    def describe_topic(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, SECONDS_MAX).topics[topic].partitions)

    def create_partitions(self, topic: str, count: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, count)]))

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config("topic", topic)

    def broker_config(self) -> dict[str, str]:
        return self._config("broker", "1")

    def _config(self, kind: str, name: str) -> dict[str, str]:
        found = _result(self._admin.describe_configs([ConfigResource(kind, name)]))
        return {key: entry.value for key, entry in found.items()}

    def alter_topic_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        _result(self._admin.incremental_alter_configs([resource]))

    def describe_cluster(self) -> list[int]:
        return [node.id for node in self._admin.describe_cluster().result(SECONDS_MAX).nodes]

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        asked = [TopicPartition(topic, partition, before)]
        return int(_result(self._admin.delete_records(asked)).low_watermark)

    def list_offsets(self, topic: str, partition: int) -> list[int]:
        place = TopicPartition(topic, partition)
        specs = (OffsetSpec.earliest(), OffsetSpec.latest())
        return [_result(self._admin.list_offsets({place: spec})).offset for spec in specs]

    def elect_leader(self, topic: str, partition: int) -> str:
        place = TopicPartition(topic, partition)
        found = self._admin.elect_leaders(ElectionType.PREFERRED, [place]).result(SECONDS_MAX)
        return str(found[place].name()) if found[place] else ""

    def list_groups(self) -> list[str]:
        found = self._admin.list_consumer_groups().result(SECONDS_MAX)
        return [each.group_id for each in found.valid]

    def describe_group(self, group: str) -> tuple[str, int]:
        found = _result(self._admin.describe_consumer_groups([group]))
        return found.state.name, len(found.members)

    def delete_group(self, group: str) -> None:
        _result(self._admin.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> list[tuple[str, int, int]]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = _result(self._admin.list_consumer_group_offsets(asked))
        return [(each.topic, each.partition, each.offset) for each in found.topic_partitions]

    def alter_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition, offset)
        asked = [ConsumerGroupTopicPartitions(group, [place])]
        (altered,) = _result(self._admin.alter_consumer_group_offsets(asked)).topic_partitions
        assert altered.error is None, altered.error


class _Member:
    def __init__(self, consumer: Consumer, topics: Sequence[str]) -> None:
        self.consumer = consumer
        consumer.subscribe(list(topics))

    def poll(self) -> list[Row]:
        return _take(self.consumer, 0.1)

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class _Transactor:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        failures: list[object] = []
        for value in values:
            self._producer.produce(
                topic, value, partition=0, on_delivery=lambda error, _: failures.append(error)
            )
        assert self._producer.flush(SECONDS_MAX) == 0
        for failure in failures:
            if failure is not None:
                raise KafkaException(failure)

    def send_offsets(self, member: _Member) -> None:
        consumer = member.consumer
        read = consumer.position(consumer.assignment())
        self._producer.send_offsets_to_transaction(
            [each for each in read if each.offset >= 0],
            consumer.consumer_group_metadata(),
            SECONDS_MAX,
        )

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        """It has no such call: the object ends with its last use."""


def _take(consumer: Consumer, seconds: float) -> list[Row]:
    rows = []
    for message in consumer.consume(500, seconds):
        if message.error():
            raise KafkaException(message.error())
        rows.append(_row(message))
    return rows


def _row(message: Message) -> Row:
    return Row(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers() or [],
        message.timestamp()[1],
    )


def _result(futures: Mapping[object, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(SECONDS_MAX)
