"""Sparse index of one segment: positions, timestamps and header checks of ranges of batches.

An entry stands for a *range* of back-to-back batches of at least `index.interval.bytes` (less at a
checkpoint, which closes the range it finds open). It keeps

- the first batch's offset, relative to the segment's base, and its byte position;
- the highest timestamp seen in the segment up to the end of the range, so that entries ascend in
  time as well as in offset and both can be searched by bisection;
- a check: CRC-32C over the first 27 bytes of each batch in the range. Kafka's own CRC leaves base
  offset, length and leader epoch uncovered; this check finds a flipped bit there. It also covers
  the other fields that a reader uses when it walks over a batch, up to the last offset delta.

A range ends where the next one begins; the last one ends with the segment. The range that is still
being appended to is *open* and in memory only.

File: blocks, each `magic u32, count u32, end u32, next offset i64, file checksum u32, latest
timestamp i64, flags u32, CRC u32`, then the four columns. A block is written at each checkpoint
with the entries closed since the one before. It records how far the segment was synced (`end`), the
offset that follows and the running checksum of the segment up to there: recovery starts from the
last good block instead of byte 0. Blocks after a bad one are ignored; their entries are rebuilt by
a scan. The CRC is seeded with the segment's name (without a seed below `TAGGED_FILES_LEVEL`), so
that another segment's index in its place is refused.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from dragoman.checksum import crc32c
from dragoman.types import Buffer

_BLOCK = struct.Struct("<IIIqIqII")
_HAS_PRODUCERS = 1
_HAS_GAPS = 2
_MAGIC = 0x31584744  # "DGX1"
_ENTRY_BYTES = 8 + 4 + 8 + 4


class Checkpoint(NamedTuple):
    """How far a segment is known to be synced and sound, and its state there."""

    position: int
    next_offset: int
    checksum: int
    max_timestamp: int
    #: Whether the partition had producer state. If not, no producer wrote further back.
    has_producers: bool
    #: Whether offsets may have gaps between batches.
    has_gaps: bool = False


class Range(NamedTuple):
    """Back-to-back batches between two byte positions."""

    #: Offset of the first batch, relative to the segment's base.
    first: int
    start: int
    stop: int
    check: int


class SparseIndex:
    __slots__ = (
        "_checks",
        "_offsets",
        "_positions",
        "_times",
        "max_timestamp",
        "open_check",
        "open_offset",
        "open_position",
        "saved_entries",
        "saved_position",
    )

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("I")
        self._times = array("q")
        self._checks = array("I")
        self.open_offset = -1
        self.open_position = 0
        self.open_check = 0
        self.max_timestamp = -1
        #: Number of entries in the index file, and the byte of the segment that they reach.
        self.saved_entries = 0
        self.saved_position = 0

    def __len__(self) -> int:
        """Closed ranges."""
        return len(self._offsets)

    def add(
        self, relative_offset: int, position: int, prefix: Buffer, timestamp: int, interval: int
    ) -> None:
        """Add the next batch; `prefix` is its first 27 bytes as they are in the file."""
        if self.open_offset < 0:
            self.open_offset = relative_offset
            self.open_position = position
            self.open_check = crc32c(prefix)
        elif position - self.open_position >= interval:
            self.seal()
            self.open_offset = relative_offset
            self.open_position = position
            self.open_check = crc32c(prefix)
        else:
            self.open_check = crc32c(prefix, self.open_check)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def seal(self) -> None:
        """Close the open range, if there is one."""
        if self.open_offset < 0:
            return
        self._offsets.append(self.open_offset)
        self._positions.append(self.open_position)
        self._times.append(self.max_timestamp)
        self._checks.append(self.open_check)
        self.open_offset = -1

    # ---- ranges, counted from 0; the open one is the last

    @property
    def range_count(self) -> int:
        return len(self._offsets) + (1 if self.open_offset >= 0 else 0)

    @property
    def begins_with_segment(self) -> bool:
        """Whether nothing lies before the first range."""
        return self.range_count > 0 and self.range_at(0, 0).start == 0

    def range_at(self, number: int, end: int) -> Range:
        """The range with that number, in a segment of `end` bytes."""
        count = len(self._offsets)
        if number == count:
            assert self.open_offset >= 0
            return Range(self.open_offset, self.open_position, end, self.open_check)
        if number + 1 < count:
            stop = self._positions[number + 1]
        else:
            stop = self.open_position if self.open_offset >= 0 else end
        return Range(self._offsets[number], self._positions[number], stop, self._checks[number])

    def range_holding(self, relative_offset: int) -> int:
        """Number of the range that holds the offset, or of the one before it."""
        if 0 <= self.open_offset <= relative_offset:
            return len(self._offsets)
        return max(0, bisect_right(self._offsets, relative_offset) - 1)

    def range_at_position(self, position: int) -> int:
        """Number of the last range that starts at or before a byte position."""
        if self.open_offset >= 0 and self.open_position <= position:
            return len(self._offsets)
        return max(0, bisect_right(self._positions, position) - 1)

    def range_for_time(self, timestamp: int) -> int | None:
        """The first range holding a batch at or after the time; None when there is none."""
        number = bisect_left(self._times, timestamp)
        if number < len(self._times):
            return number
        if self.open_offset >= 0 and self.max_timestamp >= timestamp:
            return number
        return None

    def cut_to_range(self, number: int) -> None:
        """Forget a range and all behind it. The caller adds its remaining batches again."""
        for column in (self._offsets, self._positions, self._times, self._checks):
            del column[number:]
        self.open_offset = -1
        self.max_timestamp = self._times[-1] if self._times else -1
        self.saved_entries = min(self.saved_entries, len(self._offsets))

    # ---- file

    def unsaved_block(self, checkpoint: Checkpoint, count: int, tag: int) -> bytes:
        """A block with the entries from the last saved one up to number `count`."""
        start = self.saved_entries
        columns = b"".join(
            column[start:count].tobytes()
            for column in (self._offsets, self._positions, self._times, self._checks)
        )
        flags = _HAS_PRODUCERS if checkpoint.has_producers else 0
        flags |= _HAS_GAPS if checkpoint.has_gaps else 0
        head = _BLOCK.pack(_MAGIC, count - start, *checkpoint[:4], flags, 0)[:-4]
        return head + crc32c(columns, crc32c(head, tag)).to_bytes(4, "little") + columns


def load_index(data: bytes, tag: int) -> tuple[SparseIndex, Checkpoint | None, int]:
    """(index, last good checkpoint, bytes that were good). Damage ends the index; never raises."""
    index = SparseIndex()
    checkpoint: Checkpoint | None = None
    position = 0
    while len(data) - position >= _BLOCK.size:
        magic, count, end, next_offset, checksum, latest, flags, crc = _BLOCK.unpack_from(
            data, position
        )
        stop = position + _BLOCK.size + count * _ENTRY_BYTES
        if magic != _MAGIC or stop > len(data):
            break
        body = data[position + _BLOCK.size : stop]
        head = data[position : position + _BLOCK.size - 4]
        if crc not in (crc32c(body, crc32c(head, tag)), crc32c(body, crc32c(head))):
            break
        if checkpoint is not None and end < checkpoint.position:
            break
        _load_columns(index, body, count)
        index.max_timestamp = latest
        has_producers, has_gaps = bool(flags & _HAS_PRODUCERS), bool(flags & _HAS_GAPS)
        checkpoint = Checkpoint(end, next_offset, checksum, latest, has_producers, has_gaps)
        position = stop
    index.saved_entries = len(index)
    index.saved_position = checkpoint.position if checkpoint else 0
    return index, checkpoint, position


def _load_columns(index: SparseIndex, body: bytes, count: int) -> None:
    position = 0
    for column, width in (
        (index._offsets, 8),
        (index._positions, 4),
        (index._times, 8),
        (index._checks, 4),
    ):
        column.frombytes(body[position : position + count * width])
        position += count * width
