"""Sparse index of one segment: where batches lie, how late they are, and whether headers are intact.

An entry stands for a *range* of back-to-back batches of at least `index.interval.bytes`. It keeps

- the first batch's offset, relative to the segment's base, and its byte position;
- the highest timestamp seen in the segment up to the end of the range, so that entries ascend in
  time as well as in offset and both can be searched by bisection;
- a check: CRC-32C over the first 21 bytes of each batch in the range. Kafka's own CRC leaves base
  offset, length and leader epoch uncovered; a flipped bit there is found by this check.

The last range stays open until it is long enough or the segment rolls; open means not in a file.

File: blocks, each `magic u32, count u32, end u32, next offset i64, file checksum u32, latest
timestamp i64, flags u32, CRC u32`, then the four columns. A block is written at each checkpoint with the entries sealed since the one
before. It states how far the segment was synced then (`end`), the offset that follows and the
running checksum of the segment up to there: recovery starts from the last good block instead of
byte 0. Blocks after a bad one are ignored; what they held is found again by scanning.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from crc32c import crc32c

from dragoman.types import Buffer

_BLOCK = struct.Struct("<IIIqIqII")
_HAS_PRODUCERS = 1
_MAGIC = 0x31584744  # "DGX1"
_ENTRY_BYTES = 4 + 4 + 8 + 4


class Checkpoint(NamedTuple):
    """Up to here the segment is known to be synced and sound."""

    position: int
    next_offset: int
    checksum: int
    max_timestamp: int
    #: Whether the partition had producer state then; if not, none lies further back.
    has_producers: bool


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
    )

    def __init__(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")
        self._times = array("q")
        self._checks = array("I")
        self.open_offset = -1
        self.open_position = 0
        self.open_check = 0
        self.max_timestamp = -1
        #: How many entries are in the index file already.
        self.saved_entries = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(
        self, relative_offset: int, position: int, prefix: Buffer, timestamp: int, interval: int
    ) -> None:
        """Take in the next batch; `prefix` is its first 21 bytes as they are in the file."""
        if self.open_offset < 0:
            self._open(relative_offset, position)
        elif position - self.open_position >= interval:
            self.seal()
            self._open(relative_offset, position)
        self.open_check = crc32c(prefix, self.open_check)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp

    def _open(self, relative_offset: int, position: int) -> None:
        self.open_offset = relative_offset
        self.open_position = position
        self.open_check = 0

    def seal(self) -> None:
        """Close the open range, if there is one."""
        if self.open_offset < 0:
            return
        self._offsets.append(self.open_offset)
        self._positions.append(self.open_position)
        self._times.append(self.max_timestamp)
        self._checks.append(self.open_check)
        self.open_offset = -1

    # ---- look-up

    def position_at_or_before(self, relative_offset: int) -> int:
        """Byte position of the range that holds the offset, or the one before it."""
        if 0 <= self.open_offset <= relative_offset:
            return self.open_position
        index = bisect_right(self._offsets, relative_offset) - 1
        return self._positions[index] if index >= 0 else 0

    def position_for_time(self, timestamp: int) -> int | None:
        """Start of the first range holding a batch at or after the time; None when there is none."""
        index = bisect_left(self._times, timestamp)
        if index < len(self._times):
            return self._positions[index]
        if self.open_offset >= 0 and self.max_timestamp >= timestamp:
            return self.open_position
        return None

    def ranges(self, end: int) -> list[tuple[int, int, int, int]]:
        """(first relative offset, start, end, check) of every range of a segment of `end` bytes."""
        starts = list(self._positions)
        offsets = list(self._offsets)
        checks = list(self._checks)
        if self.open_offset >= 0:
            starts.append(self.open_position)
            offsets.append(self.open_offset)
            checks.append(self.open_check)
        ends = [*starts[1:], end]
        return list(zip(offsets, starts, ends, checks, strict=True))

    def position_before(self, position: int) -> int:
        """Start of the last range that begins before `position`; 0 when there is none."""
        if 0 <= self.open_offset and self.open_position < position:
            return self.open_position
        index = bisect_left(self._positions, position) - 1
        return self._positions[index] if index >= 0 else 0

    def positions_after(self, position: int) -> array[int]:
        """Where ranges start behind `position`: places to go on after damage."""
        return self._positions[bisect_right(self._positions, position) :]

    # ---- file

    def unsaved_block(self, checkpoint: Checkpoint) -> bytes:
        """The entries sealed since the last block, and how far the segment is synced."""
        start = self.saved_entries
        columns = b"".join(
            column[start:].tobytes()
            for column in (self._offsets, self._positions, self._times, self._checks)
        )
        count = len(self._offsets) - start
        flags = _HAS_PRODUCERS if checkpoint.has_producers else 0
        head = _BLOCK.pack(_MAGIC, count, *checkpoint[:4], flags, 0)[:-4]
        return head + crc32c(columns, crc32c(head)).to_bytes(4, "little") + columns

    def drop_from(self, position: int) -> None:
        """Forget every range that starts at or after `position`, and the open one.

        The caller adds again what lies between the last remaining range's end and `position`.
        """
        keep = bisect_left(self._positions, position)
        for column in (self._offsets, self._positions, self._times, self._checks):
            del column[keep:]
        self.open_offset = -1
        self.saved_entries = min(self.saved_entries, keep)
        self.max_timestamp = self._times[-1] if self._times else -1


def load_index(data: bytes) -> tuple[SparseIndex, Checkpoint | None, int]:
    """(index, last good checkpoint, bytes that were good). Never raises: damage ends the reading."""
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
        if crc32c(body, crc32c(data[position : position + _BLOCK.size - 4])) != crc:
            break
        if checkpoint is not None and end < checkpoint.position:
            break
        if count:
            # A range that was open at a crash is read again and saved again: the later one holds.
            index.drop_from(int.from_bytes(body[4 * count : 4 * count + 4], "little"))
        _load_columns(index, body, count)
        index.max_timestamp = latest
        has_producers = bool(flags & _HAS_PRODUCERS)
        checkpoint = Checkpoint(end, next_offset, checksum, latest, has_producers)
        position = stop
    index.saved_entries = len(index)
    return index, checkpoint, position


def _load_columns(index: SparseIndex, body: bytes, count: int) -> None:
    position = 0
    for column, width in (
        (index._offsets, 4),
        (index._positions, 4),
        (index._times, 8),
        (index._checks, 4),
    ):
        column.frombytes(body[position : position + count * width])
        position += count * width
