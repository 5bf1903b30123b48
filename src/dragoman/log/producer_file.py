"""`producers.snapshot`: a partition's producer state, so that a start need not read the whole log.

    file       CRC-32C u32 over everything after itself, sequence u64, then the snapshot
    snapshot   magic "DPST"  version u16  zero u16  crc32c u32 over everything after itself
               offset i64  forgotten_below i64  producers u32  aborted u32
               per producer: id i64, epoch i16, batches u8, zero u8, next_sequence i32,
                             history_records i64, open_offset i64, changed_at i64, active_ms i64,
                             coordinator_epoch i32
                             per batch: base_sequence i32, record_count i32, base_offset i64,
                                        timestamp i64
               per aborted transaction: producer id, first, last and last stable offset, i64 each

All numbers are little-endian. The file's CRC is seeded with the partition's id (without a seed
below `TAGGED_FILES_LEVEL`), so the state of another partition is refused. A reader also refuses an
unknown version, and bytes that are not exactly as long as the counts say.

The snapshot is valid for `offset`, the log's end when it was taken; batches behind it are read from
the log. A later truncation below that end invalidates it; that truncation is in the journal with a
higher sequence, so recovery detects it.

When the file is missing or damaged, the state is rebuilt from the log. If the log no longer holds
everything that producers wrote, `ProducerStates.state_lost` records it, and unknown producers may
begin with any sequence.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import NamedTuple

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import (
    ABORTED_PER_PARTITION_MAX,
    PRODUCER_BATCHES_KEPT,
    PRODUCERS_PER_PARTITION_MAX,
)
from dragoman.log.isolation import AbortedTransaction
from dragoman.log.partition import PartitionLog
from dragoman.log.producer import CachedBatch, Producer
from dragoman.log.producer_states import ProducerStates
from dragoman.log.segment import Segment
from dragoman.log.segment_reader import batches_of_range, index_for_reading
from dragoman.log.truncations import Truncation
from dragoman.types import Buffer
from dragoman.world import read_whole

NAME = "producers.snapshot"
_HEAD = Struct("<IQ")
_SEQUENCE = Struct("<Q")
VERSION = 1
_MAGIC = b"DPST"
_PREFIX = Struct("<4sHHI")
_COUNTS = Struct("<qqII")
_PRODUCER = Struct("<qhBxiqqqqi")
_BATCH = Struct("<iiqq")
_ABORTED = Struct("<qqqq")
#: A replay may exceed the bounds by producers with open transactions: readers accept twice as much.
_PRODUCERS_READ_MAX = 2 * PRODUCERS_PER_PARTITION_MAX
_ABORTED_READ_MAX = 2 * ABORTED_PER_PARTITION_MAX
#: An offset above all others: any producer may have been forgotten.
_ALL_PRODUCERS = 1 << 62
log = logging.getLogger("dragoman.log")


def take_snapshot(states: ProducerStates, offset: int) -> bytes:
    """The state as bytes; `offset` is the log end for which it is valid."""
    producers = states.producers()
    aborted = states.aborted()
    parts = [_COUNTS.pack(offset, states.forgotten_below(), len(producers), len(aborted))]
    for producer_id, producer in producers.items():
        parts.append(_pack_producer(producer_id, producer))
        parts.extend(
            _BATCH.pack(each.base_sequence, each.record_count, each.base_offset, each.timestamp)
            for each in producer.batches
        )
    parts.extend(
        _ABORTED.pack(
            each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset
        )
        for each in aborted
    )
    body = b"".join(parts)
    return _PREFIX.pack(_MAGIC, VERSION, 0, crc32c(body)) + body


def load_snapshot(data: Buffer, source: str) -> tuple[ProducerStates, int]:
    """The state and the log end for which it is valid.

    Raises `CorruptionError`, which names `source`, or `FormatError` for a version from the future.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size + _COUNTS.size:
        raise CorruptionError(source, len(view), "producer snapshot ends inside its header")
    magic, version, _, checksum = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise CorruptionError(source, 0, f"expected a producer snapshot, found {bytes(magic)!r}")
    if version != VERSION:
        raise FormatError(f"{source}: producer snapshot version {version}, known is {VERSION}")
    body = view[_PREFIX.size :]
    if crc32c(body) != checksum:
        raise CorruptionError(source, _PREFIX.size, "producer snapshot does not match its checksum")
    return _load_body(body, source)


