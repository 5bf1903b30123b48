"""Messages to frames and back.

    | size u32 | op u8 | body |        size counts the op and the body; all integers big-endian

A string is a length in two bytes and that many bytes, a key or payload the same with four. A list
of partitions is a count and so many numbers, four bytes each. Decoders are given a frame without
its size. What is left over behind the last field is ignored, as the original does.

The text of a `DecodeError` for a request is the reason that the peer is told (spec, section 8).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, assert_never

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.minibroker.constants import FRAME_BYTES_MAX, STRING_BYTES_MAX, Mode, Op
from dragoman.protocols.minibroker.errors import is_unasked
from dragoman.protocols.minibroker.messages import (
    Commit,
    Committed,
    Delivered,
    Done,
    Failed,
    Heartbeat,
    Joined,
    Message,
    Publish,
    Published,
    Push,
    Quit,
    Rebalanced,
    Reply,
    Request,
    Subscribed,
    SubscribeGroup,
    SubscribeHead,
    SubscribeOffset,
    Unsubscribe,
)
from dragoman.types import Buffer

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_HEAD: Final = Struct(">IB")
_PUBLISHED: Final = Struct(">IBIQ")
#: Partition, offset and length of the key.
_PLACE: Final = Struct(">IQI")
_U32_MAX: Final = 0xFFFF_FFFF
_U64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF


# ---- encoding


def encode(message: Message) -> bytes:
    """The whole frame. Raises `EncodeError` for what the wire cannot express."""
    match message:
        case Publish():
            return _frame(
                Op.PUB, _string(message.topic), *_bytes(message.key), *_bytes(message.payload)
            )
        case SubscribeHead():
            return _frame(Op.SUB, _string(message.topic), b"\x00", _u32(message.partition))
        case SubscribeOffset():
            place = (_u32(message.partition), _u64(message.offset))
            return _frame(Op.SUB, _string(message.topic), b"\x01", *place)
        case SubscribeGroup():
            return _frame(Op.SUB, _string(message.topic), b"\x02", _string(message.group))
        case Unsubscribe():
            return _frame(Op.UNSUB, _string(message.topic))
        case Commit():
            names = (_string(message.topic), _string(message.group))
            return _frame(Op.COMMIT, *names, _u32(message.partition), _u64(message.offset))
        case Quit():
            return _frame(Op.QUIT)
        case Heartbeat():
            return _frame(Op.HEARTBEAT, _string(message.topic), _string(message.group))
        case Published():
            return _frame(Op.OK, _u32(message.partition), _u64(message.offset))
        case Subscribed():
            return _frame(Op.OK, _partitions(message.partitions))
        case Joined():
            return _frame(Op.OK, _string(message.group), _partitions(message.partitions))
        case Committed():
            return _frame(Op.OK, _u64(message.offset))
        case Done():
            return _frame(Op.OK)
        case Failed():
            return _frame(Op.ERR, _string(message.reason))
        case Delivered():
            place = (_u32(message.partition), _u64(message.offset))
            content = (*_bytes(message.key), *_bytes(message.payload))
            return _frame(Op.MSG, _string(message.topic), *place, *content)
        case Rebalanced():
            names = (_string(message.topic), _string(message.group))
            return _frame(Op.REBALANCE, *names, _partitions(message.partitions))
        case _:
            assert_never(message)


def published_frame(partition: int, offset: int) -> bytes:
    """`encode(Published(...))`, for the one reply that is sent for every record."""
    return _PUBLISHED.pack(13, Op.OK, partition, offset)


class DeliveredFrames:
    """`encode(Delivered(...))` for many records of one partition."""

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


def _frame(op: Op, *parts: bytes) -> bytes:
    size = 1 + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise EncodeError(f"frame of {size} bytes; {FRAME_BYTES_MAX} are allowed")
    return b"".join((_HEAD.pack(size, op), *parts))


def _string(text: str) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise EncodeError(f"{text!r} cannot be sent: it has lone surrogates") from None
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"string of {len(data)} bytes; {STRING_BYTES_MAX} are allowed")
    return _U16.pack(len(data)) + data


def _bytes(data: bytes) -> tuple[bytes, bytes]:
    if len(data) > _U32_MAX:
        raise EncodeError(f"{len(data)} bytes; {_U32_MAX} are allowed")
    return _U32.pack(len(data)), data


def _u32(value: int) -> bytes:
    if not 0 <= value <= _U32_MAX:
        raise EncodeError(f"{value} is not in 0 .. 2^32-1")
    return _U32.pack(value)


def _u64(value: int) -> bytes:
    if not 0 <= value <= _U64_MAX:
        raise EncodeError(f"{value} is not in 0 .. 2^64-1")
    return _U64.pack(value)


def _partitions(partitions: tuple[int, ...]) -> bytes:
    return _u32(len(partitions)) + b"".join(map(_u32, partitions))


# ---- decoding


class _Fields:
    """Reads one field after the other; each says what a frame that ends too early is told."""

    __slots__ = ("_at", "_frame")

    def __init__(self, frame: Buffer) -> None:
        self._frame = frame
        self._at = 1

    def _number(self, form: Struct, otherwise: str) -> int:
        start = self._at
        self._at = start + form.size
        if self._at > len(self._frame):
            raise DecodeError(otherwise)
        value: int = form.unpack_from(self._frame, start)[0]
        return value

    def _taken(self, size: int, otherwise: str) -> bytes:
        start = self._at
        self._at = start + size
        if self._at > len(self._frame):
            raise DecodeError(otherwise)
        return bytes(memoryview(self._frame)[start : self._at])

    def u8(self, otherwise: str) -> int:
        return self._taken(1, otherwise)[0]

    def u32(self, otherwise: str) -> int:
        return self._number(_U32, otherwise)

    def u64(self, otherwise: str) -> int:
        return self._number(_U64, otherwise)

    def string(self, otherwise: str) -> str:
        size = self._number(_U16, otherwise)
        return self._taken(size, otherwise).decode("utf-8", "surrogateescape")

    def bytes(self, otherwise: str) -> bytes:
        return self._taken(self._number(_U32, otherwise), otherwise)

    def partitions(self, otherwise: str) -> tuple[int, ...]:
        count = self._number(_U32, otherwise)
        listed = self._taken(4 * count, otherwise)
        return tuple(number for (number,) in _U32.iter_unpack(listed))


def decode_request(frame: Buffer) -> Request:
    """What a client sent."""
    if not frame:
        raise DecodeError("a frame has at least one byte")
    fields = _Fields(frame)
    match frame[0]:
        case Op.PUB:
            return Publish(
                topic=fields.string("pub: bad topic"),
                key=fields.bytes("pub: bad key"),
                payload=fields.bytes("pub: bad payload"),
            )
        case Op.SUB:
            return _decode_subscribe(fields)
        case Op.UNSUB:
            return Unsubscribe(topic=fields.string("unsub: bad topic"))
        case Op.COMMIT:
            return Commit(
                topic=fields.string("commit: bad topic"),
                group=fields.string("commit: bad group"),
                partition=fields.u32("commit: bad partition"),
                offset=fields.u64("commit: bad offset"),
            )
        case Op.QUIT:
            return Quit()
        case Op.HEARTBEAT:
            return Heartbeat(
                topic=fields.string("heartbeat: bad topic"),
                group=fields.string("heartbeat: bad group"),
            )
        case op:
            raise DecodeError(f"unknown op 0x{op:02x}")


def _decode_subscribe(fields: _Fields) -> Request:
    topic = fields.string("sub: bad topic")
    mode = fields.u8("sub: bad mode")
    match mode:
        case Mode.HEAD:
            return SubscribeHead(topic=topic, partition=fields.u32("sub: missing partition"))
        case Mode.OFFSET:
            return SubscribeOffset(
                topic=topic,
                partition=fields.u32("sub: missing partition"),
                offset=fields.u64("sub: missing offset"),
            )
        case Mode.GROUP:
            return SubscribeGroup(topic=topic, group=fields.string("sub: missing group"))
        case _:
            raise DecodeError(f"sub: unknown mode {mode}")


def is_push(frame: Buffer) -> bool:
    """Whether this answers no request."""
    if frame[0] == Op.ERR:
        return is_unasked(decode_failure(frame).reason)
    return frame[0] in (Op.MSG, Op.REBALANCE)


def decode_failure(frame: Buffer) -> Failed:
    return Failed(reason=_Fields(frame).string("err: bad reason"))


def decode_push(frame: Buffer) -> Push | Failed:
    fields = _Fields(frame)
    match frame[0]:
        case Op.MSG:
            return Delivered(
                topic=fields.string("msg: bad topic"),
                partition=fields.u32("msg: bad partition"),
                offset=fields.u64("msg: bad offset"),
                key=fields.bytes("msg: bad key"),
                payload=fields.bytes("msg: bad payload"),
            )
        case Op.REBALANCE:
            return Rebalanced(
                topic=fields.string("rebalance: bad topic"),
                group=fields.string("rebalance: bad group"),
                partitions=fields.partitions("rebalance: bad partitions"),
            )
        case Op.ERR:
            return decode_failure(frame)
        case op:
            raise DecodeError(f"op 0x{op:02x} is not pushed")


def decode_reply(frame: Buffer, request: Request) -> Reply:
    """What OK means depends on what was asked."""
    fields = _Fields(frame)
    if frame[0] == Op.ERR:
        return decode_failure(frame)
    if frame[0] != Op.OK:
        raise DecodeError(f"op 0x{frame[0]:02x} is no reply")
    match request:
        case Publish():
            return Published(
                partition=fields.u32("ok: bad partition"), offset=fields.u64("ok: bad offset")
            )
        case SubscribeHead() | SubscribeOffset():
            return Subscribed(partitions=fields.partitions("ok: bad partitions"))
        case SubscribeGroup():
            return Joined(
                group=fields.string("ok: bad group"),
                partitions=fields.partitions("ok: bad partitions"),
            )
        case Commit():
            return Committed(offset=fields.u64("ok: bad offset"))
        case Unsubscribe() | Quit() | Heartbeat():
            return Done()
        case _:
            assert_never(request)
