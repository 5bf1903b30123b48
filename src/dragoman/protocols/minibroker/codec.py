"""Encodes messages to frames and decodes them.

    | size u32 | op u8 | body |        size counts the op and the body; all integers big-endian

A string is a two-byte length followed by the bytes; keys and payloads have a four-byte length. A
list of partitions is a count followed by four-byte numbers. Decoders take a frame without its size.
As in the original, bytes after the last field are ignored.

The text of a `DecodeError` for a request is the reason that is sent to the peer (spec, section 8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX, STRING_BYTES_MAX, Mode, Op
from dragoman.protocols.minibroker.errors import is_unasked
from dragoman.types import Buffer

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_HEAD: Final = Struct(">IB")
_PUBLISHED: Final = Struct(">IBIQ")
#: Partition, offset and length of the key.
_PLACE: Final = Struct(">IQI")
AnyMessage = TypeVar("AnyMessage", bound=m.Message)
# Looking up an enumeration member costs as much as a call, which is too much for every record.
_PUB: Final = int(Op.PUB)
_OK: Final = int(Op.OK)
_unpack_u16: Final = _U16.unpack_from
_unpack_u32: Final = _U32.unpack_from


# ---- fields


def _number(form: Struct) -> Callable[[int], bytes]:
    bits = form.size * 8

    def write(value: int) -> bytes:
        if not 0 <= value < 1 << bits:
            raise EncodeError(f"{value} is not in 0 .. 2^{bits}-1")
        return form.pack(value)

    return write


def _string(text: str) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise EncodeError(f"{text!r} cannot be sent: it has lone surrogates") from None
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"string of {len(data)} bytes; {STRING_BYTES_MAX} are allowed")
    return _U16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _write_u32(len(data)) + data


def _partitions(partitions: tuple[int, ...]) -> bytes:
    return _write_u32(len(partitions)) + b"".join(map(_write_u32, partitions))


_write_u32: Final = _number(_U32)


class _Fields:
    """Reads consecutive fields, each with the error text for a frame that is too short."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: Buffer) -> None:
        self._frame = frame
        self._at = 1

    def take(self, size: int, otherwise: str) -> memoryview:
        start = self._at
        self._at = start + size
        if self._at > len(self._frame):
            raise DecodeError(otherwise)
        return memoryview(self._frame)[start : self._at]

    def u32(self, otherwise: str) -> int:
        return int.from_bytes(self.take(4, otherwise), "big")

    def u64(self, otherwise: str) -> int:
        return int.from_bytes(self.take(8, otherwise), "big")

    def string(self, otherwise: str) -> str:
        size = int.from_bytes(self.take(2, otherwise), "big")
        return str(self.take(size, otherwise), "utf-8", "surrogateescape")

    def bytes(self, otherwise: str) -> bytes:
        return bytes(self.take(self.u32(otherwise), otherwise))

    def partitions(self, otherwise: str) -> tuple[int, ...]:
        listed = self.take(4 * self.u32(otherwise), otherwise)
        return tuple(number for (number,) in _U32.iter_unpack(listed))


#: The writer and the reader of each kind of field.
_KINDS: Final[Mapping[str, tuple[Callable[..., bytes], Callable[[_Fields, str], object]]]] = {
    "string": (_string, _Fields.string),
    "bytes": (_bytes, _Fields.bytes),
    "u32": (_write_u32, _Fields.u32),
    "u64": (_number(_U64), _Fields.u64),
    "partitions": (_partitions, _Fields.partitions),
}
_Layout: TypeAlias = tuple[tuple[str, str], ...]


def _layout(text: str) -> _Layout:
    """`NAME:KIND NAME:KIND`, in the order of the wire."""
    return tuple((name, kind) for name, _, kind in (each.partition(":") for each in text.split()))


#: The body of every message; for subscriptions, the part after topic and mode.
_LAYOUTS: Final[Mapping[type[object], tuple[Op, _Layout]]] = {
    m.Publish: (Op.PUB, _layout("topic:string key:bytes payload:bytes")),
    m.SubscribeHead: (Op.SUB, _layout("partition:u32")),
    m.SubscribeOffset: (Op.SUB, _layout("partition:u32 offset:u64")),
    m.SubscribeGroup: (Op.SUB, _layout("group:string")),
    m.Unsubscribe: (Op.UNSUB, _layout("topic:string")),
    m.Commit: (Op.COMMIT, _layout("topic:string group:string partition:u32 offset:u64")),
    m.Quit: (Op.QUIT, ()),
    m.Heartbeat: (Op.HEARTBEAT, _layout("topic:string group:string")),
    m.Published: (Op.OK, _layout("partition:u32 offset:u64")),
    m.Subscribed: (Op.OK, _layout("partitions:partitions")),
    m.Joined: (Op.OK, _layout("group:string partitions:partitions")),
    m.Committed: (Op.OK, _layout("offset:u64")),
    m.Done: (Op.OK, ()),
    m.Failed: (Op.ERR, _layout("reason:string")),
    m.Delivered: (
        Op.MSG,
        _layout("topic:string partition:u32 offset:u64 key:bytes payload:bytes"),
    ),
    m.Rebalanced: (Op.REBALANCE, _layout("topic:string group:string partitions:partitions")),
}
_MODES: Final[Mapping[int, type[m.Subscribe]]] = {
    Mode.HEAD: m.SubscribeHead,
    Mode.OFFSET: m.SubscribeOffset,
    Mode.GROUP: m.SubscribeGroup,
}
_MODE_OF: Final = {kind: bytes((mode,)) for mode, kind in _MODES.items()}
#: The other ops of requests.
_REQUESTS: Final[Mapping[int, type[m.Request]]] = {
    Op.UNSUB: m.Unsubscribe,
    Op.COMMIT: m.Commit,
    Op.QUIT: m.Quit,
    Op.HEARTBEAT: m.Heartbeat,
}
#: The ops of frames that answer no request.
_PUSHES: Final[Mapping[int, type[m.Push | m.Failed]]] = {
    Op.MSG: m.Delivered,
    Op.REBALANCE: m.Rebalanced,
    Op.ERR: m.Failed,
}
#: The message of an OK, which depends on the request; `Done` for all other requests.
_REPLIES: Final[Mapping[type[m.Request], type[m.Reply]]] = {
    m.Publish: m.Published,
    m.SubscribeHead: m.Subscribed,
    m.SubscribeOffset: m.Subscribed,
    m.SubscribeGroup: m.Joined,
    m.Commit: m.Committed,
}


