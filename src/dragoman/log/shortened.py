"""Segment files that lost their end after they were synced: what is left of them and verified."""

from __future__ import annotations

from dragoman.errors import CorruptionError
from dragoman.log.directory import DataDirectory
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.salvage import Bad, read_batches
from dragoman.log.segment import Segment, checksum_of
from dragoman.log.segment_reader import walk_range
from dragoman.world import Disk, File, read_whole


def keep_whole_part(directory: DataDirectory, segment: Segment, size: int) -> None:
    """Keep what is whole of a listed file that has `size` bytes left; refuse the rest."""
    file = directory.files.get_or_create(segment.log_path)
    end, next_offset = _border_before(directory.disk, segment, file, max(size, 0))
    # Behind ranges that are verified the file is surely ours, and a CRC is enough.
    for found in read_batches(file, end, max(size, 0), next_offset) if end else ():
        if isinstance(found, Bad):
            break
        end = found.position + found.header.size
        next_offset = found.header.last_offset + 1
    segment.size = segment.written = end
    segment.checksum = checksum_of(file, end)
    segment.damage = (*segment.damage, (next_offset, segment.next_offset, end))
    directory.files.forget(segment.index_path)
    directory.disk.remove(segment.index_path)


def _border_before(disk: Disk, segment: Segment, file: File, size: int) -> tuple[int, int]:
    """Byte and offset where the ranges end that lie in a shortened file and are verified."""
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
    """Cut an index to what is left and verified of its segment; None when that is nothing."""
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
    """How many ranges lie wholly in the first `size` bytes, if the last of them is what the index
    says; else 0. `covered`: bytes of the segment that the index speaks for."""
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
