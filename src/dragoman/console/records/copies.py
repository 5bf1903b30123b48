"""Records that a search finds, written to another topic.

Keys, values, headers and times are kept. A slice of the search is acknowledged before the next one
is read, so that what is reported as written is written, and a copy that fails or is stopped goes
on with the slice in which it was: records of that slice may then be written twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from dragoman.client.kafka import (
    Codec,
    KafkaClient,
    NewRecord,
    Producer,
    ProducerOptions,
    TopicInfo,
)
from dragoman.console.errors import ConsoleError
from dragoman.console.records.search import Line
from dragoman.console.records.values import Copied, Copy
from dragoman.log.batch import Record

_OPTIONS: Final = ProducerOptions(auto_create=False, codec=Codec.LZ4)


class TargetError(ConsoleError):
    code = "copy_target"


class Copying:
    def __init__(self, copy: Copy, producer: Producer | None) -> None:
        """Without a producer nothing is written."""
        self.limit: int | None = copy.limit
        self._to = copy.to
        self._keeps_partition = copy.partition == "same"
        self._producer = producer
        self._bytes = 0
        self._records = 0
        self._partitions: Counter[int] = Counter()

    async def add(self, found: list[tuple[int, Record]]) -> Iterable[Line]:
        if self._producer is not None:
            records = [self._new(*each) for each in found]
            for delivery in await self._producer.send_many(self._to, records):
                self._partitions[(await delivery).partition] += 1
        elif self._keeps_partition:
            self._partitions.update(partition for partition, _ in found)
        self._records += len(found)
        self._bytes += sum(_size(record) for _, record in found)
        return ()

    def first(self) -> Iterable[Line]:
        return ()

    def so_far(self) -> Iterable[Line]:
        partitions = dict(sorted(self._partitions.items()))
        return (Copied(records=self._records, bytes=self._bytes, partitions=partitions),)

    def _new(self, partition: int, record: Record) -> NewRecord:
        return NewRecord(
            key=record.key,
            value=record.value,
            headers=record.headers,
            # A record without a time gets that of its copy.
            timestamp=record.timestamp if record.timestamp >= 0 else None,
            partition=partition if self._keeps_partition else None,
        )


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


@asynccontextmanager
async def copying(
    client: KafkaClient, copy: Copy, partitions: Iterable[int]
) -> AsyncIterator[Copying]:
    """`partitions` are those that are read. Raises `TargetError`, and what the client raises."""
    if copy.to == copy.topic:
        raise TargetError("a topic is not copied into itself: name another one")
    target = await client.topic(copy.to)
    _check(copy, target, partitions)
    if copy.validate_only:
        yield Copying(copy, None)
        return
    async with client.producer(_OPTIONS) as producer:
        yield Copying(copy, producer)


def _check(copy: Copy, target: TopicInfo, partitions: Iterable[int]) -> None:
    if target.is_internal:
        raise TargetError(f"topic {target.name!r} is internal to the broker")
    missing = sorted(set(partitions) - target.partitions.keys())
    if copy.partition == "same" and missing:
        raise TargetError(
            f"topic {target.name!r} has {len(target.partitions)} partitions, and no {missing[0]}: "
            "let the keys choose, or add partitions to it"
        )
