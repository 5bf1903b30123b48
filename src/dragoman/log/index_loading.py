"""The sparse index of a segment that was not read at start, loaded or built again.

Without its index, a segment's headers can only be compared with the checksum of the whole file in
the manifest. When that fails although every record is sound, nobody can say which header is wrong,
and the whole segment is refused.
"""

from __future__ import annotations

import logging

from dragoman.checksum import crc32c
from dragoman.log.batch import WALKED_PREFIX_BYTES
from dragoman.log.index import Checkpoint, SparseIndex, load_index
from dragoman.log.partition import PartitionLog
from dragoman.log.salvage import Bad, read_batches
from dragoman.log.segment import Segment
from dragoman.world import Disk, read_whole

log = logging.getLogger("dragoman.log")


def load_segment_index(disk: Disk, partition: PartitionLog, segment: Segment) -> SparseIndex:
    """The index of a segment that is not read at start; rebuilt from the batches if need be."""
    if disk.exists(segment.index_path):
        index, checkpoint, _ = load_index(read_whole(disk, segment.index_path), segment.tag)
        is_whole = checkpoint is not None and checkpoint.position == segment.size
        if is_whole and (segment.damage or index.begins_with_segment):
            return index
    log.warning("%s is missing or damaged; built again", segment.index_path)
    index = _rebuilt_index(partition, segment)
    if segment.damage and partition.is_manifest_due:
        # An index that leads readers past damage must not be found by a start to which no manifest
        # has told of it.
        return index
    count = len(index)
    has_producers = partition.producers is not None
    checkpoint = Checkpoint(
        segment.size,
        segment.next_offset,
        segment.checksum,
        segment.max_timestamp,
        has_producers,
        segment.has_gaps,
    )
    block = index.unsaved_block(checkpoint, count, partition.store.tag_of(segment))
    partition.store.replace_index(segment, block)
    index.saved_entries, index.saved_position = count, segment.size
    return index


def _rebuilt_index(partition: PartitionLog, segment: Segment) -> SparseIndex:
    index = SparseIndex()
    file = partition.store.files.get(segment.log_path)
    checksum = 0
    expected = segment.base_offset
    damage = list(segment.damage)
    borders = _borders_behind_damage(segment)
    for found in read_batches(file, 0, segment.size, segment.base_offset, borders):
        if isinstance(found, Bad):
            index.seal()
            next_good = found.next_offset if found.next_offset >= 0 else segment.next_offset
            next_good = max(expected + 1, next_good)
            # More may be lost than was noted: then, somebody knew where to go on behind it.
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
        # Every record is sound and yet the file is not what it was: a bit in some header is wrong,
        # and without the index nobody can say in which.
        damage.append((segment.base_offset, segment.next_offset, 0))
    if len(damage) > len(segment.damage):
        segment.damage = tuple(damage)
        for first, next_good, position in damage:
            text = f"{segment.log_path} at byte {position}"
            partition.report(f"{text}: offsets {first} to {next_good - 1} are damaged")
        partition.manifest_version += 1
        partition.store.manifest_due(partition)
    return index


def _borders_behind_damage(segment: Segment) -> list[int]:
    """Nothing is known any more about where batches begin, once the index is gone."""
    return [position for _, _, position in segment.damage if position]
