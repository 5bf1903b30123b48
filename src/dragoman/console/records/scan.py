"""What partitions hold between two offsets, in slices that each fit into a turn of the loop.

Only committed records are read. Batches are decoded record by record, so that a large one takes
several slices, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, NamedTuple

from dragoman.client.kafka import (
    EARLIEST,
    Fetched,
    FetchFrom,
    KafkaClient,
    OffsetRangeError,
    TopicPartition,
    VisibleBatches,
)
from dragoman.errors import OversizedBatchError
from dragoman.limits import (
    CONSOLE_FETCH_BYTES,
    CONSOLE_FETCH_PARTITION_BYTES,
    CONSOLE_SLICE_BYTES,
    CONSOLE_SLICE_RECORDS,
    EXPANDED_BATCH_BYTES_MAX,
)
from dragoman.log.batch import Record, iterate_records

#: What a header weighs beside its name and value.
_HEADER_BYTES: Final = 16


class Turns:
    """All scans of a console share one: a single slice is worked on in a turn of the loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Returns in a turn that belongs to the caller, until it waits for anything."""
        async with self._lock:
            await asyncio.sleep(0)


class Slicing:
    """Says where slices of records end."""

    def __init__(self) -> None:
        self._records_left = CONSOLE_SLICE_RECORDS
        self._bytes_left = CONSOLE_SLICE_BYTES

    def ends_with(self, record: Record) -> bool:
        """Whether a slice ends with this record, which is the next one."""
        self._records_left -= 1
        self._bytes_left -= len(record.value or b"") + len(record.key or b"")
        for name, value in record.headers:
            self._bytes_left -= len(name) + len(value or b"") + _HEADER_BYTES
        if self._records_left > 0 and self._bytes_left > 0:
            return False
        self._records_left = CONSOLE_SLICE_RECORDS
        self._bytes_left = CONSOLE_SLICE_BYTES
        return True


class Slice(NamedTuple):
    partition: int
    records: list[Record]


class Scan:
    """`positions` has the next offset of each partition. Who leaves a slice before its end sets the
    position of its partition back.
    """

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        turns: Turns,
    ) -> None:
        self._client = client
        self._topic = topic
        self._ends = dict(ends)
        self._turns = turns
        self.positions = dict(starts)
        #: Bytes of the batches that were read.
        self.bytes = 0
        #: Offsets that were removed before they were read, or could not be expanded.
        self.skipped = 0

    @property
    def is_done(self) -> bool:
        return all(self.positions[each] >= end for each, end in self._ends.items())

    async def slices(self) -> AsyncIterator[Slice]:
        """Slices to the ends; empty ones where nodes have sent nothing that can be seen.

        Raises what the client raises.
        """
        while not self.is_done:
            for where, fetched in (await self._fetch()).items():
                self._rotate(where.partition)
                for found in sliced(where.partition, fetched, self):
                    await self._turns.next()
                    yield found

    async def _fetch(self) -> dict[TopicPartition, Fetched]:
        wanted = {
            TopicPartition(self._topic, partition): FetchFrom(offset, CONSOLE_FETCH_PARTITION_BYTES)
            for partition, offset in self.positions.items()
            if offset < self._ends[partition]
        }
        try:
            return await self._client.fetch(wanted, max_bytes=CONSOLE_FETCH_BYTES)
        except OffsetRangeError:
            if not await self._skip_removed(list(wanted)):
                raise
            return {}

    async def _skip_removed(self, wanted: list[TopicPartition]) -> bool:
        """Go to the first offsets that are still there. Returns whether that changes anything."""
        first = await self._client.list_offsets(dict.fromkeys(wanted, EARLIEST))
        has_moved = False
        for where, found in first.items():
            position = self.positions[where.partition]
            target = min(found.offset, self._ends[where.partition])
            if target > position:
                self.skipped += target - position
                self.positions[where.partition] = target
                has_moved = True
        return has_moved

    def _rotate(self, partition: int) -> None:
        # A node fills its reply in the order of the request: the others come first next time.
        self.positions[partition] = self.positions.pop(partition)

    def end_of(self, partition: int) -> int:
        return self._ends[partition]


def sliced(partition: int, fetched: Fetched, scan: Scan) -> Iterator[Slice]:
    """The visible records of a reply; at least one slice. Moves the scan's position, and counts.

    Raises `DecodeError`.
    """
    start, end = scan.positions[partition], scan.end_of(partition)
    walk = VisibleBatches(fetched.records, fetched.aborted, start)
    counted = 0
    for header, batch in walk:
        counted += header.size
        scan.bytes += header.size
        kept: list[Record] = []
        slicing = Slicing()
        try:
            for record in iterate_records(batch, header, EXPANDED_BATCH_BYTES_MAX):
                if not start <= record.offset < end:
                    continue
                kept.append(record)
                if slicing.ends_with(record):
                    scan.positions[partition] = record.offset + 1
                    yield Slice(partition, kept)
                    kept = []
        except OversizedBatchError:
            scan.skipped += header.last_offset + 1 - max(start, header.base_offset)
        scan.positions[partition] = min(header.last_offset + 1, end)
        if kept:
            yield Slice(partition, kept)
    scan.bytes += len(fetched.records) - counted
    scan.positions[partition] = max(min(walk.next_offset, end), scan.positions[partition])
    yield Slice(partition, [])
