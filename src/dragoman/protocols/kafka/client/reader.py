"""Reads decoded records of partitions in offset order, without a group.

One fetch per leader is in flight, so an idle broker does not delay a busy one. The next fetch is
sent as soon as the reply arrives, before its records are consumed, so the fetch options bound the
memory per leader. Partitions that had data move to the end of the request, because a broker fills
its reply in the order of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Self

from dragoman.client_core.errors import ClientError
from dragoman.errors import DecodeError
from dragoman.limits import KAFKA_CLIENT_FETCH_PARTITION_BYTES
from dragoman.log.isolation import visible_records
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Cluster
from dragoman.protocols.kafka.client.fetch import FetchOptions, fetch
from dragoman.protocols.kafka.client.values import (
    ConsumedRecord,
    Fetched,
    FetchFrom,
    TopicPartition,
)


class _Pending(NamedTuple):
    """A fetch in flight: its partitions, and the leader if known."""

    broker: Broker | None
    requested: frozenset[TopicPartition]


class Reader:
    """Made by `KafkaClient.reader`. Owned by one event loop and used by one task at a time."""

    def __init__(
        self,
        cluster: Cluster,
        starts: Mapping[TopicPartition, int],
        *,
        until: Mapping[TopicPartition, int],
        options: FetchOptions,
        partition_bytes: int = KAFKA_CLIENT_FETCH_PARTITION_BYTES,
    ) -> None:
        self._cluster = cluster
        self._positions = dict(starts)
        self._until = dict(until)
        self._options = options
        self._partition_bytes = partition_bytes
        self._pending: dict[asyncio.Task[dict[TopicPartition, Fetched]], _Pending] = {}
        #: Partitions of the fetches in flight.
        self._requested: set[TopicPartition] = set()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, after all returned records."""
        return dict(self._positions)

    async def next_records(self) -> list[ConsumedRecord]:
        """The next records, at least one; empty when every partition is at its end.

        Raises `OffsetRangeError` when a position is outside the log, and `DecodeError` for a batch
        that fails its checksum.
        """
        while True:
            await self._ask()
            if not self._pending:
                return []
            done, _ = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
            found: list[ConsumedRecord] = []
            for task in done:
                self._requested -= self._pending.pop(task).requested
                found += self._take(task)
            if found:
                await self._ask()
                return found

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        while records := await self.next_records():
            for record in records:
                yield record

    async def close(self) -> None:
        pending, self._pending = list(self._pending), {}
        self._requested.clear()
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- fetching

    def _is_at_end(self, where: TopicPartition) -> bool:
        end = self._until.get(where)
        return end is not None and self._positions[where] >= end

    async def _ask(self) -> None:
        """Start a fetch at every leader that has none in flight."""
        groups: dict[Broker | None, dict[TopicPartition, FetchFrom]] = {}
        for where, position in list(self._positions.items()):
            if where not in self._requested and not self._is_at_end(where):
                wanted = FetchFrom(position, self._partition_bytes)
                groups.setdefault(await self._leader(where), {})[where] = wanted
        busy = {each.broker for each in self._pending.values()}
        for broker, wanted_parts in groups.items():
            if broker in busy:
                continue
            self._requested |= wanted_parts.keys()
            task = asyncio.create_task(fetch(self._cluster, wanted_parts, self._options))
            self._pending[task] = _Pending(broker, frozenset(wanted_parts))

    async def _leader(self, where: TopicPartition) -> Broker | None:
        try:
            return (await self._cluster.leader(where)).broker
        except ClientError as error:
            if not error.retriable:
                raise
            # The fetch looks the leader up, with retries.
            self._cluster.forget(error)
            return None

    def _take(self, task: asyncio.Task[dict[TopicPartition, Fetched]]) -> list[ConsumedRecord]:
        found: list[ConsumedRecord] = []
        for where, fetched in task.result().items():
            if len(fetched.records):
                found += self._decode(where, fetched)
        return found

    def _decode(self, where: TopicPartition, fetched: Fetched) -> list[ConsumedRecord]:
        # Removed and added again: this moves the partition to the end of the next request.
        start = self._positions.pop(where)
        self._positions[where] = start
        try:
            records, next_offset = visible_records(fetched.records, fetched.aborted, start)
        except DecodeError as error:
            raise DecodeError(f"{where} from offset {start}: {error}") from error
        self._positions[where] = next_offset
        end = self._until.get(where)
        topic, partition = where
        return [
            ConsumedRecord(
                topic,
                partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
            if end is None or record.offset < end
        ]
