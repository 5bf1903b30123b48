"""aiokafka: asyncio. One loop for the client, run whenever it is asked for something."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from client import LARGE_BYTES_MAX, SECONDS_MAX, Client, Record, Row, Unsupported

Result = TypeVar("Result")


def set_up() -> str:
    return ""


class AiokafkaClient(Client):
    name = "aiokafka"
    version = version(name)
    lacks = frozenset(
        {
            "delete_group",
            "alter_group_offset",
            "delete_group_offset",
            "list_transactions",
            "producer_states",
            "elect_leader",
            "list_reassignments",
            "features",
            "quota",
            "alter_quota",
            "log_directory_bytes",
        }
    )

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._loop = asyncio.new_event_loop()
        self._admin = self._in_loop(AIOKafkaAdminClient, bootstrap_servers=servers)
        self._run(self._admin.start())

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.close()

    def _run(self, work: Coroutine[None, None, Result]) -> Result:
        return self._loop.run_until_complete(asyncio.wait_for(work, SECONDS_MAX))

    def _in_loop(self, make: Any, *arguments: object, **settings: object) -> Any:
        """Its objects want to be made while the loop runs."""

        async def making() -> Any:
            return make(*arguments, **settings)

        return self._run(making())

    # ---- records

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(
                bootstrap_servers=self.servers,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks=acks if acks == "all" else int(acks),
                max_request_size=LARGE_BYTES_MAX,
            ) as producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        record.timestamp,
                        list(record.headers),
                    )
                    for record in records
                ]
                await asyncio.gather(*sent)

        self._run(work())

    def consume(self, topic: str, count: int, committed_only: bool = False) -> list[Row]:
        async def work() -> list[Row]:
            async with AIOKafkaConsumer(
                topic,
                bootstrap_servers=self.servers,
                group_id=None,
                auto_offset_reset="earliest",
                isolation_level="read_committed" if committed_only else "read_uncommitted",
            ) as consumer:
                return [_row(await consumer.getone()) for _ in range(count)]

        return self._run(work())

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int:
        async def work() -> int:
            place = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=None) as consumer:
                return int((await consumer.offsets_for_times({place: timestamp}))[place].offset)

        return self._run(work())

    def list_offsets(self, topic: str, partition: int) -> list[int]:
        async def work() -> list[int]:
            place = TopicPartition(topic, partition)
            async with AIOKafkaConsumer(bootstrap_servers=self.servers, group_id=None) as consumer:
                first, end = consumer.beginning_offsets, consumer.end_offsets
                return [(await ask([place]))[place] for ask in (first, end)]

        return self._run(work())

    def member(
        self,
        group: str,
        topics: Sequence[str],
        pattern: str | None = None,
        protocol: str = "classic",
        instance: str | None = None,
    ) -> _Member:
        if protocol != "classic":
            raise Unsupported("aiokafka has the classic protocol only, all at once")
        consumer = self._in_loop(
            AIOKafkaConsumer,
            bootstrap_servers=self.servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            metadata_max_age_ms=500,
        )
        return _Member(self._run, consumer, topics, pattern)

    def transactor(self, name: str) -> _Transactor:
        producer = self._in_loop(
            AIOKafkaProducer, bootstrap_servers=self.servers, transactional_id=name
        )
        return _Transactor(self._run, producer)

    # ---- administration

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=config)
        self._run(self._admin.create_topics([new]))

    def delete_topic(self, topic: str) -> None:
        self._run(self._admin.delete_topics([topic]))

    def list_topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def describe_topic(self, topic: str) -> int:
        (found,) = self._run(self._admin.describe_topics([topic]))
        return len(found["partitions"])

    def create_partitions(self, topic: str, count: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(count)}))

    def topic_config(self, topic: str) -> dict[str, str]:
        return self._config(ConfigResourceType.TOPIC, topic)

    def broker_config(self) -> dict[str, str]:
        return self._config(ConfigResourceType.BROKER, "1")

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, str]:
        (found,) = self._run(self._admin.describe_configs([ConfigResource(kind, name)]))
        return {entry[0]: entry[1] for entry in found.resources[0][4]}

    def alter_topic_config(self, topic: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: value})
        self._run(self._admin.alter_configs([resource]))

    def describe_cluster(self) -> list[int]:
        found = self._run(self._admin.describe_cluster())
        return [each["node_id"] for each in found["brokers"]]

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        found = self._run(self._admin.delete_records({place: RecordsToDelete(before)}))
        return int(found[place])

    def list_groups(self) -> list[str]:
        return [name for name, _ in self._run(self._admin.list_consumer_groups())]

    def describe_group(self, group: str) -> tuple[str, int]:
        (found,) = self._run(self._admin.describe_consumer_groups([group]))
        return found.groups[0][2], len(found.groups[0][5])

    def group_offsets(self, group: str) -> list[tuple[str, int, int]]:
        found = self._run(self._admin.list_consumer_group_offsets(group))
        return [(place.topic, place.partition, each.offset) for place, each in found.items()]


class _Member:
    def __init__(
        self, run: Any, consumer: AIOKafkaConsumer, topics: Sequence[str], pattern: str | None
    ) -> None:
        self._run = run
        self.consumer = consumer
        self._starting: asyncio.Task[None] | None = None
        if pattern is not None:
            consumer.subscribe(pattern=re.compile(pattern).pattern)
        else:
            consumer.subscribe(topics)

    def poll(self) -> list[Row]:
        return self._run(self._poll())  # type: ignore[no-any-return]

    async def _poll(self) -> list[Row]:
        # Its start waits for the group to settle, which other members may have to be polled for.
        if self._starting is None:
            self._starting = asyncio.ensure_future(self.consumer.start())
        await asyncio.wait([self._starting], timeout=0.1)
        if not self._starting.done():
            return []
        self._starting.result()
        found = await self.consumer.getmany(timeout_ms=100)
        return [_row(each) for messages in found.values() for each in messages]

    def assignment(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def commit(self) -> None:
        self._run(self.consumer.commit())

    def close(self) -> None:
        self._run(self.consumer.stop())


class _Transactor:
    def __init__(self, run: Any, producer: AIOKafkaProducer) -> None:
        self._run = run
        self._producer = producer
        run(producer.start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        async def work() -> None:
            for value in values:
                await self._producer.send_and_wait(topic, value, partition=0)

        self._run(work())

    def send_offsets(self, member: _Member) -> None:
        async def work() -> None:
            consumer = member.consumer
            offsets = {place: await consumer.position(place) for place in consumer.assignment()}
            await self._producer.send_offsets_to_transaction(offsets, consumer._group_id)

        self._run(work())

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


def _row(each: Any) -> Row:
    return Row(
        each.topic, each.partition, each.offset, each.key, each.value, each.headers, each.timestamp
    )
