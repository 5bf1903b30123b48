"""Delivered messages, batches of messages, properties, and message ids.

message  size i32, magic u32, body crc u32, queue i32, flag i32, queue offset i64,
         physical offset i64, sysFlag i32, born time i64, born host, store time i64, store host,
         reconsume times i32, prepared offset i64, body (length i32), topic (length u8; i16 in
         version 2), properties (length i16)
host     IPv4 4 bytes or IPv6 16 bytes by sysFlag, port i32
batch    of each: size i32, magic i32, crc i32, flag i32, body (length i32), properties (i16)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from dragoman.errors import DecodeError, EncodeError
from dragoman.limits import ROCKETMQ_BATCH_MESSAGES_MAX
from dragoman.protocols.rocketmq.constants import PROPERTIES_BYTES_MAX, SysFlag
from dragoman.types import Buffer

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
_CRC_MASK: Final = 0x7FFFFFFF
#: The fields before the body, with IPv4 hosts.
_HEAD: Final = Struct(">iIIiiqqiq8sq8siqi")
_BEFORE_BORN_HOST: Final = Struct(">iIIiiqqiq")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_HOST: Final = Struct(">4Bi")
_BATCHED: Final = Struct(">iiiii")
_TOPIC_BYTES_V1_MAX: Final = 127
_NAME_END: Final = "\x01"
_ENTRY_END: Final = "\x02"
NO_HOST: Final = bytes(8)


class Message(msgspec.Struct, kw_only=True):
    """A message as consumers and tools receive it."""

    topic: str
    body: bytes = b""
    properties: dict[str, str] = {}
    queue_id: int = 0
    #: A number for the application's own use.
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    #: The address, followed by the port in four bytes.
    born_host: bytes = NO_HOST
    store_ms: int = 0
    store_host: bytes = NO_HOST
    reconsume_times: int = 0
    prepared_offset: int = 0

    @property
    def message_id(self) -> str:
        """The offset message id, by which brokers find the message."""
        return offset_message_id(self.store_host, self.physical_offset)


class BatchedMessage(msgspec.Struct, frozen=True):
    flag: int
    body: bytes
    properties: bytes


# ---- messages


def encode_message(message: Message) -> bytes:
    """Raises `EncodeError`."""
    return encode_stored(
        message.topic.encode(),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        message.sys_flag,
        message.born_ms,
        message.born_host,
        message.store_ms,
        message.store_host,
        message.reconsume_times,
        message.prepared_offset,
        message.body,
        encode_properties(message.properties),
    )


def encode_stored(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_ms: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_offset: int,
    body: bytes,
    properties: bytes,
) -> bytes:
    """Encode a message from its parts. Hosts are IPv4 addresses. Raises `EncodeError`."""
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise EncodeError(f"properties of {len(properties)} bytes")
    is_long = len(topic) > _TOPIC_BYTES_V1_MAX
    topic_size = _I16.pack(len(topic)) if is_long else bytes((len(topic),))
    tail = b"".join((topic_size, topic, _I16.pack(len(properties)), properties))
    head = _HEAD.pack(
        _HEAD.size + len(body) + len(tail),
        MAGIC_V2 if is_long else MAGIC_V1,
        crc32(body) & _CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        len(body),
    )
    return b"".join((head, body, tail))


def decode_messages(data: Buffer) -> list[Message]:
    """Messages back to back. Raises `DecodeError`."""
    return list(iterate_messages(bytes(data)))


def iterate_messages(data: bytes) -> Iterator[Message]:
    position = 0
    while position < len(data):
        try:
            message, position = _decode_one(data, position)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise DecodeError(f"message is cut off or malformed: {error}") from None
        yield message


def _decode_one(data: bytes, start: int) -> tuple[Message, int]:
    fields = _BEFORE_BORN_HOST.unpack_from(data, start)
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = fields
    end = start + size
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise DecodeError(f"message with magic {magic:08X}")
    if size < _HEAD.size or end > len(data):
        raise DecodeError(f"message of {size} bytes where {len(data) - start} are left")
    position = start + _BEFORE_BORN_HOST.size
    born_host, position = _take(data, position, 20 if sys_flag & SysFlag.BORN_HOST_V6 else 8)
    (store_ms,) = _I64.unpack_from(data, position)
    position += 8
    store_host, position = _take(data, position, 20 if sys_flag & SysFlag.STORE_HOST_V6 else 8)
    (reconsume_times,) = _I32.unpack_from(data, position)
    (prepared_offset,) = _I64.unpack_from(data, position + 4)
    (body_size,) = _I32.unpack_from(data, position + 12)
    body, position = _take(data, position + 16, body_size)
    if crc32(body) & _CRC_MASK != crc:
        raise DecodeError("the body of a message fails its CRC")
    if magic == MAGIC_V1:
        topic_size, position = data[position], position + 1
    else:
        topic_size, position = _I16.unpack_from(data, position)[0], position + 2
    topic, position = _take(data, position, topic_size)
    (properties_size,) = _I16.unpack_from(data, position)
    properties, position = _take(data, position + 2, properties_size)
    if position != end:
        raise DecodeError(f"message of {size} bytes has {position - start}")
    message = Message(
        topic=topic.decode(),
        body=body,
        properties=decode_properties(properties.decode()),
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        store_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
    )
    return message, end


def _take(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if size < 0 or end > len(data):
        raise DecodeError(f"field of {size} bytes where {len(data) - position} are left")
    return data[position:end], end


# ---- batches


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    parts: list[bytes] = []
    for each in messages:
        if len(each.properties) > PROPERTIES_BYTES_MAX:
            raise EncodeError(f"properties of {len(each.properties)} bytes")
        size = _BATCHED.size + len(each.body) + _I16.size + len(each.properties)
        parts += (
            _BATCHED.pack(size, 0, 0, each.flag, len(each.body)),
            each.body,
            _I16.pack(len(each.properties)),
            each.properties,
        )
    return b"".join(parts)


def decode_batch(data: Buffer) -> list[BatchedMessage]:
    """Raises `DecodeError`."""
    data = bytes(data)
    found: list[BatchedMessage] = []
    position = 0
    while position < len(data):
        try:
            size, _, _, flag, body_size = _BATCHED.unpack_from(data, position)
            body, after = _take(data, position + _BATCHED.size, body_size)
            (properties_size,) = _I16.unpack_from(data, after)
        except struct.error as error:
            raise DecodeError(f"batch is cut off: {error}") from None
        properties, after = _take(data, after + _I16.size, properties_size)
        if after != position + size:
            raise DecodeError(f"message of {size} bytes in a batch has {after - position}")
        if len(found) == ROCKETMQ_BATCH_MESSAGES_MAX:
            raise DecodeError(f"more than {ROCKETMQ_BATCH_MESSAGES_MAX} messages in a batch")
        found.append(BatchedMessage(flag, body, properties))
        position = after
    return found


# ---- properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Raises `EncodeError` when there are too many."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if name and value)
    encoded = text.encode()
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise EncodeError(f"properties of {len(encoded)} bytes")
    return encoded


def decode_properties(text: str) -> dict[str, str]:
    """Like Java, this skips entries without a name or a value."""
    found: dict[str, str] = {}
    for entry in text.split(_ENTRY_END):
        name, _, value = entry.partition(_NAME_END)
        if name and value:
            found[name] = value
    return found


# ---- ids and hosts


def host_bytes(host: str, port: int) -> bytes:
    """The address in wire format; 0.0.0.0 if it is not an IPv4 address."""
    parts = host.split(".")
    if len(parts) == 4 and all(each.isascii() and each.isdigit() for each in parts):
        numbers = [int(each) for each in parts]
        if max(numbers) <= 255:
            return _HOST.pack(*numbers, port)
    return _HOST.pack(0, 0, 0, 0, port)


def host_text(host: bytes) -> str:
    """The address and port as text."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{'.'.join(map(str, host[:4]))}:{port}"
    groups = [host[index : index + 2].hex() for index in range(0, 16, 2)]
    return f"[{':'.join(groups)}]:{port}"


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    return (store_host + _I64.pack(physical_offset)).hex().upper()


def read_message_id(text: str) -> tuple[bytes, int]:
    """Store host and physical offset. Raises `DecodeError`."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raise DecodeError(f"{text!r} is not a message id") from None
    if len(raw) not in (16, 28):
        raise DecodeError(f"{text!r} is not a message id")
    return raw[:-8], _I64.unpack_from(raw, len(raw) - 8)[0]


def tag_hash(tag: str) -> int:
    """Java's `String.hashCode`."""
    value = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
