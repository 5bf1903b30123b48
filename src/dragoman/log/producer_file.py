"""A partition's producer state: the file that keeps it, and the batches written after the file.

    CRC-32C u32 over everything after itself, sequence u64, then a `producers/snapshot.py` snapshot

The CRC is seeded with the partition's id (not at all below `TAGGED_FILES_LEVEL`): the state of
another partition is not believed.

The snapshot is true for the log's end when it was taken. A later truncation below that end makes it
false; the truncation is in the journal with a higher sequence, which is how recovery can tell.

The file may also be missing or damaged. Then the state is built from the log; if the log no longer
holds everything that producers wrote, the state says so (`ProducerStates.state_lost`), and unknown
producers are let in with any sequence.
"""

from __future__ import annotations

import logging
import struct
from typing import NamedTuple

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError
from dragoman.log.partition import PartitionLog
from dragoman.log.producers import ProducerStates, load_snapshot, take_snapshot
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import batches_of_range, index_for_reading
from dragoman.log.truncations import Truncation
from dragoman.world import read_whole

NAME = "producers.snapshot"
_HEAD = struct.Struct("<IQ")
#: Every producer id lies below: what is known of producers may have been more.
_ALL_PRODUCERS = 1 << 62
log = logging.getLogger("dragoman.log")


class ProducerFile(NamedTuple):
    states: ProducerStates
    #: The log's end for which the states are true.
    offset: int
    #: The last journal group when they were taken.
    sequence: int


def encode_producers(
    states: ProducerStates, offset: int, sequence: int, partition_id: int
) -> bytes:
    body = struct.pack("<Q", sequence) + take_snapshot(states, offset)
    return crc32c(body, partition_id).to_bytes(4, "little") + body


def decode_producers(data: bytes, path: str, partition_id: int) -> ProducerFile:
    """Raises `CorruptionError`, or `FormatError` for a version from the future."""
    if len(data) < _HEAD.size:
        raise CorruptionError(path, len(data), "file ends inside its header")
    crc, sequence = _HEAD.unpack_from(data)
    view = memoryview(data)
    if crc not in (crc32c(view[4:], partition_id), crc32c(view[4:])):
        raise CorruptionError(path, 0, "file fails its checksum")
    states, offset = load_snapshot(view[_HEAD.size :], path)
    return ProducerFile(states, offset, sequence)


class Believed(NamedTuple):
    """What recovery knows about the producer file before it is read."""

    #: No producer wrote below this offset; None when that is not known.
    none_below: int | None = None
    truncations: tuple[Truncation, ...] = ()
    #: Records that are deleted by now were lost before their producers could be noted.
    has_holes: bool = False


def load_producers(partition: PartitionLog, believed: Believed) -> None:
    """Bring the producer state up to the log's end: the file, then the batches after it."""
    found = _read_producer_file(partition, believed)
    partition.producers = found.states if found is not None else None
    if found is not None:
        offset = found.offset
    elif believed.none_below is not None:
        offset = believed.none_below
    else:
        offset = 0
    if believed.has_holes or _may_have_forgotten(partition, offset):
        if partition.producers is None:
            partition.producers = ProducerStates()
        partition.producers.state_lost(_ALL_PRODUCERS)
    for segment in partition.all_segments():
        if segment.next_offset > offset:
            _note_producers(partition, segment, offset)
    if partition.producers is not None:
        partition.producers.drop_below(partition.log_start_offset)
        partition.producers.settle(partition.high_watermark)


def _may_have_forgotten(partition: PartitionLog, offset: int) -> bool:
    """Whether producers may have written behind `offset` what is no longer in the log."""
    segments = partition.all_segments()
    first = segments[0].base_offset if segments else partition.log_end_offset
    is_compacted = any(each.has_gaps for each in segments if each.next_offset > offset)
    return first > offset or is_compacted


def _read_producer_file(partition: PartitionLog, believed: Believed) -> ProducerFile | None:
    disk = partition.store.directory.disk
    path = f"{partition.directory}/{NAME}"
    if not partition.has_producer_file or partition.producer_file_end < 0:
        return None
    partition.producer_file_end = -1
    try:
        found = decode_producers(read_whole(disk, path), path, partition.identity.partition_id)
    except CorruptionError as error:
        partition.report(f"{error}; producer state is rebuilt from the log")
        partition.manifest_version += 1
        return None
    is_cut = any(
        each.sequence > found.sequence and (each.is_restart or each.next_offset < found.offset)
        for each in believed.truncations
    )
    # There were producers, says the file; none below a later offset, says something newer.
    is_cut = is_cut or (believed.none_below or -1) >= found.offset
    if is_cut or found.offset > partition.log_end_offset:
        log.info("%s is ahead of the log; producer state is rebuilt from the log", path)
        # The next checkpoint, at the latest the one that ends this start, puts a right one there.
        partition.manifest_version += 1
        return None
    partition.producer_file_end = found.offset
    return found


def _note_producers(partition: PartitionLog, segment: Segment, offset: int) -> None:
    index = index_for_reading(partition, segment)
    number = index.range_holding(max(0, offset - segment.base_offset))
    while number < index.range_count:
        try:
            for place, header, batch in batches_of_range(partition, segment, number):
                if place.base_offset >= offset:
                    partition.note_producer(header, batch)
        except CorruptionError as error:
            # What producers wrote there cannot be told any more.
            partition.report(f"{error}; producer state may lack what was written there")
        number += 1
