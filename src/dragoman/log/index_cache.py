"""A bounded cache of sparse indexes of rolled segments: loaded when needed, rebuilt when lost.

Without its index, a segment's headers can only be compared with the checksum of the whole file in
the manifest. When that fails although every record is sound, it is unknown which header is wrong,
and the whole segment is refused.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from dragoman.checksum import crc32c
from dragoman.limits import CACHED_INDEXES_MAX
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.directory import FULL, DataDirectory
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.partition import PartitionLog
from dragoman.log.salvage import Bad, read_batches
from dragoman.log.segment import Segment
from dragoman.world import read_whole, replace_file

log = logging.getLogger("dragoman.log")


class IndexCache:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        #: Segments with a cached index by path, the one loaded longest ago first.
        self._segments: OrderedDict[str, Segment] = OrderedDict()

    def load(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        """A segment's index from its file, or rebuilt from the batches."""
        index = self._load(partition, segment)
        if segment.is_rolled:
            self.add(segment)
        return index

    def add(self, segment: Segment) -> None:
        """Add a rolled segment whose index is in memory; the one loaded longest ago is dropped."""
        self._segments[segment.log_path] = segment
        if len(self._segments) > CACHED_INDEXES_MAX:
            _, oldest = self._segments.popitem(last=False)
            if oldest.is_rolled and not _needs_saving(oldest):
                oldest.index = None

    def _load(self, partition: PartitionLog, segment: Segment) -> SparseIndex:
        disk = self._directory.disk
        if disk.exists(segment.index_path):
            index, checkpoint, _ = load_index(read_whole(disk, segment.index_path), segment.tag)
            is_whole = checkpoint is not None and checkpoint.position == segment.size
            if is_whole and (segment.damage or index.begins_with_segment):
                return index
        log.warning("%s is missing or damaged; it is rebuilt", segment.index_path)
        index = _rebuilt_index(partition, segment)
        if segment.damage and partition.is_manifest_due:
            # The index leaves out damaged batches. It must not be on disk before a manifest records
            # that damage.
            return index
        count = len(index)
        checkpoint = Checkpoint(
            segment.size,
            segment.next_offset,
            segment.checksum,
            segment.max_timestamp,
            partition.producers is not None,
            segment.has_gaps,
        )
        block = index.unsaved_block(checkpoint, count, self._directory.tag_of(segment))
        self.replace(segment, block)
        index.saved_entries, index.saved_position = count, segment.size
        return index

    def replace(self, segment: Segment, data: bytes) -> None:
        """Write a rebuilt index. A full disk is ignored: it can be rebuilt again."""
        self._directory.files.forget(segment.index_path)
        try:
            replace_file(self._directory.disk, segment.index_path, data)
        except OSError as error:
            if error.errno not in FULL:
                self._directory.fail(error)


def _needs_saving(segment: Segment) -> bool:
    return segment.index is not None and segment.index.saved_entries < len(segment.index)


def _rebuilt_index(partition: PartitionLog, segment: Segment) -> SparseIndex:
    index = SparseIndex()
    file = partition.store.directory.files.get(segment.log_path)
    checksum = 0
    expected = segment.base_offset
    damage = list(segment.damage)
    borders = _borders_behind_damage(segment)
    for found in read_batches(file, 0, segment.size, segment.base_offset, borders):
        if isinstance(found, Bad):
            index.seal()
            next_good = found.next_offset if found.next_offset >= 0 else segment.next_offset
            next_good = max(expected + 1, next_good)
            # More may be lost than is recorded, but recorded damage may end earlier.
            if not any(each[0] <= expected and next_good <= each[1] for each in damage):
                damage.append((expected, next_good, found.position))
            expected = next_good
            continue
        relative = found.header.base_offset - segment.base_offset
        prefix = found.batch[:WALKED_PREFIX_BYTES]
        timestamp, interval = found.header.record_timestamp, partition.config.index_interval_bytes
        index.add(relative, found.position, prefix, timestamp, interval)
        checksum = crc32c(found.batch, checksum)
        expected = found.header.last_offset + 1
    index.seal()
    if len(damage) == len(segment.damage) and not damage and checksum != segment.checksum:
        # Every record is sound, yet the file's checksum differs: a bit in some header is wrong, and
        # without the index it is unknown in which.
        damage.append((segment.base_offset, segment.next_offset, 0))
    if len(damage) > len(segment.damage):
        segment.damage = tuple(damage)
        for first, next_good, position in damage:
            text = f"{segment.log_path} at byte {position}"
            problem = f"{text}: offsets {first} to {next_good - 1} are damaged"
            partition.report(problem, (segment.log_path, position))
        partition.manifest_version += 1
        partition.store.manifest_due(partition)
    return index


def _borders_behind_damage(segment: Segment) -> list[int]:
    """Positions at which batches may resume; without the index, only recorded damage has them."""
    return [position for _, _, position in segment.damage if position]
