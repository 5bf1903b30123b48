"""The contents of a partition's log, and reading them: from memory if recent, else from files.

`partition.py` explains the marks; it appends and truncates. Nothing here changes the log, but a
reader that finds damage records it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from dragoman.errors import CorruptionError, OffsetOutOfRangeError, OversizedBatchError
from dragoman.limits import EXPANDED_BATCH_BYTES_MAX
from dragoman.log.batch import BatchHeader, Record, batches
from dragoman.log.directory import DataDirectory
from dragoman.log.expansion import Expanded, Expansions
from dragoman.log.index import SparseIndex
from dragoman.log.manifest import Identity
from dragoman.log.producer_states import ProducerStates
from dragoman.log.segment import Run, Segment
from dragoman.log.segment_reader import (
    ReadResult,
    batches_of_range,
    index_for_reading,
    read_segment,
    refuse_damaged,
)
from dragoman.log.tail import Tail


class ReadableStore(Protocol):
    @property
    def directory(self) -> DataDirectory: ...

    @property
    def expansions(self) -> Expansions: ...


class ReadableLog:
    __slots__ = (
        "_bases",
        "_cleared_chunks",
        "active",
        "dirty",
        "high_watermark",
        "identity",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
        "stable_end",
        "store",
        "tail",
    )

    def __init__(self, store: ReadableStore, identity: Identity) -> None:
        self.store = store
        self.identity = identity
        self.segments: list[Segment] = []
        #: The base offsets of the segments, for bisection.
        self._bases: list[int] = []
        self.active: Segment | None = None
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.stable_end = 0
        self.high_watermark = 0
        self.producers: ProducerStates | None = None
        self.tail = Tail()
        #: Chunks that were cleared from the tail and that the node's ring still counts.
        self._cleared_chunks = 0
        #: Runs of journalled bytes that are not in the segment files yet.
        self.dirty: list[Run] = []

    def index_of(self, segment: Segment) -> SparseIndex:
        """The segment's index. Loaded if it is not in memory, rebuilt if it is missing or bad."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write dirty bytes to the segment files, if there is room on the disk."""
        raise NotImplementedError

    def note_damage(self, error: CorruptionError) -> None:
        """Record the offsets that a reader could not read."""
        raise NotImplementedError

    def describe(self) -> str:
        return f"{self.identity.topic}-{self.identity.partition}"

    # ---- marks and segments

    @property
    def last_stable_offset(self) -> int:
        """Offset below which no transaction is open; at most the high watermark."""
        if self.producers is not None:
            first = self.producers.first_unstable_offset()
            if first is not None and first < self.high_watermark:
                return first
        return self.high_watermark

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        active = self.active.size if self.active else 0
        return sum(segment.size for segment in self.segments) + active

    def all_segments(self) -> list[Segment]:
        return [*self.segments, self.active] if self.active else list(self.segments)

    def copy_end(self, offset: int) -> int:
        """End offset for a follower that has everything below `offset`.

        It may copy up to the stable end, and from memory also what is being synced. This node may
        lose the latter in a crash, but then it never again appends in the same epoch.
        """
        return self.tail.end if 0 <= self.tail.first_offset <= offset else self.stable_end

    def check_offset(self, offset: int) -> None:
        """Raises `OffsetOutOfRangeError` for an offset below the log's start or above its end."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.describe()}: offset {offset} is not in "
                f"{self.log_start_offset}..{self.log_end_offset}"
            )

    def segments_from(self, offset: int) -> Iterator[Segment]:
        """Segments that may hold the offset or later ones, in order."""
        start = max(0, bisect_right(self._bases, offset) - 1)
        for index in range(start, len(self.segments)):
            if self.segments[index].next_offset > offset:
                yield self.segments[index]
        if self.active is not None and self.active.size:
            yield self.active

    # ---- reading

    def read(self, offset: int, bytes_max: int, limit_offset: int) -> ReadResult:
        """Whole batches from the one that holds `offset`, all below `limit_offset`.

        Raises `OffsetOutOfRangeError`, or `CorruptionError` when the requested bytes are damaged.
        """
        self.check_offset(offset)
        if offset >= limit_offset:
            return ReadResult([], 0, offset)
        if 0 <= self.tail.first_offset <= offset:
            buffers, next_offset = self.tail.read(offset, limit_offset, bytes_max)
            return ReadResult(buffers, sum(map(len, buffers)), next_offset)
        for segment in self.segments_from(offset):
            try:
                result = read_segment(self, segment, offset, bytes_max, limit_offset)
            except CorruptionError as error:
                self.note_damage(error)
                refuse_damaged(segment, offset)
                raise
            if result is not None:
                return result
        return ReadResult([], 0, offset)

    def expanded(
        self, header: BatchHeader, batch: memoryview, bytes_max: int = EXPANDED_BATCH_BYTES_MAX
    ) -> Expanded:
        """The records of a batch of this partition. Those of a compressed batch are cached.

        Raises `DecodeError`, and `OversizedBatchError` when it expands to more than `bytes_max`.
        """
        return self.store.expansions.get(self.identity.partition_id, header, batch, bytes_max)

    def offset_for_time(self, timestamp: int, limit_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after the time, below the limit.

        For a batch that is too large to expand: its first offset and its latest timestamp.
        """
        for segment in self.all_segments():
            if segment.max_timestamp < timestamp or segment.next_offset <= self.log_start_offset:
                continue
            found = self._first_at_or_after(segment, timestamp, limit_offset)
            if found is not None:
                return found
        return None

    def _first_at_or_after(
        self, segment: Segment, timestamp: int, limit_offset: int
    ) -> tuple[int, int] | None:
        try:
            return self._look_for_time(segment, timestamp, limit_offset)
        except CorruptionError as error:
            self.note_damage(error)
            raise

    def _look_for_time(
        self, segment: Segment, timestamp: int, limit_offset: int
    ) -> tuple[int, int] | None:
        index = index_for_reading(self, segment)
        number = index.range_for_time(timestamp)
        while number is not None and number < index.range_count:
            for place, header, batch in batches_of_range(self, segment, number):
                if place.next_offset > limit_offset:
                    return None
                if header.is_control or header.record_timestamp < timestamp:
                    continue
                try:
                    found = self.expanded(header, batch).first_since(
                        timestamp, self.log_start_offset
                    )
                except OversizedBatchError:
                    found = (max(header.base_offset, self.log_start_offset), header.max_timestamp)
                if found is not None:
                    return found
            number += 1
        return None

    def latest_timestamp(self) -> int:
        """The latest timestamp of a record; -1 when no record has one."""
        return max((segment.max_timestamp for segment in self.all_segments()), default=-1)

    def iterate(self, offset: int, limit_offset: int) -> Iterator[Record]:
        """Decoded records without control batches, for internal topics and tools."""
        while offset < limit_offset:
            result = self.read(offset, 1 << 20, limit_offset)
            if not result.buffers:
                return
            for buffer in result.buffers:
                for header, batch in batches(memoryview(buffer)):
                    if header.is_control:
                        continue
                    yield from self.expanded(header, batch).records(offset)
            offset = result.next_offset

    # ---- recent batches in memory

    def evict_oldest(self) -> bool:
        """Forget the oldest chunk in memory. False when it cannot be written to its file."""
        if self._cleared_chunks:
            self._cleared_chunks -= 1
            return True
        if self.dirty and self.tail.first_offset >= self.dirty[0].base_offset:
            self.flush()
            if self.dirty:
                return False
        self.tail.drop_oldest()
        return True

    def clear_tail(self) -> None:
        self._cleared_chunks += self.tail.clear()
