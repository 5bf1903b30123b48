"""Event records, their partitions, and their batches.

Headers are built in wire format: most of their bytes are the same for all rows of a table or
transaction, so they are encoded once and joined.

An event id is a UUID of version 7 that depends only on the source, so a change that is captured
twice has the same id both times:

    | commit time ms 48 | 7 | hash of system and LSN 12 | 2 | rest of the hash 30 | position 32 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from dragoman.log.batch import (
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    assemble_batch,
    varint,
)

_BASIS: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_LOW_PRIME: Final = 0x193
#: Up to this count, the low bits of a hash depend only on the low bits of the prime.
_LOW_COUNT_MAX: Final = 1 << 24
_NULL: Final = varint(-1)
_VARINTS: Final = [varint(value) for value in range(2048)]
#: A record without key, value and headers: its own size, attributes, deltas and sizes.
_RECORD_BYTES_MAX: Final = 24


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """Takes positional arguments for speed: there is one per row. `timestamp` is in ms."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    #: Headers in wire format, without their count.
    headers: bytes
    timestamp: int

    @property
    def size(self) -> int:
        """Upper bound of the record's size in a batch."""
        return _RECORD_BYTES_MAX + len(self.key or b"") + len(self.value or b"") + len(self.headers)


class TopicNeeded(Exception):  # noqa: N818  # A request, not a failure.
    """Raised when the number of partitions of `topic` is needed. A new topic gets `partitions`."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(topic)
        self.topic = topic
        self.partitions = partitions


# ---- partitions


def partitioner(count: int) -> Callable[[bytes], int]:
    """A function from a key to its partition: 32-bit FNV-1a modulo the number of partitions."""
    if count & (count - 1) or count > _LOW_COUNT_MAX:
        return lambda key: _fnv1a_32(key) % count
    mask = count - 1
    start = _BASIS & mask

    def partition(key: bytes) -> int:
        # The low bits of sums and products depend only on low bits, so large integers are
        # unnecessary.
        value = start
        for byte in key:
            value = (value ^ byte) * _LOW_PRIME & mask
        return value

    return partition


def _fnv1a_32(key: bytes) -> int:
    value = _BASIS
    for byte in key:
        value = (value ^ byte) * _PRIME & 0xFFFF_FFFF
    return value


# ---- headers


def sized(content: bytes) -> bytes:
    """The content prefixed with its size, as names and values of headers are."""
    return varint(len(content)) + content


def headers_bytes(pairs: Iterable[tuple[str, bytes | None]]) -> bytes:
    pieces = []
    for name, content in pairs:
        pieces.append(sized(name.encode()) + (_NULL if content is None else sized(content)))
    return varint(len(pieces)) + b"".join(pieces)


# ---- batches


def build_event_batch(
    records: Sequence[EventRecord],
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = True,
) -> bytearray:
    """Build a batch from records of the same partition."""
    first = records[0].timestamp
    body, latest = _encoded(records, first)
    return assemble_batch(
        body,
        BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=0,
            magic=MAGIC,
            crc=0,
            attributes=TRANSACTIONAL if is_transactional else 0,
            last_offset_delta=len(records) - 1,
            base_timestamp=first,
            max_timestamp=latest,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(records),
        ),
    )


def _encoded(records: Sequence[EventRecord], first: int) -> tuple[bytes, int]:
    pieces: list[bytes] = []
    varints, count = _VARINTS, len(_VARINTS)
    latest = first
    for index, record in enumerate(records):
        key, value, headers = record.key, record.value, record.headers
        elapsed = record.timestamp - first
        if record.timestamp > latest:
            latest = record.timestamp
        head = b"\0" + (varints[elapsed] if 0 <= elapsed < count else varint(elapsed))
        head += varints[index] if index < count else varint(index)
        if key is None:
            head += _NULL
        else:
            head += (varints[len(key)] if len(key) < count else varint(len(key))) + key
        if value is None:
            head, value = head + _NULL, b""
        else:
            head += varints[len(value)] if len(value) < count else varint(len(value))
        size = len(head) + len(value) + len(headers)
        pieces += (varints[size] if size < count else varint(size), head, value, headers)
    return b"".join(pieces), latest


# ---- the source transaction, in the headers of its records


_VERSION: Final = 7 << 12
_VARIANT: Final = 0x8000_0000
EVENT_ID_NAME: Final = sized(b"pgcdc-event-id") + varint(36)
_LSN: Final = sized(b"pgcdc-lsn") + varint(16)
_SEQ: Final = sized(b"pgcdc-seq")
_XID: Final = sized(b"pgcdc-xid")
_CAPTURE: Final = sized(b"pgcdc-capture")
_DATABASE: Final = sized(b"pgcdc-database")
#: Event id, LSN, position, transaction, capture and database, which every captured record has.
COMMON_HEADERS: Final = 6
#: The number of headers of a row: two of the table, and the common ones.
_COUNT: Final = varint(2 + COMMON_HEADERS)
_CHANNEL: Final = sized(b"pgcdc-channel")
_OPERATION: Final = sized(b"pgcdc-operation")
_SMALL: Final = 4096
_DECIMALS: Final = [sized(b"%d" % value) for value in range(_SMALL)]
#: Sizes of decimal numbers, which have at most twenty digits.
_SIZES: Final = [varint(size) for size in range(21)]
_HEX: Final = [b"%08x" % value for value in range(_SMALL)]


class Transaction:
    """A source transaction. The encoder increments `seq`, the number of the last event."""

    __slots__ = (
        "_after_id",
        "_id_start",
        "_last_headers",
        "_xid_header",
        "counts",
        "lsn",
        "lsn_text",
        "seq",
        "system",
        "time_ms",
        "time_us",
        "xid",
    )

    def __init__(self, *, lsn: int, xid: int, time_us: int) -> None:
        """`lsn` and `time_us` (since 1970) belong to the commit."""
        self.lsn = lsn
        self.xid = xid
        self.time_us = time_us
        self.time_ms = time_us // 1000
        self.seq = 0
        #: Sixteen digits, so that LSNs sort as text.
        self.lsn_text = b"%016x" % lsn
        #: Events for each table, if events about transactions are configured.
        self.counts: dict[str, int] = {}
        self.system = ""
        self._id_start = b""
        self._after_id = _LSN + self.lsn_text + _SEQ
        self._xid_header = self._last_headers = _XID + sized(b"%d" % xid)

    def belong_to(self, system: str, source: bytes) -> None:
        """Set the database system, on which event ids depend. `source` comes from
        `source_headers`.
        """
        self.system = system
        self._id_start = _id_start(f"{system} {self.lsn}", self.time_ms)
        self._last_headers = self._xid_header + source

    def event_id(self, seq: int) -> bytes:
        """The id of an event, as text."""
        return self._id_start + (_HEX[seq] if seq < _SMALL else b"%08x" % (seq & 0xFFFF_FFFF))

    def headers(self, opening: bytes, seq: int) -> bytes:
        """All headers in wire format. `opening` has the first ones (see `headers_opening`)."""
        is_small = seq < _SMALL
        return b"".join(
            (
                opening,
                self._id_start,
                _HEX[seq] if is_small else b"%08x" % (seq & 0xFFFF_FFFF),
                self._after_id,
                _DECIMALS[seq] if is_small else _sized_decimal(seq),
                self._last_headers,
            )
        )


def _sized_decimal(value: int) -> bytes:
    text = b"%d" % value
    return _SIZES[len(text)] + text


def source_headers(capture: str, database: str) -> bytes:
    """The headers that name capture and database, because several captures may share a topic."""
    return b"".join((_CAPTURE, sized(capture.encode()), _DATABASE, sized(database.encode())))


def headers_opening(channel: str, operation: str) -> bytes:
    """The headers of a row before its event id."""
    return b"".join(
        (
            _COUNT,
            _CHANNEL,
            sized(channel.encode()),
            _OPERATION,
            sized(operation.encode()),
            EVENT_ID_NAME,
        )
    )


def unique_id(time_ms: int, *parts: object) -> bytes:
    """The id of an event without a transaction. Equal arguments give equal ids."""
    start = _id_start(repr(parts), time_ms)
    return start + blake2b(repr(parts).encode(), digest_size=4, person=b"end").hexdigest().encode()


def _id_start(source: str, time_ms: int) -> bytes:
    digest = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big")
    time = max(time_ms, 0) & 0xFFFF_FFFF_FFFF
    first = time << 16 | _VERSION | digest >> 52
    second = _VARIANT | digest & 0x3FFF_FFFF
    text = b"%016x%08x" % (first, second)
    return b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
