"""Reading a segment's batches one after the other, and going on behind those that are bad.

Where to go on is never guessed from the bytes alone: a client's record may contain what looks like
a batch. Reading goes on at a border that somebody else knows (the journal, the index), or where the
bad batch says it ends if a sound batch with the very next offset begins there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.checksum import crc32c
from dragoman.limits import BATCH_HEADER_BYTES, SCAN_CHUNK_BYTES
from dragoman.log.batch import (
    HEADER,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    UNCHECKED_PREFIX_BYTES,
    BatchHeader,
)
from dragoman.world import File


class Sound(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


class Bad(NamedTuple):
    """Bytes from `position` to `resume` that are no sound batches."""

    position: int
    #: The end of the segment when no border is known.
    resume: int
    #: Offset of the batch at `resume`; -1 when that is the end.
    next_offset: int
    reason: str


Found: TypeAlias = Sound | Bad


def read_batches(
    file: File, start: int, end: int, next_offset: int, borders: Sequence[int] = ()
) -> Iterator[Found]:
    """Everything between two byte positions. `borders`: where batches begin, ascending."""
    reader = _Reader(file, end)
    position, expected = start, next_offset
    while position < end:
        found = reader.batch_at(position)
        reason = found if isinstance(found, str) else _misplaced(reader, found, expected)
        if reason is None:
            assert isinstance(found, Sound)
            yield found
            position += found.header.size
            expected = found.header.last_offset + 1
            continue
        bad = _step_over(reader, position, expected, borders, reason)
        yield bad
        position = bad.resume
        expected = max(expected, bad.next_offset)


class _Reader:
    """Batches of a file, read in chunks."""

    def __init__(self, file: File, end: int) -> None:
        self._file = file
        self.end = end
        self._chunk = memoryview(b"")
        self._chunk_start = 0

    def bytes_at(self, position: int, size: int) -> memoryview:
        at = position - self._chunk_start
        if at < 0 or at + size > len(self._chunk):
            wanted = min(max(size, SCAN_CHUNK_BYTES), self.end - position)
            self._chunk = memoryview(self._file.read(wanted, position))
            self._chunk_start = position
            at = 0
        return self._chunk[at : at + size]

    def header_at(self, position: int) -> BatchHeader | str:
        if self.end - position < BATCH_HEADER_BYTES:
            return "batch header is cut off"
        data = self.bytes_at(position, BATCH_HEADER_BYTES)
        if len(data) < BATCH_HEADER_BYTES:
            return "batch header is cut off"
        header = BatchHeader._make(HEADER.unpack(data))
        if header.magic != MAGIC or header.length < BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES:
            return "not a batch header"
        if header.last_offset_delta < 0 or header.base_offset < 0:
            return "batch has a negative offset"
        if position + header.size > self.end:
            return "batch is cut off"
        return header

    def batch_at(self, position: int) -> Sound | str:
        header = self.header_at(position)
        if isinstance(header, str):
            return header
        batch = self.bytes_at(position, header.size)
        if len(batch) < header.size:
            return "batch is cut off"
        if crc32c(batch[UNCHECKED_PREFIX_BYTES:]) != header.crc:
            return "batch fails its CRC"
        return Sound(position, header, batch)


def _misplaced(reader: _Reader, found: Sound, expected: int) -> str | None:
    """Why a batch with a good CRC cannot be where it is; None when it can.

    The CRC does not cover the offset. A gap before the batch is taken for a wrong bit when the
    following batch contradicts it.
    """
    header = found.header
    if header.base_offset < expected:
        return f"batch has offset {header.base_offset}, expected {expected}"
    if header.base_offset > expected:
        following = reader.header_at(found.position + header.size)
        if isinstance(following, BatchHeader) and following.base_offset <= header.last_offset:
            return f"batch has offset {header.base_offset}, expected {expected}"
    return None


def _step_over(
    reader: _Reader, position: int, expected: int, borders: Sequence[int], reason: str
) -> Bad:
    at = bisect_right(borders, position)
    border = borders[at] if at < len(borders) else reader.end
    own_end = _own_end(reader, position, expected)
    if own_end is not None and own_end[0] <= border:
        return Bad(position, own_end[0], own_end[1], reason)
    while border < reader.end:
        found = reader.batch_at(border)
        if isinstance(found, Sound) and found.header.base_offset >= expected:
            return Bad(position, border, found.header.base_offset, reason)
        at += 1
        border = borders[at] if at < len(borders) else reader.end
    return Bad(position, reader.end, -1, reason)


def _own_end(reader: _Reader, position: int, expected: int) -> tuple[int, int] | None:
    """(end of the bad batch by its own words, offset there), if what follows bears it out."""
    header = reader.header_at(position)
    if isinstance(header, str):
        return None
    end = position + header.size
    next_offset = expected + header.last_offset_delta + 1
    if end == reader.end:
        return (end, next_offset) if header.base_offset == expected else None
    following = reader.batch_at(end)
    if isinstance(following, Sound) and following.header.base_offset == next_offset:
        return end, next_offset
    return None
