"""Messages inside COPY BOTH while a slot is streamed, and the notation of LSNs.

server   'w' | start u64 | end of log u64 | time i64 | message of pgoutput |
         'k' | end of log u64 | time i64 | reply u8 |
client   'r' | written u64 | flushed u64 | applied u64 | time i64 | reply u8 |
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.postgres.constants import EPOCH_US
from dragoman.types import Lsn

_WAL_DATA: Final = Struct(">BQQq")
_KEEPALIVE: Final = Struct(">BQqB")
_STATUS: Final = Struct(">BQQQqB")
#: Offset of the message in a frame of `WalData`: `Decoder.decode(frame, MESSAGE_START)`.
MESSAGE_START: Final = _WAL_DATA.size
_IS_WAL_DATA, _IS_KEEPALIVE, _IS_STATUS = b"wkr"


class WalData(msgspec.Struct, frozen=True, gc=False):
    """Header of a frame whose message begins at `MESSAGE_START`."""

    lsn: int
    wal_end: int
    time_us: int


class Keepalive(msgspec.Struct, frozen=True, gc=False):
    wal_end: int
    time_us: int
    #: The server expects a status at once, and closes the connection without one.
    wants_reply: bool


def decode_frame(data: bytes) -> WalData | Keepalive:
    """Raises `DecodeError`."""
    kind = data[0] if data else 0
    if kind == _IS_WAL_DATA and len(data) > MESSAGE_START:
        _, start, end, time = _WAL_DATA.unpack_from(data)
        return WalData(start, end, time + EPOCH_US)
    if kind == _IS_KEEPALIVE and len(data) == _KEEPALIVE.size:
        _, end, time, reply = _KEEPALIVE.unpack(data)
        return Keepalive(end, time + EPOCH_US, bool(reply))
    raise DecodeError(f"frame of {len(data)} bytes that begins with {data[:1]!r}, expected w or k")


def encode_status(flushed: Lsn, now_us: int, *, wants_reply: bool = False) -> bytes:
    """A status update: WAL before `flushed` is durable here, and the server may recycle it."""
    return _STATUS.pack(
        _IS_STATUS, flushed, flushed, flushed, now_us - EPOCH_US, 1 if wants_reply else 0
    )


def parse_lsn(text: str) -> Lsn:
    """An LSN in PostgreSQL's notation, such as `16/B374D848`. Raises `DecodeError`."""
    high, slash, low = text.partition("/")
    try:
        if slash and 1 <= len(high) <= 8 and 1 <= len(low) <= 8 and (high + low).isalnum():
            return Lsn(int(high, 16) << 32 | int(low, 16))
    except ValueError:
        pass
    raise DecodeError(f"{text!r} is not a position in PostgreSQL's log, such as 16/B374D848")


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"
