"""Reads whole batches of partitions, with one request at a time to each of their leaders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dragoman.cli.load.sender import PAUSE_S
from dragoman.cli.load.tally import Tally
from dragoman.client.kafka import FetchFrom, Isolation, KafkaClient, TopicPartition
from dragoman.errors import DecodeError, DragomanError
from dragoman.log.batch import batches, crc_matches

_WAIT_MS: Final = 500


class Piece(NamedTuple):
    """What a request has returned of a partition."""

    where: TopicPartition
    #: The offset after its last record.
    end: int
    records: int
    size: int
    asked_at: float
    read_at: float


class Fetcher:
    def __init__(
        self,
        client: KafkaClient,
        starts: Mapping[TopicPartition, int],
        tally: Tally,
        on_read: Callable[[Piece], None],
        *,
        partition_bytes: int,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """With `ends`, a partition that was read to its end is read again from its start."""
        self._client = client
        self._starts = starts
        self._positions = dict(starts)
        self._tally = tally
        self._on_read = on_read
        self._partition_bytes = partition_bytes
        self._ends = ends or {}

    async def run(self) -> None:
        """Until it is cancelled."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for where in self._starts:
            leader = (await self._client.topic(where.topic)).partitions[where.partition].leader_id
            by_leader.setdefault(leader, []).append(where)
        async with asyncio.TaskGroup() as tasks:
            for partitions in by_leader.values():
                tasks.create_task(self._follow(partitions))

    async def _follow(self, partitions: list[TopicPartition]) -> None:
        while True:
            asked_at = time.monotonic()
            wanted = {
                where: FetchFrom(self._positions[where], self._partition_bytes)
                for where in partitions
            }
            try:
                found = await self._client.fetch(
                    wanted, max_wait_ms=_WAIT_MS, isolation=Isolation.READ_UNCOMMITTED
                )
                read_at = time.monotonic()
                for where, fetched in found.items():
                    if len(fetched.records):
                        self._take(where, fetched.records, asked_at, read_at)
                        # A broker fills its reply in the order of the request.
                        partitions.remove(where)
                        partitions.append(where)
            except DragomanError as error:
                self._tally.add_error(error)
                await asyncio.sleep(PAUSE_S)

    def _take(
        self, where: TopicPartition, data: memoryview, asked_at: float, read_at: float
    ) -> None:
        records = 0
        position = self._positions[where]
        for header, batch in batches(data):
            if not crc_matches(batch, header):
                raise DecodeError(f"{where}: batch {header.base_offset} fails its checksum")
            position = header.last_offset + 1
            if not header.is_control:
                records += header.record_count
        is_at_end = position >= self._ends.get(where, position + 1)
        self._positions[where] = self._starts[where] if is_at_end else position
        self._on_read(Piece(where, position, records, len(data), asked_at, read_at))
