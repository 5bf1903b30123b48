"""Bytes of `pgoutput` to messages, the frames around them, rows of COPY, and notation of LSNs.

    message   | kind u8 | xid u32, in a streamed block only | fields |
    row       | count u16 | per column: 'n' NULL, 'u' unchanged, 't' size u32 and text |

While a slot is streamed, messages travel in frames of COPY BOTH:

    server    'w' | start u64 | end of log u64 | time i64 | message of pgoutput |
              'k' | end of log u64 | time i64 | reply u8 |
    client    'r' | written u64 | flushed u64 | applied u64 | time i64 | reply u8 |

Integers are big-endian, names end with a zero byte.

A slice beyond the end of the bytes is truncated and takes no memory, so it suffices to check that
every message ends exactly where its bytes do.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.constants import EPOCH_US
from dragoman.protocols.postgres.messages import UNCHANGED, Row
from dragoman.types import Lsn

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_COLUMN: Final = Struct(">Ii")
_TRUNCATE: Final = Struct(">IB")
_MESSAGE: Final = Struct(">BQ")
_STREAM_START: Final = Struct(">IB")
_STREAM_COMMIT: Final = Struct(">IBQQq")
_STREAM_ABORT: Final = Struct(">II")
_STREAM_ABORT_PARALLEL: Final = Struct(">IIQq")
_BEGIN_PREPARE: Final = Struct(">QQqI")
_PREPARE: Final = Struct(">BQQqI")
_ROLLBACK_PREPARED: Final = Struct(">BQQqqI")
_unpack_u16: Final = _U16.unpack_from
_unpack_u32: Final = _U32.unpack_from
_TEXT, _NULL, _UNCHANGED = b"tnu"
_NEW, _KEY, _OLD = b"NKO"

#: Decodes the fields of a message of transaction `xid` at a position. Returns the message and the
#: end position.
_Read: TypeAlias = Callable[[bytes, int, int], tuple[m.Message, int]]


class Decoder:
    """Decodes a stream of messages. Its state is whether the stream is inside a streamed block."""

    def __init__(self, version: int) -> None:
        self._reads = {
            ord(kind): read for kind, (since, read) in _READS.items() if since <= version
        }
        self._version = version
        self._is_streaming = False

    def decode(self, data: bytes, position: int = 0) -> m.Message:
        """Decode the message that starts at a position and ends with `data`. Raises
        `DecodeError`.
        """
        try:
            kind = data[position]
            read, xid, start = self._reads[kind], 0, position + 1
            if self._is_streaming and kind in _WITH_XID:
                (xid,) = _unpack_u32(data, start)
                start += 4
            message, end = read(data, start, xid)
        except KeyError:
            raise DecodeError(
                f"message {chr(kind)!r} is not one of pgoutput's version {self._version}"
            ) from None
        except (IndexError, struct.error, ValueError) as error:
            raise DecodeError(f"message {data[position:][:1]!r} does not parse: {error}") from None
        if end != len(data):
            raise DecodeError(
                f"message {chr(kind)!r} should end at byte {end} and ends at {len(data)}"
            )
        if kind in _BLOCK_EDGES:
            self._enter_or_leave(type(message) is m.StreamStart)
        return message

    def _enter_or_leave(self, enters: bool) -> None:
        if self._is_streaming == enters:
            raise DecodeError("a streamed block begins in another" if enters else "no block to end")
        self._is_streaming = enters


# ---- rows


def _row(data: bytes, position: int) -> tuple[m.Row, int]:
    (count,) = _unpack_u16(data, position)
    position += 2
    row: m.Row = []
    append = row.append
    for _ in range(count):
        kind = data[position]
        if kind == _TEXT:
            start = position + 5
            position = start + _unpack_u32(data, position + 1)[0]
            append(data[start:position])
        else:
            position += 1
            if kind == _NULL:
                append(None)
            elif kind == _UNCHANGED:
                append(UNCHANGED)
            else:
                raise DecodeError(f"a column is of kind {chr(kind)!r}, expected t, n or u")
    return row, position


def _insert(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    (relation,) = _unpack_u32(data, position)
    _expect(data[position + 4], _NEW)
    row, end = _row(data, position + 5)
    return m.Insert(xid, relation, row), end


def _update(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    (relation,) = _unpack_u32(data, position)
    kind = data[position + 4]
    end = position + 5
    old: m.Row | None = None
    if kind != _NEW:
        if kind not in (_KEY, _OLD):
            raise DecodeError(f"a row is of kind {chr(kind)!r}, expected N, K or O")
        old, end = _row(data, end)
        _expect(data[end], _NEW)
        end += 1
    new, end = _row(data, end)
    return m.Update(xid, relation, new, old, kind == _OLD), end


def _delete(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    (relation,) = _unpack_u32(data, position)
    kind = data[position + 4]
    if kind not in (_KEY, _OLD):
        raise DecodeError(f"a row is of kind {chr(kind)!r}, expected K or O")
    old, end = _row(data, position + 5)
    return m.Delete(xid, relation, old, kind == _OLD), end


def _expect(found: int, expected: int) -> None:
    if found != expected:
        raise DecodeError(f"a row is of kind {chr(found)!r}, expected {chr(expected)!r}")


# ---- tables


def _string(data: bytes, position: int) -> tuple[str, int]:
    end = data.index(0, position)
    return data[position:end].decode(), end + 1


def _relation(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    (number,) = _unpack_u32(data, position)
    schema, position = _string(data, position + 4)
    name, position = _string(data, position)
    identity = m.Identity(chr(data[position]))
    (count,) = _unpack_u16(data, position + 1)
    position += 3
    columns = []
    for _ in range(count):
        flags = data[position]
        column, position = _string(data, position + 1)
        oid, modifier = _COLUMN.unpack_from(data, position)
        position += _COLUMN.size
        columns.append(m.Column(column, oid, modifier, bool(flags & 1)))
    # The server sends an empty name for pg_catalog.
    schema = schema or "pg_catalog"
    return m.Relation(xid, number, schema, name, identity, tuple(columns)), position


def _type(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    (oid,) = _unpack_u32(data, position)
    schema, position = _string(data, position + 4)
    name, position = _string(data, position)
    return m.Type(xid, oid, schema or "pg_catalog", name), position


def _truncate(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    count, flags = _TRUNCATE.unpack_from(data, position)
    start = position + _TRUNCATE.size
    end = start + 4 * count
    if end > len(data):
        raise DecodeError(f"{count} truncated tables in {len(data)} bytes")
    numbers = tuple(number for (number,) in _U32.iter_unpack(data[start:end]))
    return m.Truncate(xid, numbers, bool(flags & 1), bool(flags & 2)), end


# ---- transactions


def _begin(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    lsn, time, xid = _BEGIN.unpack_from(data, position)
    return m.Begin(lsn, time + EPOCH_US, xid), position + _BEGIN.size


def _commit(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    _, lsn, end_lsn, time = _COMMIT.unpack_from(data, position)
    return m.Commit(lsn, end_lsn, time + EPOCH_US), position + _COMMIT.size


def _origin(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    (lsn,) = _U64.unpack_from(data, position)
    name, end = _string(data, position + 8)
    return m.Origin(lsn, name), end


def _logical_message(data: bytes, position: int, xid: int) -> tuple[m.Message, int]:
    flags, lsn = _MESSAGE.unpack_from(data, position)
    prefix, position = _string(data, position + _MESSAGE.size)
    start = position + 4
    end = start + _unpack_u32(data, position)[0]
    return m.LogicalMessage(xid, bool(flags & 1), lsn, prefix, data[start:end]), end


def _stream_start(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    xid, is_first = _STREAM_START.unpack_from(data, position)
    return m.StreamStart(xid, bool(is_first)), position + _STREAM_START.size


def _stream_stop(_: bytes, position: int, __: int) -> tuple[m.Message, int]:
    return m.StreamStop(), position


def _stream_commit(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    xid, _, lsn, end_lsn, time = _STREAM_COMMIT.unpack_from(data, position)
    return m.StreamCommit(xid, lsn, end_lsn, time + EPOCH_US), position + _STREAM_COMMIT.size


def _stream_abort(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    if len(data) - position == _STREAM_ABORT.size:
        return m.StreamAbort(*_STREAM_ABORT.unpack_from(data, position)), len(data)
    xid, sub_xid, lsn, time = _STREAM_ABORT_PARALLEL.unpack_from(data, position)
    end = position + _STREAM_ABORT_PARALLEL.size
    return m.StreamAbort(xid, sub_xid, lsn, time + EPOCH_US), end


def _begin_prepare(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    lsn, end_lsn, time, xid = _BEGIN_PREPARE.unpack_from(data, position)
    gid, end = _string(data, position + _BEGIN_PREPARE.size)
    return m.BeginPrepare(lsn, end_lsn, time + EPOCH_US, xid, gid), end


def _prepared(
    made: type[m.Prepare] | type[m.CommitPrepared] | type[m.StreamPrepare],
) -> _Read:
    def read(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
        _, lsn, end_lsn, time, xid = _PREPARE.unpack_from(data, position)
        gid, end = _string(data, position + _PREPARE.size)
        return made(lsn, end_lsn, time + EPOCH_US, xid, gid), end

    return read


def _rollback_prepared(data: bytes, position: int, _: int) -> tuple[m.Message, int]:
    _, before, end_lsn, prepared, time, xid = _ROLLBACK_PREPARED.unpack_from(data, position)
    gid, end = _string(data, position + _ROLLBACK_PREPARED.size)
    return m.RollbackPrepared(before, end_lsn, prepared + EPOCH_US, time + EPOCH_US, xid, gid), end


#: First byte → the first version of the protocol that has the message, and its reader.
_READS: Final[dict[str, tuple[int, _Read]]] = {
    "B": (1, _begin),
    "C": (1, _commit),
    "O": (1, _origin),
    "R": (1, _relation),
    "Y": (1, _type),
    "I": (1, _insert),
    "U": (1, _update),
    "D": (1, _delete),
    "T": (1, _truncate),
    "M": (1, _logical_message),
    "S": (2, _stream_start),
    "E": (2, _stream_stop),
    "c": (2, _stream_commit),
    "A": (2, _stream_abort),
    "b": (3, _begin_prepare),
    "P": (3, _prepared(m.Prepare)),
    "K": (3, _prepared(m.CommitPrepared)),
    "r": (3, _rollback_prepared),
    "p": (3, _prepared(m.StreamPrepare)),
}
_WITH_XID: Final = frozenset(b"RYIUDTM")
_BLOCK_EDGES: Final = frozenset(b"SE")


_ESCAPE: Final = re.compile(rb"\\(.?)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def decode_line(line: bytes, count: int) -> Row:
    """The columns of a row of COPY in text format, with the same texts as in `pgoutput`.

    `line` may end with a newline. Raises `DecodeError`.
    """
    if line.endswith(b"\n"):
        line = line[:-1]
    if not count and not line:
        return []
    texts = line.split(b"\t")
    if len(texts) != count:
        raise DecodeError(f"a row of {len(texts)} columns, expected {count}")
    return [text if b"\\" not in text else _unescaped(text) for text in texts]


def _unescaped(text: bytes) -> bytes | None:
    return None if text == b"\\N" else _ESCAPE.sub(_character, text)


def _character(found: re.Match[bytes]) -> bytes:
    letter = found[1]
    if not letter:
        raise DecodeError("a value ends with a backslash")
    return _ESCAPED.get(letter, letter)


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
