"""kafka-python: pure Python, blocking."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from importlib.metadata import version
from typing import Any

from client import LARGE_BYTES_MAX, SECONDS_MAX, Client, Record, Row, Unsupported
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import for_code


def set_up() -> str:
    return ""


class KafkaPythonClient(Client):
    name = "kafka-python"
    version = version(name)
    lacks = frozenset({"quota", "alter_quota"})
    _last_admin: KafkaAdminClient | None = None

    @property
    def _admin(self) -> KafkaAdminClient:
        """A new one for every call: one that has seen the broker go fails at once, without a try,
        for as long as it waits before it connects again.
        """
        self.close()
        self._last_admin = KafkaAdminClient(bootstrap_servers=self.servers)
        return self._last_admin

    def close(self) -> None:
        if self._last_admin is not None:
            self._last_admin.close()

    # ---- records

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        with closing(
            KafkaProducer(
                bootstrap_servers=self.servers,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks=acks if acks == "all" else int(acks),
                max_request_size=LARGE_BYTES_MAX,
            )
        ) as producer:
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp,
                )
                for record in records
            ]
            for future in sent:
                future.get(SECONDS_MAX)

    def consume(self, topic: str, count: int, committed_only: bool = False) -> list[Row]:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        with closing(self._consumer(group_id=None, isolation_level=isolation)) as consumer:
            found = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
            consumer.assign(found)
            consumer.seek_to_beginning(*found)
            rows: list[Row] = []
            deadline = time.monotonic() + SECONDS_MAX
            while len(rows) < count:
                assert time.monotonic() < deadline, f"{len(rows)} of {count} records came"
                rows += _take(consumer, 1000)
            return rows

    def _consumer(self, **settings: object) -> KafkaConsumer:
        return KafkaConsumer(bootstrap_servers=self.servers, **settings)

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        with closing(self._consumer(group_id=None)) as consumer:
            return int(consumer.offsets_for_times({place: timestamp})[place].offset)

    def member(
        self,
        group: str,
        topics: Sequence[str],
        pattern: str | None = None,
        protocol: str = "classic",
        instance: str | None = None,
    ) -> _Member:
        if protocol == "consumer":
            raise Unsupported("kafka-python has the classic protocol only")
        settings: dict[str, object] = {
            "group_id": group,
            "group_instance_id": instance,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
        }
        if pattern is not None:
            settings["metadata_max_age_ms"] = 500
        if protocol == "cooperative":
            settings["partition_assignment_strategy"] = [CooperativeStickyAssignor]
        return _Member(self._consumer(**settings), topics, pattern)

    def transactor(self, name: str) -> _Transactor:
        return _Transactor(KafkaProducer(bootstrap_servers=self.servers, transactional_id=name))

    # ---- administration

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def list_topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe_topic(self, topic: str) -> int:
        (found,) = self._admin.describe_topics([topic])
        return len(found["partitions"])

    def create_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions({topic: count})

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(ConfigResourceType.TOPIC, topic)

    def broker_config(self) -> dict[str, str]:
        return self._config(ConfigResourceType.BROKER, "1")

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, str]:
        resource = ConfigResource(kind, name)
        found = self._admin.describe_configs([resource], config_filter="all")
        return {key: each["value"] for key, each in found[kind.name.lower()][name].items()}

    def alter_topic_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        self._admin.alter_configs([resource])

    def describe_cluster(self) -> list[int]:
        return [each["broker_id"] for each in self._admin.describe_cluster()["brokers"]]

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return int(self._admin.delete_records({place: before})[place]["low_watermark"])

    def list_offsets(self, topic: str, partition: int) -> list[int]:
        place = TopicPartition(topic, partition)
        return [
            self._admin.list_partition_offsets({place: spec})[place].offset
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        ]

    def log_directory_bytes(self, topic: str) -> int:
        return sum(
            partition["partition_size"]
            for broker in self._admin.describe_log_dirs()
            for directory in broker["log_dirs"]
            for each in directory["topics"]
            for partition in each["partitions"]
            if each["name"] == topic
        )

    def elect_leader(self, topic: str, partition: int) -> str:
        response = self._admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)
        (found,) = response.replica_election_results[0].partition_result
        return str(for_code(found.error_code).__name__) if found.error_code else ""

    def list_reassignments(self) -> int:
        return len(self._admin.list_partition_reassignments())

    def features(self) -> dict[str, int]:
        found = self._admin.describe_features()
        return {name: each["finalized"][1] for name, each in found.items()}

    # ---- groups and transactions

    def list_groups(self) -> list[str]:
        return [each["group_id"] for each in self._admin.list_groups()]

    def describe_group(self, group: str) -> tuple[str, int]:
        found = self._admin.describe_groups([group])[group]
        return found["group_state"], len(found["members"])

    def delete_group(self, group: str) -> None:
        told = self._admin.delete_groups([group])[group]
        if told != "OK":
            raise RuntimeError(told)

    def group_offsets(self, group: str) -> list[tuple[str, int, int]]:
        found = self._admin.list_group_offsets({group: None})[group]
        return [(place.topic, place.partition, each.offset) for place, each in found.items()]

    def alter_group_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = TopicPartition(topic, partition)
        self._admin.alter_group_offsets(group, {place: OffsetAndMetadata(offset, "", -1)})

    def delete_group_offset(self, group: str, topic: str, partition: int) -> None:
        self._admin.delete_group_offsets(group, [TopicPartition(topic, partition)])

    def list_transactions(self) -> dict[str, str]:
        listed = [each for of_one in self._admin.list_transactions().values() for each in of_one]
        return {each.transactional_id: each.state.value for each in listed}

    def producer_states(self, topic: str, partition: int) -> list[bool]:
        place = TopicPartition(topic, partition)
        found = self._admin.describe_producers([place])[place].active_producers
        return [each.current_transaction_start_offset >= 0 for each in found]


class _Member:
    """Polled in a thread of its own: the library finishes a join within one poll or not at all,
    so that two members polled in turn would wait for each other.
    """

    def __init__(self, consumer: KafkaConsumer, topics: Sequence[str], pattern: str | None) -> None:
        self.consumer = consumer
        self._thread = ThreadPoolExecutor(1)
        self._polling: Future[list[Row]] | None = None
        consumer.subscribe(topics=topics, pattern=pattern)

    def poll(self) -> list[Row]:
        if self._polling is None:
            self._polling = self._thread.submit(_take, self.consumer, 1000)
        try:
            rows = self._polling.result(0.1)
        except TimeoutError:
            return []
        self._polling = None
        return rows

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._thread.submit(self.consumer.commit).result(SECONDS_MAX)

    def close(self) -> None:
        self._thread.shutdown()
        self.consumer.close()


class _Transactor:
    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        for future in [self._producer.send(topic, value, partition=0) for value in values]:
            future.get(SECONDS_MAX)

    def send_offsets(self, member: _Member) -> None:
        consumer = member.consumer
        offsets: dict[TopicPartition, Any] = {
            place: OffsetAndMetadata(consumer.position(place), "", -1)
            for place in consumer.assignment()
        }
        self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(SECONDS_MAX)


def _take(consumer: KafkaConsumer, timeout_ms: int) -> list[Row]:
    return [
        Row(
            each.topic,
            each.partition,
            each.offset,
            each.key,
            each.value,
            each.headers,
            each.timestamp,
        )
        for messages in consumer.poll(timeout_ms=timeout_ms).values()
        for each in messages
    ]
