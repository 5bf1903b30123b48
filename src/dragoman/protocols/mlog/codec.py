"""Encodes and decodes messages, in JSON as Go writes it and in protobuf.

JSON has all fields in order, without spaces; bytes are in base64; `<`, `>`, `&` and two line
separators are escaped. Go's decoder accepts keys in any case, skips unknown keys and accepts `null`
for any value. msgspec decodes what real clients send; input that it refuses is decoded again by
Go's rules.

A batch of ReplicateStream is the content of `ReplicateResp.raw_chunk`. As in the original, its base
offset is not compared with its records, and malformed bytes after valid records are ignored:

    0   base offset i64     8   bytes of records i32     12  leader epoch i32 (always 0)
    16  CRC-32 u32 (IEEE, of the records)                20  attributes u8 (0)
    21  last offset delta i32
    25  records: offset i64, size i32, value
"""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from dragoman.errors import MALFORMED, DecodeError, EncodeError
from dragoman.protocols.mlog import protobuf
from dragoman.protocols.mlog.constants import (
    HEADER_FORMAT,
    PAYLOAD_BYTES_MAX,
    Encoding,
    MessageType,
)
from dragoman.protocols.mlog.messages import (
    MESSAGES,
    TYPES,
    Entry,
    Field,
    Kind,
    Message,
    ProduceResp,
    fields_of,
)
from dragoman.types import Buffer

AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)

# Looking up an enumeration member costs as much as a call, which is too much for every record.
_JSON: Final = Encoding.JSON
_PRODUCE_RESP: Final = int(MessageType.PRODUCE_RESP)
_pack_header: Final = struct.Struct(HEADER_FORMAT).pack
_to_json: Final = msgspec.json.Encoder().encode
_decoders: Final[dict[type[msgspec.Struct], Callable[[Buffer], Any]]] = {}
_BY_NUMBER: Final[dict[int, type[Message]]] = {
    int(number): kind for number, kind in MESSAGES.items()
}
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def encode_frame(message: Message, encoding: Encoding) -> bytes:
    """The whole frame. Raises `EncodeError`, also for a payload above the limit."""
    payload = encode_json(message) if encoding is Encoding.JSON else protobuf.encode(message)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise EncodeError(f"{len(payload)} bytes in a message; at most {PAYLOAD_BYTES_MAX}")
    return _pack_header(TYPES[type(message)], len(payload)) + payload


def encode_produced(offset: int, encoding: Encoding) -> bytes:
    """The frame of a ProduceResp, unrolled because it answers every record."""
    if encoding is _JSON:
        payload = b'{"Offset":%d}' % offset
        return _pack_header(_PRODUCE_RESP, len(payload)) + payload
    return encode_frame(ProduceResp(offset=offset), encoding)


def decode_payload(number: int, payload: Buffer, encoding: Encoding) -> Message:
    """Raises `DecodeError`, also for an unknown type."""
    kind = _BY_NUMBER.get(number)
    if kind is None:
        raise DecodeError(f"message type {number}; 0 to {max(MessageType)} are known")
    if encoding is _JSON:
        return decode_json(kind, payload)
    return protobuf.decode(kind, bytes(payload))


# ---- JSON


def encode_json(message: msgspec.Struct) -> bytes:
    """Raises `EncodeError`."""
    try:
        text = _to_json(message)
    except (UnicodeEncodeError, OverflowError) as error:
        raise EncodeError(f"{type(message).__name__} cannot be written: {error}") from None
    if type(message) not in _PLAIN:
        for character, escape in _ESCAPES:
            # These characters occur only inside strings.
            if character in text:
                text = text.replace(character, escape)
    return text


def decode_json(kind: type[AnyStruct], payload: Buffer) -> AnyStruct:
    """Raises `DecodeError`."""
    decode: Callable[[Buffer], AnyStruct] | None = _decoders.get(kind)
    if decode is None:
        decode = _decoders[kind] = msgspec.json.Decoder(kind).decode
    try:
        return decode(payload)
    except MALFORMED:
        return _decode_as_go_does(kind, payload)


def _decode_as_go_does(kind: type[AnyStruct], payload: Buffer) -> AnyStruct:
    try:
        # Go replaces bytes that are not UTF-8 with the replacement character.
        text = bytes(payload).decode(errors="replace")
        value = msgspec.json.decode(text)
    except MALFORMED as error:
        raise DecodeError(f"not JSON: {error}") from None
    return _struct(kind, value)


