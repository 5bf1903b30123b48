"""Record batches (magic 2): the unit of the log, on disk as on Kafka's wire.

    0   base offset i64        8   length i32 (of what follows)      12  leader epoch i32
    16  magic i8 (2)           17  CRC-32C u32 over 21..end          21  attributes i16
    23  last offset delta i32  27  base timestamp i64                35  max timestamp i64
    43  producer id i64        51  producer epoch i16                53  base sequence i32
    57  record count i32       61  records, compressed as one block when a codec is set

The produce and fetch paths read the header only. Base offset and leader epoch lie outside the CRC,
so assigning them needs no new checksum; for the same reason the sparse index (`log/index.py`) has a
check of its own for them. Code that needs the records decodes them here: compaction, search by
time, internal topics, tools.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.compression import Codec, compress, decompress
from dragoman.text_cache import cached_by_text
from dragoman.types import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
#: What a reader needs to walk over batches: base offset, length, last offset delta.
WALK = struct.Struct(">qi11xi")
#: Base offset, length and leader epoch: one call writes both assigned fields, and the length again.
_PLACE = struct.Struct(">qii")
_CRC = struct.Struct(">I")
#: Producer id, producer epoch and base sequence.
_PRODUCER = struct.Struct(">qhi")
_ATTRIBUTES_AND_BELOW = 21
#: Size of base offset and length, which the length field does not count.
LENGTH_PREFIX_BYTES = 12
#: Size of the fields that the CRC does not cover, with the CRC itself.
UNCHECKED_PREFIX_BYTES = 21
#: Size of the prefix that the sparse index checks: the fields outside the CRC, and those that a
#: reader uses to walk over a batch without verifying its CRC.
WALKED_PREFIX_BYTES = 27
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class BatchHeader(NamedTuple):
    """All fields of a header in wire order. A named tuple, since one is made per produced batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def record_timestamp(self) -> int:
        """The latest timestamp of a record that searches by time may find; -1 for markers.

        librdkafka sends a maximum of 0 for records without a timestamp. A batch that begins with
        one, and has no later timestamp, counts as a batch without timestamps.
        """
        latest, attributes = self.max_timestamp, self.attributes
        if attributes & CONTROL:
            return NO_TIMESTAMP
        if latest <= 0 and self.base_timestamp == NO_TIMESTAMP and not attributes & LOG_APPEND_TIME:
            return NO_TIMESTAMP
        return latest

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One decoded record. `timestamp` is in milliseconds since 1970, -1 for none."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NO_TIMESTAMP
    #: Offset in its partition; relative to its batch while the batch is being built.
    offset: int = 0


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch at the start of `view`.

    Raises `DecodeError` when the bytes cannot be a batch of magic 2 that ends inside `view`.
    """
    available = len(view) - position
    if available < BATCH_HEADER_BYTES:
        raise DecodeError(f"batch header needs {BATCH_HEADER_BYTES} bytes, got {available}")
    header = BatchHeader._make(HEADER.unpack_from(view, position))
    if header.magic != MAGIC:
        raise DecodeError(f"batch has magic {header.magic}, only {MAGIC} is supported")
    if (
        not BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES
        <= header.length
        <= available - LENGTH_PREFIX_BYTES
    ):
        raise DecodeError(f"batch length {header.length} does not fit in {available} bytes")
    return header


def crc_matches(view: memoryview, header: BatchHeader) -> bool:
    """Whether the CRC is right; `view` is exactly one batch."""
    return bool(crc32c(view[_ATTRIBUTES_AND_BELOW:]) == header.crc)


def check_batch(view: memoryview, position: int = 0) -> BatchHeader:
    """Header of the batch at `position`, its CRC and counts verified. Raises `DecodeError`."""
    header = read_header(view, position)
    if not crc_matches(view[position : position + header.size], header):
        raise DecodeError(f"batch at byte {position} fails its CRC")
    if header.last_offset_delta < 0 or header.base_offset < 0 or header.record_count < 0:
        raise DecodeError(f"batch at byte {position} has a negative count or offset")
    return header


def assign(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into a batch."""
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - LENGTH_PREFIX_BYTES, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Make this a LogAppendTime batch: set its flag and timestamp, and compute the CRC again."""
    (attributes,) = struct.unpack_from(">h", batch, 21)
    struct.pack_into(">h", batch, 21, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, now_ms)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[_ATTRIBUTES_AND_BELOW:]))


def stamp_max_timestamp(batch: bytearray | memoryview, latest_ms: int) -> None:
    """Set the latest timestamp in the header, and compute the CRC again."""
    struct.pack_into(">q", batch, 35, latest_ms)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[_ATTRIBUTES_AND_BELOW:]))


def stamp_producer(
    batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int
) -> None:
    """Make this a batch of another producer, and compute the CRC again."""
    _PRODUCER.pack_into(batch, 43, producer_id, epoch, sequence)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[_ATTRIBUTES_AND_BELOW:]))


# ---- building


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    base_timestamp: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """A batch with these records, in a fresh mutable buffer.

    With `last_offset_delta` (a compacted batch), the records keep their offsets. Otherwise their
    offsets count up from `base_offset`.
    """
    if not records and last_offset_delta is None:
        raise ValueError("a batch needs a record")
    thinned = last_offset_delta is not None
    timestamps = [record.timestamp for record in records]
    first = base_timestamp if base_timestamp is not None else (timestamps[0] if timestamps else -1)
    if thinned:
        encoded = [
            record_bytes(record, record.timestamp - first, record.offset) for record in records
        ]
    else:
        encoded = _records_in_a_row(records, first)
    return _assemble(
        encoded,
        BatchHeader(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes | codec,
            last_offset_delta if last_offset_delta is not None else len(records) - 1,
            first,
            max(timestamps, default=first),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        ),
    )


def assemble_batch(body: Buffer, header: BatchHeader) -> bytearray:
    """A batch of encoded records. Length and CRC are computed, other fields are those of `header`.

    The records are compressed with the codec that the header's attributes name.
    """
    return _assemble((body,), header)


def _assemble(body: Sequence[Buffer], header: BatchHeader) -> bytearray:
    codec = Codec(header.attributes & CODEC_MASK)
    if codec:
        body = (compress(codec, b"".join(body)),)
    # The parts are joined in place: in a large batch, copying is most of the work.
    batch = bytearray().join((_HEADER_TO_COME, *body))
    HEADER.pack_into(batch, 0, header[0], len(batch) - LENGTH_PREFIX_BYTES, *header[2:])
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[_ATTRIBUTES_AND_BELOW:]))
    return batch


def record_bytes(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    """One record in wire form."""
    key, value, headers = record.key, record.value, record.headers
    head = b"\x00" + varint(timestamp_delta) + varint(offset_delta)
    head += _NULL if key is None else varint(len(key)) + key
    # The value, by far the longest part, is copied only once.
    if value is None:
        head, value = head + _NULL, b""
    else:
        head += varint(len(value))
    tail = _headers_bytes(headers)
    return b"".join((varint(len(head) + len(value) + len(tail)), head, value, tail))


def _headers_bytes(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    pieces = [varint(len(headers))]
    for name, content in headers:
        pieces.append(_header_name(name))
        if content is None:
            pieces.append(_NULL)
        else:
            pieces += (varint(len(content)), content)
    return b"".join(pieces)


@cached_by_text(1024)
def _header_name(name: str) -> bytes:
    """An encoded header name with its length. Cached: few names occur in many records."""
    encoded = name.encode()
    return varint(len(encoded)) + encoded


def _records_in_a_row(records: Sequence[Record], first_timestamp: int) -> list[bytes]:
    """Pieces of encoded records. Unrolled for the most frequent ones: short, and without headers or
    with those of the record before."""
    pieces: list[bytes] = []
    varints, count = _SMALL_VARINTS, _SMALL_VARINTS_COUNT
    headers: Sequence[tuple[str, bytes | None]] = ()
    tail = b"\0"
    for index, record in enumerate(records):
        key, value = record.key, record.value
        elapsed = record.timestamp - first_timestamp
        if record.headers is not headers:
            headers = record.headers
            tail = _headers_bytes(headers)
        if (
            value is None
            or len(value) + len(tail) >= count - _PLAIN_HEAD_BYTES_MAX
            or index >= count
            or not 0 <= elapsed < count
            or (key is not None and len(key) >= _PLAIN_KEY_BYTES_MAX)
        ):
            pieces.append(record_bytes(record, elapsed, index))
            continue
        head = b"\0" + varints[elapsed] + varints[index]
        head += _NULL if key is None else varints[len(key)] + key
        head += varints[len(value)]
        pieces += (varints[len(head) + len(value) + len(tail)], head, value, tail)
    return pieces


def varint(value: int) -> bytes:
    """A zigzag varint. Small values, which nearly all are, come from a table."""
    if 0 <= value < _SMALL_VARINTS_COUNT:
        return _SMALL_VARINTS[value]
    return _long_varint(value)


def _long_varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL_VARINTS_COUNT = 2048
_HEADER_TO_COME = bytes(BATCH_HEADER_BYTES)
#: Bytes of the key, and of everything before the value, up to which a record is encoded by the
#: unrolled code.
_PLAIN_KEY_BYTES_MAX = 64
_PLAIN_HEAD_BYTES_MAX = _PLAIN_KEY_BYTES_MAX + 12
_SMALL_VARINTS = [_long_varint(value) for value in range(_SMALL_VARINTS_COUNT)]
_NULL = _long_varint(-1)


# ---- transaction markers


class Marker(NamedTuple):
    """The end of a transaction, as recorded in a control record."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, timestamp: int
) -> bytearray:
    """A control batch of one record."""
    key = struct.pack(">hh", 0, 1 if marker.is_commit else 0)
    value = struct.pack(">hi", 0, marker.coordinator_epoch)
    return build_batch(
        [Record(key=key, value=value, timestamp=timestamp)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def read_marker(record: Record) -> Marker:
    """Raises `DecodeError` when the control record is not a transaction marker."""
    if record.key is None or len(record.key) < 4 or record.value is None or len(record.value) < 6:
        raise DecodeError("control record is too short")
    _, kind = struct.unpack_from(">hh", record.key)
    _, coordinator_epoch = struct.unpack_from(">hi", record.value)
    if kind not in (0, 1):
        raise DecodeError(f"control record has type {kind}")
    return Marker(kind == 1, coordinator_epoch)


# ---- reading records


def batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each batch of back-to-back batches with its header; CRC and counts verified."""
    position = 0
    while position < len(view):
        header = check_batch(view, position)
        yield header, view[position : position + header.size]
        position += header.size


def records(batch: memoryview, header: BatchHeader, bytes_max: int | None = None) -> list[Record]:
    """All records of one batch, with absolute offsets. Raises `DecodeError`, and
    `OversizedBatchError` for a compressed batch that expands to more than `bytes_max`.
    """
    return list(iterate_records(batch, header, bytes_max))


def iterate_records(
    batch: memoryview, header: BatchHeader, bytes_max: int | None = None
) -> Iterator[Record]:
    """All records of one batch, decoded one by one, so that a large batch can be decoded in slices.
    Raises like `records`.
    """
    payload: Buffer = batch[BATCH_HEADER_BYTES:]
    codec = header.attributes & CODEC_MASK
    yield from parse_records(
        decompress(codec, payload, bytes_max) if codec else bytes(payload), header
    )


def parse_records(
    data: bytes, header: BatchHeader, position: int = 0, index: int = 0
) -> Iterator[Record]:
    """Decode records from plain bytes, from number `index` on, which begins at `position`."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    try:
        for _ in range(header.record_count - index):
            size, position = read_varint(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise DecodeError(f"record of {size} bytes in {len(data) - position}")
            yield _read_record(data[position:end], header, append_time)
            position = end
    except (IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"record is cut off or malformed: {error}") from None
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes after the last record")


def _read_record(data: bytes, header: BatchHeader, append_time: int | None) -> Record:
    timestamp_delta, position = read_varint(data, 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data):
        raise DecodeError(f"{count} headers in a record of {len(data)} bytes")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        headers, position = _read_headers(data, position, count)
    if position != len(data):
        raise DecodeError(f"record has {len(data) - position} bytes too many")
    return Record(
        key=key,
        value=value,
        headers=headers,
        timestamp=append_time
        if append_time is not None
        else header.base_timestamp + timestamp_delta,
        offset=header.base_offset + offset_delta,
    )


def _read_headers(
    data: bytes, position: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Decode headers. Unrolled for sizes of one byte, which nearly all are. The caller checks the
    end."""
    headers = []
    for _ in range(count):
        size = data[position]
        if size & 0x81:
            size, position = read_varint(data, position)
            if size < 0:
                raise DecodeError("a header has no name")
        else:
            size >>= 1
            position += 1
        end = position + size
        name = data[position:end].decode()
        size = data[end]
        if size & 0x81:
            content, position = _read_bytes(data, end)
        else:
            position = end + 1 + (size >> 1)
            content = data[end + 1 : position]
        headers.append((name, content))
    return tuple(headers), position


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    byte = data[position]
    position += 1
    result = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > 63:
            raise DecodeError("varint is longer than ten bytes")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
    return (result >> 1) ^ -(result & 1), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise DecodeError(f"field of {size} bytes in {len(data) - position}")
    return data[position:end], end


def marker_of(header: BatchHeader, batch: memoryview) -> Marker:
    """The marker in a control batch. Raises `DecodeError`."""
    found = records(batch, header)
    if len(found) != 1:
        raise DecodeError(f"control batch at {header.base_offset} has {len(found)} records")
    return read_marker(found[0])
