"""Truncations: where they cut a log, how the journal states them, and what each of them undid.

A truncation falls on a batch border: a batch that it would cut in two goes as a whole.

A truncation names the segment that stayed last and how many bytes of it stayed. Everything behind
is gone: segments with a higher base, and entries that wrote there. What is written afterwards goes
into new files, so generations tell the two apart however often an entry is replayed.

A *restart* leaves nothing: no segment, no epoch, no producer. The log begins anew where it says,
which may be before or behind all that it had.
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

#: In place of a position, when no segment stayed: the log begins anew.
RESTART = 1


class Truncation(NamedTuple):
    """A truncation found in the journal."""

    sequence: int
    #: The segment that stayed last, and its bytes; base -1 when none stayed.
    base_offset: int
    generation: int
    position: int
    #: The log's end afterwards.
    next_offset: int
    #: Files with a lower generation are older than the truncation.
    next_generation: int

    @property
    def is_restart(self) -> bool:
        return self.base_offset < 0 and self.position == RESTART

    def ends_before(self, offset: int) -> bool:
        """Whether what began at `offset`, before the truncation, is gone."""
        return self.is_restart or offset >= self.next_offset

    def removes(self, base_offset: int, generation: int) -> bool:
        return base_offset > self.base_offset and generation < self.next_generation

    def undoes(self, entry: EntryRef) -> bool:
        """Whether all that an append wrote was cut."""
        if entry.sequence > self.sequence:
            return False
        if self.removes(entry.base_offset, entry.generation):
            return True
        return self.cuts(entry.base_offset, entry.generation) and entry.position >= self.position

    def cuts(self, base_offset: int, generation: int) -> bool:
        return (base_offset, generation) == (self.base_offset, self.generation)


def truncation_entry_data(next_offset: int, next_generation: int) -> bytes:
    """What a truncation's journal entry holds besides its head."""
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
            # Between two segments nothing is cut; compaction may have left a gap there.
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
    """A search for batches passes over damage, and may be what finds it."""
    for first, next_good, position in segment.lost:
        if first <= offset <= next_good:
            text = f"offsets {first} to {next_good - 1} are damaged: not cut at {offset}"
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
    """Shorten a rolled segment. The range that the cut falls into is closed earlier."""
    number = index.range_at_position(position - 1)
    start = index.range_at(number, segment.size).start
    file = directory.files.get(segment.log_path)
    file.truncate(position)
    segment.cuts += 1
    segment.size = segment.written = position
    segment.written_out = min(segment.written_out, position)
    segment.next_offset = next_offset
    index.cut_to_range(number)
    # These headers have been verified against the range's check, or have just been written; the
    # check of the shorter range is made from them.
    for at, header, batch in scan(file, segment.log_path, start, position):
        relative = header.base_offset - segment.base_offset
        prefix = batch[:WALKED_PREFIX_BYTES]
        index.add(relative, at, prefix, header.record_timestamp, position)
    index.seal()
    segment.max_timestamp = index.max_timestamp
    segment.checksum = checksum_of(file, position)
    segment.damage = tuple(each for each in segment.damage if each[2] < position)
    segment.unreadable = tuple(each for each in segment.unreadable if each[0] < next_offset)
    # The index file goes too: its blocks only ever grow.
    index.saved_entries = index.saved_position = 0
    directory.files.forget(segment.index_path)
    directory.disk.remove(segment.index_path)