def _struct(kind: type[AnyStruct], value: object) -> AnyStruct:
    if not isinstance(value, dict):
        raise DecodeError(f"expected an object for {kind.__name__}, got {_sort(value)}")
    fields = {each.json_name.lower(): each for each in fields_of(kind)}
    found: dict[str, object] = {}
    for key, content in value.items():
        field = fields.get(key.lower())
        if field is None or content is None:
            continue
        if not field.is_list:
            found[field.name] = _scalar(field, content)
        elif isinstance(content, list):
            found[field.name] = [_element(field, each) for each in content]
        else:
            raise DecodeError(f"expected a list for {field.json_name}, got {_sort(content)}")
    return kind(**found)


def _element(field: Field, value: object) -> object:
    """A list element. `null` means the zero value, which is nil for bytes."""
    if value is not None:
        return _scalar(field, value)
    match field.kind:
        case Kind.TEXT:
            return ""
        case Kind.MESSAGE:
            assert field.message is not None
            return field.message()
        case _:
            return None


def _scalar(field: Field, value: object) -> object:
    match field.kind, value:
        case Kind.TEXT, str():
            return value
        case Kind.BYTES, str():
            try:
                # Go skips line ends in base64.
                plain = value.replace("\r", "").replace("\n", "")
                return binascii.a2b_base64(plain, strict_mode=True)
            except ValueError as error:
                raise DecodeError(f"{field.json_name} is not base64: {error}") from None
        case Kind.BOOL, bool():
            return value
        case Kind.INT, int() if not isinstance(value, bool):
            if field.low <= value <= field.high:
                return value
            raise DecodeError(f"{field.json_name} is out of range: {value}")
        case Kind.MESSAGE, _:
            assert field.message is not None
            return _struct(field.message, value)
    raise DecodeError(f"{field.json_name} cannot be {_sort(value)}")


def _sort(value: object) -> str:
    return "null" if value is None else type(value).__name__


def check(message: msgspec.Struct) -> None:
    """Raises `EncodeError` for an integer that its field cannot hold. Only clients call it: the
    broker's own numbers fit.
    """
    for field in fields_of(type(message)):
        if field.kind is Kind.INT:
            value = getattr(message, field.name)
            if not field.low <= value <= field.high:
                raise EncodeError(f"{field.json_name} is out of range: {value}")


def _has_text(kind: type[msgspec.Struct]) -> bool:
    return any(
        each.kind is Kind.TEXT or (each.message is not None and _has_text(each.message))
        for each in fields_of(kind)
    )


#: Messages without text, which need no escapes.
_PLAIN: Final = frozenset(each for each in TYPES if not _has_text(each))


# ---- batches of ReplicateStream

_BATCH: Final = struct.Struct(">qiiIBi")
_RECORD: Final = struct.Struct(">qi")


def encode_batch(entries: Sequence[Entry]) -> bytes:
    """The batch of some records; empty without records."""
    if not entries:
        return b""
    records = b"".join(
        _RECORD.pack(each.offset, len(each.value or b"")) + (each.value or b"") for each in entries
    )
    first, last = entries[0].offset, entries[-1].offset
    crc = zlib.crc32(records)
    return _BATCH.pack(first, len(records), 0, crc, 0, last - first) + records


def decode_batch(data: Buffer) -> list[Entry]:
    """Raises `DecodeError` for a wrong length or checksum."""
    if not data:
        return []
    if len(data) < _BATCH.size:
        raise DecodeError(f"batch of {len(data)} bytes; its header has {_BATCH.size}")
    _, size, _, crc, _, _ = _BATCH.unpack_from(data)
    records = bytes(data[_BATCH.size :])
    if size != len(records):
        raise DecodeError(f"batch announces {size} bytes of records and has {len(records)}")
    if zlib.crc32(records) != crc:
        raise DecodeError("batch fails its checksum")
    entries: list[Entry] = []
    position = 0
    while position + _RECORD.size <= size:
        offset, length = _RECORD.unpack_from(records, position)
        position += _RECORD.size
        if offset < 0 or not 0 <= length <= size - position:
            break
        entries.append(Entry(offset=offset, value=records[position : position + length]))
        position += length
    return entries
