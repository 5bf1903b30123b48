"""Kafka, which can express everything that `produce` and `consume` offer.

The command does not join a group, so several readers do not share its partitions, and the group
must have no members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from dragoman.cli.kafka_client import (
    DEFAULT_BOOTSTRAP,
    bounds_of,
    commit_offsets,
    kafka_client,
    offsets_at,
    refuse_live_group,
)
from dragoman.cli.positions import Bounds
from dragoman.cli.record_clients.session import (
    FOLLOWS_TO_OFFSET,
    Batch,
    Batches,
    OutgoingRecord,
    Plan,
    RecordClient,
    SizedFile,
    Target,
    TopicReader,
    TopicWriter,
)
from dragoman.cli.status import CommandError
from dragoman.client.kafka import (
    Codec,
    Isolation,
    KafkaClient,
    KafkaError,
    NewRecord,
    Producer,
    ProducerOptions,
    ResourceType,
    TopicPartition,
)

_ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "1": 1, "0": 0}


class _Writer:
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    @property
    def written_records(self) -> int:
        return self._producer.written_records

    async def write(self, records: Sequence[OutgoingRecord]) -> None:
        if self._producer.has_failed:
            await self._producer.flush()
        new = (
            NewRecord(
                key=each.key,
                value=each.value,
                headers=each.headers,
                partition=each.partition,
                timestamp=each.timestamp,
            )
            for each in records
        )
        await self._producer.send_many(self._topic, new)


@asynccontextmanager
async def _open_writer(target: Target) -> AsyncIterator[TopicWriter]:
    # Idempotence requires acknowledgement by all replicas.
    options = ProducerOptions(
        codec=Codec[target.codec.upper()],
        acks=_ACKS[target.acks],
        idempotent=target.acks == "all",
    )
    async with kafka_client(target.bootstrap, target.credentials, target.tls) as client:
        await client.topic(target.topic, auto_create=True)
        if target.largest is not None and target.codec == "none":
            await _check_size(client, target.topic, target.largest)
        async with client.producer(options) as producer:
            yield _Writer(producer, target.topic)


async def _check_size(client: KafkaClient, topic: str, largest: SizedFile) -> None:
    """Raises `CommandError` for a record that the topic is known not to take."""
    try:
        config = await client.describe_configs(ResourceType.TOPIC, topic)
    except KafkaError:
        # The user may not see the configuration. The broker checks the record itself.
        return
    values = {each.name: each.value for each in config}
    bytes_max = values.get("max.message.bytes") or ""
    if bytes_max.isdecimal() and largest.record_bytes > int(bytes_max):
        raise CommandError(
            f"{largest.path}: record of {largest.record_bytes} bytes, max.message.bytes of topic "
            f"{topic!r} is {bytes_max}",
            hint=f"`dragoman topic alter {topic} --set max.message.bytes=N` allows more",
        )


class _Reader(TopicReader):
    """The client reads all partitions concurrently, so there is one source."""

    def __init__(self, client: KafkaClient, plan: Plan, partition_count: int) -> None:
        super().__init__(plan, partition_count)
        self._client = client
        self._isolation = (
            Isolation.READ_COMMITTED if plan.is_committed_only else Isolation.READ_UNCOMMITTED
        )
        self._bounds: Bounds[TopicPartition] = Bounds({}, {})

    async def bounds(self) -> Bounds[int]:
        wanted = self._named(dict.fromkeys(self.partitions, 0))
        self._bounds = found = await bounds_of(self._client, wanted, self._isolation)
        return Bounds(_numbered(found.first), _numbered(found.end))

    async def offsets_at(self, time_ms: int) -> dict[int, int]:
        return _numbered(await offsets_at(self._client, time_ms, self._bounds.end))

    async def committed(self) -> dict[int, int]:
        await refuse_live_group(self._client, self.group)
        found = await self._client.committed_offsets(self.group, self._bounds.end)
        return _numbered({where: each.offset for where, each in found.items()})

    async def commit(self, offsets: Mapping[int, int]) -> None:
        await commit_offsets(self._client, self.group, self._named(offsets))

    async def sources(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Batches]:
        return [self._all(starts, ends)]

    async def _all(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Batches:
        async with self._client.reader(
            self._named(starts), until=self._named(ends), isolation=self._isolation
        ) as reader:
            is_over = False
            while not is_over:
                records = await reader.next_records()
                is_over = not records
                # Updated even after batches without records to print, such as transaction markers.
                positions = _numbered(reader.positions)
                moved = {each: to for each, to in positions.items() if to != starts[each]}
                yield Batch(records, moved)

    def _named(self, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
        topic = self.plan.topic
        return {TopicPartition(topic, each): offset for each, offset in offsets.items()}


def _numbered(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {where.partition: offset for where, offset in offsets.items()}


@asynccontextmanager
async def _open_reader(plan: Plan) -> AsyncIterator[TopicReader]:
    async with kafka_client(plan.bootstrap, plan.credentials, plan.tls) as client:
        count = len((await client.topic(plan.topic)).all_partitions())
        yield _Reader(client, plan, count)


CLIENT = RecordClient(
    name="kafka",
    title="Kafka",
    bootstrap=DEFAULT_BOOTSTRAP,
    # The options contradict each other, whatever the protocol.
    cannot_read=(msgspec.structs.replace(FOLLOWS_TO_OFFSET, is_by_protocol=False),),
    open_writer=_open_writer,
    open_reader=_open_reader,
)