# ---- encoding


def encode(message: m.Message) -> bytes:
    """The whole frame. Raises `EncodeError` for values that the wire cannot express."""
    op, layout = _LAYOUTS[type(message)]
    parts = [_KINDS[kind][0](getattr(message, name)) for name, kind in layout]
    if isinstance(message, m.Subscribe):
        parts = [_string(message.topic), _MODE_OF[type(message)], *parts]
    size = 1 + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise EncodeError(f"frame of {size} bytes; {FRAME_BYTES_MAX} are allowed")
    return b"".join((_HEAD.pack(size, op), *parts))


def published_frame(partition: int, offset: int) -> bytes:
    """`encode(Published(...))`, optimized because it answers every record."""
    return _PUBLISHED.pack(13, _OK, partition, offset)


class DeliveredFrames:
    """`encode(Delivered(...))`, optimized for many records of one partition."""

    __slots__ = ("_fixed_bytes", "_partition", "_topic")

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = _string(topic)
        self._partition = partition
        self._fixed_bytes = 1 + len(self._topic) + _PLACE.size + _U32.size

    def frame(self, offset: int, key: bytes, payload: bytes) -> bytes:
        size = self._fixed_bytes + len(key) + len(payload)
        return b"".join(
            (
                _HEAD.pack(size, Op.MSG),
                self._topic,
                _PLACE.pack(self._partition, offset, len(key)),
                key,
                _U32.pack(len(payload)),
                payload,
            )
        )


# ---- decoding


def _read(fields: _Fields, kind: type[AnyMessage], what: str, **known: object) -> AnyMessage:
    _, layout = _LAYOUTS[kind]
    make: Callable[..., AnyMessage] = kind
    values = {name: _KINDS[each][1](fields, f"{what} {name}") for name, each in layout}
    return make(**known, **values)


def decode_request(frame: Buffer) -> m.Request:
    """The request in a frame. Raises `DecodeError`."""
    if not frame:
        raise DecodeError("a frame has at least one byte")
    op = frame[0]
    if op == _PUB:
        return _decode_publish(frame)
    fields = _Fields(frame)
    if op == Op.SUB:
        topic = fields.string("sub: bad topic")
        (mode,) = fields.take(1, "sub: bad mode")
        if mode not in _MODES:
            raise DecodeError(f"sub: unknown mode {mode}")
        return _read(fields, _MODES[mode], "sub: missing", topic=topic)
    if op not in _REQUESTS:
        raise DecodeError(f"unknown op 0x{op:02x}")
    return _read(fields, _REQUESTS[op], f"{Op(op).name.lower()}: bad")


def _decode_publish(frame: Buffer) -> m.Publish:
    """Unrolled because it runs for every record."""
    end = len(frame)
    topic_end = 3 + _unpack_u16(frame, 1)[0] if end >= 3 else end + 1
    if topic_end > end:
        raise DecodeError("pub: bad topic")
    key_start = topic_end + 4
    key_end = key_start + _unpack_u32(frame, topic_end)[0] if end >= key_start else end + 1
    if key_end > end:
        raise DecodeError("pub: bad key")
    start = key_end + 4
    payload_end = start + _unpack_u32(frame, key_end)[0] if end >= start else end + 1
    if payload_end > end:
        raise DecodeError("pub: bad payload")
    view = memoryview(frame)
    return m.Publish(
        topic=str(view[3:topic_end], "utf-8", "surrogateescape"),
        key=bytes(view[key_start:key_end]) if key_end > key_start else b"",
        payload=bytes(view[start:payload_end]),
    )


def is_push(frame: Buffer) -> bool:
    """Whether the frame answers no request."""
    if frame[0] == Op.ERR:
        return is_unasked(decode_failure(frame).reason)
    return frame[0] in _PUSHES


def decode_push(frame: Buffer) -> m.Push | m.Failed:
    kind = _PUSHES.get(frame[0])
    if kind is None:
        raise DecodeError(f"op 0x{frame[0]:02x} is not pushed")
    return _read(_Fields(frame), kind, "push: bad")


def decode_failure(frame: Buffer) -> m.Failed:
    return m.Failed(reason=_Fields(frame).string("err: bad reason"))


def decode_reply(frame: Buffer, request: m.Request) -> m.Reply:
    if frame[0] == Op.ERR:
        return decode_failure(frame)
    if frame[0] != Op.OK:
        raise DecodeError(f"op 0x{frame[0]:02x} is no reply")
    return _read(_Fields(frame), _REPLIES.get(type(request), m.Done), "ok: bad")


# ---- keys


def fnv1a_32(data: bytes) -> int:
    """The hash by which keys choose partitions, modulo their number."""
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return value
