"""The source transaction of events, as the headers of their records describe it.

The id of an event is a UUID of version 7 that depends only on the source, so that a change that is
captured again has the same id:

    | commit time ms 48 | 7 | hash of system and LSN 12 | 2 | the hash goes on 30 | position 32 |
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from dragoman.cdc.events.records import sized
from dragoman.log.batch import varint

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
    """`seq` is the number of the last event of the transaction; the encoder counts."""

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
        """`lsn` and `time_us` (since 1970) are of the commit."""
        self.lsn = lsn
        self.xid = xid
        self.time_us = time_us
        self.time_ms = time_us // 1000
        self.seq = 0
        #: Sixteen digits, so that it can be sorted as text.
        self.lsn_text = b"%016x" % lsn
        #: Events for each table, if events about transactions are configured.
        self.counts: dict[str, int] = {}
        self.system = ""
        self._id_start = b""
        self._after_id = _LSN + self.lsn_text + _SEQ
        self._xid_header = self._last_headers = _XID + sized(b"%d" % xid)

    def belong_to(self, system: str, source: bytes) -> None:
        """Set the database system, on which event ids depend. `source` is from `source_headers`."""
        self.system = system
        self._id_start = _id_start(f"{system} {self.lsn}", self.time_ms)
        self._last_headers = self._xid_header + source

    def event_id(self, seq: int) -> bytes:
        """The id of an event, as text."""
        return self._id_start + (_HEX[seq] if seq < _SMALL else b"%08x" % (seq & 0xFFFF_FFFF))

    def headers(self, opening: bytes, seq: int) -> bytes:
        """All headers in wire form. `opening`: their beginning, such as from `headers_opening`."""
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
    """The headers for capture and database: several captures may write to one topic."""
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
    """The id of an event without a transaction. Equal parts give equal ids."""
    start = _id_start(repr(parts), time_ms)
    return start + blake2b(repr(parts).encode(), digest_size=4, person=b"end").hexdigest().encode()


def _id_start(source: str, time_ms: int) -> bytes:
    digest = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big")
    time = max(time_ms, 0) & 0xFFFF_FFFF_FFFF
    first = time << 16 | _VERSION | digest >> 52
    second = _VARIANT | digest & 0x3FFF_FFFF
    text = b"%016x%08x" % (first, second)
    return b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
