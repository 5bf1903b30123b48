"""The producers of one partition as bytes, so that a start need not read the whole log.

Layout, little-endian:

    magic "DPST"  version u16  zero u16  crc32c u32          the CRC covers everything after itself
    offset i64  forgotten_below i64  producers u32  aborted u32
    per producer: id i64, epoch i16, batches u8, zero u8, next_sequence i32, history_records i64,
                  open_offset i64, changed_at i64, active_ms i64, coordinator_epoch i32
                  per batch: base_sequence i32, record_count i32, base_offset i64, timestamp i64
    per aborted transaction: producer id, first, last and last stable offset, i64 each

`offset` is the log end for which the snapshot is true: replay the log from there. A reader refuses
a version it does not know, and bytes that are not exactly as long as the counts say.
"""

from __future__ import annotations

from struct import Struct

from dragoman.checksum import crc32c
from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import (
    ABORTED_PER_PARTITION_MAX,
    PRODUCER_BATCHES_KEPT,
    PRODUCERS_PER_PARTITION_MAX,
)
from dragoman.log.producers.aborted import AbortedTransaction
from dragoman.log.producers.producer import CachedBatch, Producer
from dragoman.log.producers.states import ProducerStates
from dragoman.types import Buffer

VERSION = 1

_MAGIC = b"DPST"
_PREFIX = Struct("<4sHHI")
_COUNTS = Struct("<qqII")
_PRODUCER = Struct("<qhBxiqqqqi")
_BATCH = Struct("<iiqq")
_ABORTED = Struct("<qqqq")

#: A replay may exceed the bound by producers with open transactions, hence the slack.
_PRODUCERS_READ_MAX = 2 * PRODUCERS_PER_PARTITION_MAX
_ABORTED_READ_MAX = 2 * ABORTED_PER_PARTITION_MAX


def take_snapshot(states: ProducerStates, offset: int) -> bytes:
    """The state as bytes; `offset` is the log end it stands for."""
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
    """The state and the log end it stands for.

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