def _load_body(body: memoryview, source: str) -> tuple[ProducerStates, int]:
    offset, forgotten_below, producer_count, aborted_count = _COUNTS.unpack_from(body)
    if producer_count > _PRODUCERS_READ_MAX or aborted_count > _ABORTED_READ_MAX:
        raise CorruptionError(
            source, _PREFIX.size, f"{producer_count} producers, {aborted_count} aborted: too many"
        )
    producers: dict[int, Producer] = {}
    position = _COUNTS.size
    for _ in range(producer_count):
        position = _load_producer(body, position, producers, source)
    rest = body[position:]
    if len(rest) != aborted_count * _ABORTED.size:
        raise CorruptionError(
            source,
            _PREFIX.size + position,
            f"expected {aborted_count} aborted transactions, found {len(rest)} bytes",
        )
    aborted = [AbortedTransaction(*row) for row in _ABORTED.iter_unpack(rest)]
    return ProducerStates.restored(offset, forgotten_below, producers, aborted), offset


def _pack_producer(producer_id: int, producer: Producer) -> bytes:
    return _PRODUCER.pack(
        producer_id,
        producer.epoch,
        len(producer.batches),
        producer.next_sequence,
        producer.history_records,
        producer.open_offset,
        producer.changed_at,
        producer.active_ms,
        producer.coordinator_epoch,
    )


def _load_producer(
    body: memoryview, position: int, producers: dict[int, Producer], source: str
) -> int:
    """Read one producer and return where the next one begins."""
    start = _PREFIX.size + position
    if len(body) - position < _PRODUCER.size:
        raise CorruptionError(source, start, "producer snapshot ends inside a producer")
    row = _PRODUCER.unpack_from(body, position)
    producer_id, epoch, batch_count, next_sequence, history = row[:5]
    open_offset, changed_at, active_ms, coordinator_epoch = row[5:]
    position += _PRODUCER.size
    end: int = position + batch_count * _BATCH.size
    if batch_count > PRODUCER_BATCHES_KEPT or end > len(body):
        raise CorruptionError(source, start, f"producer {producer_id} claims {batch_count} batches")
    batches = tuple(CachedBatch(*each) for each in _BATCH.iter_unpack(body[position:end]))
    producers[producer_id] = Producer(
        epoch,
        next_sequence,
        history,
        batches,
        open_offset,
        changed_at,
        active_ms,
        coordinator_epoch,
    )
    return end


class ProducerFile(NamedTuple):
    states: ProducerStates
    #: The log's end for which the states are valid.
    offset: int
    #: The last journal group when the snapshot was taken.
    sequence: int


def encode_producers(
    states: ProducerStates, offset: int, sequence: int, partition_id: int
) -> bytes:
    body = _SEQUENCE.pack(sequence) + take_snapshot(states, offset)
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
    """What recovery knows about producers before the file is read."""

    #: Offset below which no producer wrote; None when unknown.
    none_below: int | None = None
    truncations: tuple[Truncation, ...] = ()
    #: Whether deleted records were lost before their producers could be recorded.
    has_holes: bool = False


def load_producers(partition: PartitionLog, believed: Believed) -> None:
    """Load the producer state: the file, then the batches behind it up to the log's end."""
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
    """Whether batches of producers behind `offset` may no longer be in the log."""
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
    # Newer evidence that no producer wrote below a later offset contradicts the file.
    is_cut = is_cut or (believed.none_below or -1) >= found.offset
    if is_cut or found.offset > partition.log_end_offset:
        log.info("%s is ahead of the log; producer state is rebuilt from the log", path)
        # The next checkpoint, at the latest the one that ends this start, writes a valid one.
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
            # The producers of the damaged batch are unknown.
            partition.report(f"{error}; producer state may lack the batches there")
        number += 1
