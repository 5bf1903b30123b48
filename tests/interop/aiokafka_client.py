"""aiokafka: asyncio. Every call runs a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from operations import SECONDS_MAX, Row

name = "aiokafka"
version = version(name)
Result = TypeVar("Result")


def _run(work: Coroutine[None, None, Result]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(SECONDS_MAX):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def _admin(servers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def create_topic(servers: str, topic: str, partitions: int) -> None:
    async def work() -> None:
        async with _admin(servers) as admin:
            await admin.create_topics([NewTopic(topic, partitions, 1)])

    _run(work())


def delete_topic(servers: str, topic: str) -> None:
    async def work() -> None:
        async with _admin(servers) as admin:
            await admin.delete_topics([topic])

    _run(work())


def list_topics(servers: str) -> set[str]:
    async def work() -> set[str]:
        async with _admin(servers) as admin:
            return set(await admin.list_topics())

    return _run(work())


def produce(
    servers: str, topic: str, values: Sequence[bytes], *, codec: str, idempotent: bool
) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
        ) as producer:
            sent = [
                await producer.send(topic, value, key=b"%d" % number)
                for number, value in enumerate(values)
            ]
            await asyncio.gather(*sent)

    _run(work())


def transact(servers: str, topic: str, values: Sequence[bytes], *, commit: bool) -> None:
    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic) as producer:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value)
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()

    _run(work())


def consume(servers: str, topic: str, count: int, *, committed_only: bool = False) -> list[Row]:
    async def work() -> list[Row]:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level=isolation,
        ) as consumer:
            return [await _next(consumer) for _ in range(count)]

    return _run(work())


def consume_in_group(servers: str, topic: str, group: str, count: int) -> list[Row]:
    async def work() -> list[Row]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            rows = []
            for _ in range(count):
                row = await _next(consumer)
                rows.append(row)
                await consumer.commit({TopicPartition(topic, row.partition): row.offset + 1})
            return rows

    return _run(work())


async def _next(consumer: AIOKafkaConsumer) -> Row:
    each = await consumer.getone()
    return Row(each.partition, each.offset, each.key, each.value, each.timestamp)


def offset_for_time(servers: str, topic: str, partition: int, timestamp: int) -> int:
    async def work() -> int:
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=None) as consumer:
            place = TopicPartition(topic, partition)
            return int((await consumer.offsets_for_times({place: timestamp}))[place].offset)

    return _run(work())
