"""Reads from segment files in which every byte is verified.

A batch's CRC covers its records; base offset, length and leader epoch are covered by the check that
the sparse index keeps for each range of batches. So a segment is read in whole ranges: the headers
of a range are walked, their order and the range's check verified, and then the CRC of every batch
that is returned. A bad header makes its range unreadable, a bad record only its batch.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, DiskFullError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import (
    HEADER,
    LENGTH_PREFIX_BYTES,
    UNCHECKED_PREFIX_BYTES,
    WALK,
    WALKED_PREFIX_BYTES,
    BatchHeader,
)
from dragoman.log.directory import DataDirectory
from dragoman.log.index import Range, SparseIndex
from dragoman.log.segment import Run, Segment
from dragoman.types import Buffer
from dragoman.world import OUT_OF_FILES

#: Errors that concern one file, not the disk as a whole.
UNREADABLE = (errno.EIO, errno.ENOENT, errno.EACCES, errno.EPERM)
_LENGTH_MIN = BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES


class SegmentStore(Protocol):
    @property
    def directory(self) -> DataDirectory: ...


class SegmentOwner(Protocol):
    """What reading segments needs of a partition."""

    @property
    def store(self) -> SegmentStore: ...

    @property
    def dirty(self) -> list[Run]:
        """Runs of journalled bytes that are not in the segment files yet."""
        ...

    def flush(self) -> None: ...

    def index_of(self, segment: Segment) -> SparseIndex: ...


class ReadResult(NamedTuple):
    buffers: list[Buffer]
    size: int
    next_offset: int


class Place(NamedTuple):
    """Position of a batch in its segment, and its offsets."""

    position: int
    size: int
    base_offset: int
    next_offset: int


def read_segment(
    partition: SegmentOwner, segment: Segment, offset: int, bytes_max: int, limit_offset: int
) -> ReadResult | None:
    """Sound batches from the one that holds `offset`, or the next; None when there is none.

    At least one batch below the limit is returned, even past `bytes_max`, so that a reader gets
    past a large batch. Raises `CorruptionError` when the first requested batch is not sound.
    """
    # The index comes first: rebuilding it may find damage.
    index = index_for_reading(partition, segment)
    refuse_damaged(segment, offset)
    number = index.range_holding(offset - segment.base_offset)
    while number < index.range_count:
        ranges = _ranges_to_read(index, segment, number, bytes_max)
        result = _read_ranges(partition, segment, ranges, offset, bytes_max, limit_offset)
        if result is not None:
            return result
        number += len(ranges)
        refuse_damaged_between(segment, offset, index, number)
    return None


def refuse_damaged(segment: Segment, offset: int) -> None:
    for first, next_good, position in segment.lost:
        if first <= offset < next_good:
            span = f"offsets {first} to {next_good - 1} are damaged"
            text = f"{span}, the next good one is {next_good}"
            raise CorruptionError(segment.log_path, position, text)


def refuse_damaged_between(segment: Segment, offset: int, index: SparseIndex, number: int) -> None:
    """Raises `CorruptionError` when a reader would skip damage on its way to a later range."""
    if not segment.lost:
        return
    if number < index.range_count:
        end = segment.base_offset + index.range_at(number, segment.size).first
    else:
        end = segment.next_offset
    for first, _, _ in segment.lost:
        if offset <= first < end:
            refuse_damaged(segment, first)


def index_for_reading(partition: SegmentOwner, segment: Segment) -> SparseIndex:
    """The index. Dirty bytes are written first: the open range is checked as a whole."""
    if segment.written < segment.size:
        partition.flush()
    return partition.index_of(segment)


def _ranges_to_read(
    index: SparseIndex, segment: Segment, number: int, bytes_max: int
) -> list[Range]:
    """Ranges that cover `bytes_max`, at least one, none across damage."""
    ranges: list[Range] = []
    size = 0
    while number < index.range_count and (not ranges or size < bytes_max):
        each = index.range_at(number, segment.size)
        clipped = clip(segment, each)
        ranges.append(clipped)
        size += clipped.stop - clipped.start
        if clipped.stop < each.stop:
            break
        number += 1
    return ranges


def clip(segment: Segment, each: Range) -> Range:
    """Shorten a range at damage that recovery found behind its last sound batch."""
    for _, _, position in segment.damage:
        if each.start < position < each.stop:
            return each._replace(stop=position)
    return each


def _read_ranges(
    partition: SegmentOwner,
    segment: Segment,
    ranges: list[Range],
    offset: int,
    bytes_max: int,
    limit_offset: int,
) -> ReadResult | None:
    start = ranges[0].start
    data = read_bytes(partition, segment, start, ranges[-1].stop)
    first, end, next_offset = -1, 0, offset
    for each in ranges:
        try:
            places = walk_range(data, start, segment, each)
            for place in places:
                if place.next_offset <= offset:
                    continue
                stop = place.position + place.size - start
                if place.next_offset > limit_offset or (first >= 0 and stop - first > bytes_max):
                    return _result(data, first, end, next_offset)
                check_records(data, place.position - start, place.size, segment, place.position)
                if first < 0:
                    first = place.position - start
                end, next_offset = stop, place.next_offset
        except CorruptionError:
            if first < 0:
                raise
            break
    return None if first < 0 else _result(data, first, end, next_offset)


def _result(data: memoryview, first: int, end: int, next_offset: int) -> ReadResult:
    if first < 0:
        return ReadResult([], 0, next_offset)
    return ReadResult([data[first:end]], end - first, next_offset)


def read_bytes(partition: SegmentOwner, segment: Segment, start: int, stop: int) -> memoryview:
    """The bytes of whole ranges. On a full disk the last ones may be only in memory."""
    wanted = max(0, min(stop, segment.written) - start)
    data = b""
    if wanted:
        try:
            data = partition.store.directory.files.get(segment.log_path).read(wanted, start)
        except OSError as error:
            if error.errno in OUT_OF_FILES:
                raise DiskFullError("no descriptor is left to read with") from None
            if error.errno not in UNREADABLE:
                raise
            # A sector is unreadable, or the file is missing; other files can be served.
            raise CorruptionError(segment.log_path, start, f"not readable: {error}") from error
    if len(data) < wanted:
        raise CorruptionError(segment.log_path, start + len(data), "file is too short")
    if stop > segment.written:
        dirty = b"".join(
            chunk for run in partition.dirty if run.segment is segment for chunk in run.chunks
        )
        first = max(0, start - segment.written)
        data += dirty[first : stop - segment.written]
    return memoryview(data)


def walk_range(data: memoryview, data_start: int, segment: Segment, each: Range) -> list[Place]:
    """Every batch of a range, headers verified. `data` begins at byte `data_start` of the file."""
    places: list[Place] = []
    position = each.start - data_start
    stop = each.stop - data_start
    is_whole = stop <= len(data)
    stop = min(stop, len(data))
    expected = segment.base_offset + each.first
    check = 0
    while stop - position >= BATCH_HEADER_BYTES:
        base, length, last_delta = WALK.unpack_from(data, position)
        size = length + LENGTH_PREFIX_BYTES
        if length < _LENGTH_MIN or position + size > stop or last_delta < 0:
            if not is_whole and length >= _LENGTH_MIN and last_delta >= 0:
                return places
            raise CorruptionError(segment.log_path, data_start + position, "bad batch header")
        if base != expected and (base < expected or not segment.has_gaps):
            raise CorruptionError(
                segment.log_path,
                data_start + position,
                f"batch has offset {base}, expected {expected}",
            )
        check = crc32c(data[position : position + WALKED_PREFIX_BYTES], check)
        expected = base + last_delta + 1
        places.append(Place(data_start + position, size, base, expected))
        position += size
    if is_whole and (position != stop or check != each.check):
        raise CorruptionError(segment.log_path, each.start, "batch headers fail their check")
    return places


def check_records(data: memoryview, at: int, size: int, segment: Segment, position: int) -> None:
    crc = int.from_bytes(data[at + 17 : at + UNCHECKED_PREFIX_BYTES], "big")
    if crc32c(data[at + UNCHECKED_PREFIX_BYTES : at + size]) != crc:
        raise CorruptionError(segment.log_path, position, "batch fails its CRC")


def batches_of_range(
    partition: SegmentOwner, segment: Segment, number: int
) -> Iterator[tuple[Place, BatchHeader, memoryview]]:
    """The batches of one range. Headers are verified before the first one, CRCs one by one."""
    each = clip(segment, index_for_reading(partition, segment).range_at(number, segment.size))
    data = read_bytes(partition, segment, each.start, each.stop)
    for place in walk_range(data, each.start, segment, each):
        at = place.position - each.start
        check_records(data, at, place.size, segment, place.position)
        header = BatchHeader._make(HEADER.unpack_from(data, at))
        yield place, header, data[at : at + place.size]


def batches_from(
    partition: SegmentOwner, segment: Segment, offset: int
) -> Iterator[tuple[Place, BatchHeader, memoryview]]:
    """Verified batches of a segment that end behind `offset`. Raises `CorruptionError`."""
    index = index_for_reading(partition, segment)
    number = index.range_holding(max(0, offset - segment.base_offset))
    while number < index.range_count:
        for found in batches_of_range(partition, segment, number):
            if found[0].next_offset > offset:
                yield found
        number += 1
