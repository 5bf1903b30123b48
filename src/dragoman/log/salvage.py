"""What is sound in a damaged segment file: batches between bad ones, and files that lost their end.

After a bad batch, the next one is never searched for in the bytes alone: a client's record may
contain what looks like a batch. Reading resumes at a border known from elsewhere (the journal, the
index), or at the end that the bad batch claims, if a sound batch with the next offset begins there.

A listed file that is shorter than its manifest says keeps the ranges that its index verifies, and
the sound batches directly behind them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError
from dragoman.limits import BATCH_HEADER_BYTES, SCAN_CHUNK_BYTES
from dragoman.log.batch import (
    HEADER,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    UNCHECKED_PREFIX_BYTES,
    BatchHeader,
)
from dragoman.log.directory import DataDirectory
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.segment import Segment, checksum_of
from dragoman.log.segment_reader import walk_range
from dragoman.world import Disk, File, read_whole


class Sound(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


class Bad(NamedTuple):
    """Bytes from `position` to `resume` that are not sound batches."""

    position: int
    #: Where reading resumes; the end of the segment when no border is known.
    resume: int
    #: Offset of the batch at `resume`; -1 at the end of the segment.
    next_offset: int
    reason: str


Found: TypeAlias = Sound | Bad


def read_batches(
    file: File, start: int, end: int, next_offset: int, borders: Sequence[int] = ()
) -> Iterator[Found]:
    """All batches between two byte positions, sound and bad.

    `borders`: positions at which batches are known to begin, ascending.
    """
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
    """(end that the bad batch claims, offset there), if the batch that follows confirms it."""
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


def keep_whole_part(directory: DataDirectory, segment: Segment, size: int) -> None:
    """Keep the sound part of a listed file that has `size` bytes left; refuse the other offsets.

    The index is of no use once a manifest lists the damage.
    """
    file = directory.files.get_or_create(segment.log_path)
    end, next_offset = _border_before(directory.disk, segment, file, max(size, 0))
    # The verified ranges prove that the file is this segment's: a CRC is enough behind them.
    for found in read_batches(file, end, max(size, 0), next_offset) if end else ():
        if isinstance(found, Bad):
            break
        end = found.position + found.header.size
        next_offset = found.header.last_offset + 1
    segment.size = segment.written = end
    segment.checksum = checksum_of(file, end)
    segment.damage = (*segment.damage, (next_offset, segment.next_offset, end))


def _border_before(disk: Disk, segment: Segment, file: File, size: int) -> tuple[int, int]:
    """End of the verified ranges of a shortened file: byte position and offset."""
    if not disk.exists(segment.index_path):
        return 0, segment.base_offset
    data = read_whole(disk, segment.index_path)
    index, checkpoint, _ = load_index(data, segment.tag)
    if checkpoint is None or not index.begins_with_segment:
        return 0, segment.base_offset
    number = verified_ranges(file, segment, index, checkpoint.position, size)
    if not number:
        return 0, segment.base_offset
    border = index.range_at(number, checkpoint.position)
    return border.start, segment.base_offset + border.first


def shorten_index(
    file: File, segment: Segment, index: SparseIndex, checkpoint: Checkpoint, size: int
) -> Checkpoint | None:
    """Cut an index to the verified ranges of a shortened file; None when there are none."""
    number = verified_ranges(file, segment, index, checkpoint.position, size)
    if not number:
        return None
    border = index.range_at(number, checkpoint.position)
    index.cut_to_range(number)
    index.saved_entries = index.saved_position = 0
    return checkpoint._replace(
        position=border.start,
        next_offset=segment.base_offset + border.first,
        checksum=checksum_of(file, border.start),
        max_timestamp=index.max_timestamp,
    )


def verified_ranges(
    file: File, segment: Segment, index: SparseIndex, covered: int, size: int
) -> int:
    """How many ranges lie wholly in the first `size` bytes; 0 if the last of them fails its check.

    `covered`: how many bytes of the segment the index describes.
    """
    number = index.range_at_position(size)
    while number and index.range_at(number - 1, covered).stop > size:
        number -= 1
    if not number or number >= index.range_count:
        return 0
    each = index.range_at(number - 1, covered)
    try:
        walk_range(
            memoryview(file.read(each.stop - each.start, each.start)), each.start, segment, each
        )
    except CorruptionError:
        return 0
    return number
