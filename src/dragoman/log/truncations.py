"""Truncations: where they cut a log, how the journal records them, and which appends they undo.

A truncation cuts at a border between batches: a batch that holds its offset is removed as a whole.

Its journal entry names the segment that stayed last and how many bytes of it stayed. Everything
behind is gone: segments with a higher base, and the appends that wrote there. Later appends go into
new files, so generations distinguish the two however often an entry is replayed.

A *restart* removes everything: segments, epochs and producers. The log begins again at the offset
in the entry, which may be below or above all that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.errors import CorruptionError
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.directory import DataDirectory
from dragoman.log.index import SparseIndex
from dragoman.log.journal import EntryRef, read_entry
from dragoman.log.readable_log import ReadableLog
from dragoman.log.segment import Segment, checksum_of, scan
from dragoman.log.segment_reader import Place, batches_from, batches_of_range
from dragoman.world import Disk

#: Position in the entry of a restart.
RESTART = 1


class Truncation(NamedTuple):
    """A truncation found in the journal."""

    sequence: int
    #: Base of the segment that stayed last; -1 when none stayed.
    base_offset: int
    generation: int
    #: Bytes of that segment that stayed, or `RESTART`.
    position: int
    #: The log's end afterwards.
    next_offset: int
    #: Files with a lower generation are older than the truncation.
    next_generation: int

    @property
    def is_restart(self) -> bool:
        return self.base_offset < 0 and self.position == RESTART

    def ends_before(self, offset: int) -> bool:
        """Whether an epoch that began at `offset` before the truncation is removed by it."""
        return self.is_restart or offset >= self.next_offset

    def removes(self, base_offset: int, generation: int) -> bool:
        return base_offset > self.base_offset and generation < self.next_generation

    def undoes(self, entry: EntryRef) -> bool:
        """Whether all bytes of an append were removed."""
        if entry.sequence > self.sequence:
            return False
        if self.removes(entry.base_offset, entry.generation):
            return True
        return self.cuts(entry.base_offset, entry.generation) and entry.position >= self.position

    def cuts(self, base_offset: int, generation: int) -> bool:
        return (base_offset, generation) == (self.base_offset, self.generation)


def truncation_entry_data(next_offset: int, next_generation: int) -> bytes:
    """Data of a truncation's journal entry."""
    return next_offset.to_bytes(8, "little") + next_generation.to_bytes(4, "little")


def read_truncation(disk: Disk, entry: EntryRef) -> Truncation:
    data = read_entry(disk, entry)
    return Truncation(
        entry.sequence,
        entry.base_offset,
        entry.generation,
        entry.position,
        int.from_bytes(data[:8], "little"),
        int.from_bytes(data[8:12], "little"),
    )


def cut_point(partition: ReadableLog, offset: int) -> tuple[Segment | None, int, int]:
    """Where a truncation to `offset` cuts: (segment that stays last, its bytes, the log's new end).

    Raises `CorruptionError` where damage hides the border of a batch.
    """
    next_offset = partition.log_start_offset
    last: Segment | None = None
    for segment in partition.all_segments():
        if segment.base_offset >= offset:
            # The cut falls between two segments, where compaction may have left a gap.
            next_offset = offset
            break
        place = _first_beyond(partition, segment, offset)
        _refuse_hidden_border(segment, offset)
        if place is None:
            last, next_offset = segment, segment.next_offset
            continue
        if place.position == 0:
            next_offset = segment.base_offset
            break
        return segment, place.position, _end_before(partition, segment, place)
    return last, last.size if last else 0, max(next_offset, partition.log_start_offset)


def _first_beyond(partition: ReadableLog, segment: Segment, offset: int) -> Place | None:
    """The first batch of a segment that ends after `offset`."""
    if segment.next_offset <= offset:
        return None
    for place, _, _ in batches_from(partition, segment, offset):
        return place
    return None


def _refuse_hidden_border(segment: Segment, offset: int) -> None:
    """Raises `CorruptionError` for an offset in damage, which the search for the batch may have
    found just now."""
    for first, next_good, position in segment.lost:
        if first <= offset <= next_good:
            text = f"offsets {first} to {next_good - 1} are damaged: not truncated to {offset}"
            raise CorruptionError(segment.log_path, position, text)


def _end_before(partition: ReadableLog, segment: Segment, place: Place) -> int:
    """Offset after the batch that comes before this one."""
    index = partition.index_of(segment)
    number = index.range_at_position(place.position - 1)
    end = segment.base_offset
    for before, _, _ in batches_of_range(partition, segment, number):
        if before.position < place.position:
            end = before.next_offset
    return max(end, partition.log_start_offset)


def cut_segment(
    directory: DataDirectory, segment: Segment, index: SparseIndex, position: int, next_offset: int
) -> None:
    """Shorten a rolled segment, its file and its index, whose last range ends at the cut."""
    number = index.range_at_position(position - 1)
    start = index.range_at(number, segment.size).start
    file = directory.files.get(segment.log_path)
    file.truncate(position)
    segment.cuts += 1
    segment.size = segment.written = position
    segment.written_out = min(segment.written_out, position)
    segment.next_offset = next_offset
    index.cut_to_range(number)
    # These headers were verified against the check of the range, or were written by this process:
    # the check of the shorter range is computed from them.
    for at, header, batch in scan(file, segment.log_path, start, position):
        relative = header.base_offset - segment.base_offset
        prefix = batch[:WALKED_PREFIX_BYTES]
        index.add(relative, at, prefix, header.record_timestamp, position)
    index.seal()
    segment.max_timestamp = index.max_timestamp
    segment.checksum = checksum_of(file, position)
    segment.damage = tuple(each for each in segment.damage if each[2] < position)
    segment.unreadable = tuple(each for each in segment.unreadable if each[0] < next_offset)
    # The index file is removed, too: it is only ever appended to.
    index.saved_entries = index.saved_position = 0
    directory.files.forget(segment.index_path)
    directory.disk.remove(segment.index_path)
