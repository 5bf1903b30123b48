"""Encodes and decodes messages in protobuf 3, as the original's later revision does (section 12).

Field numbers follow the order of declaration, integers are varints, and zero values are omitted.
Unknown fields, and known fields with another wire type, are skipped, as protobuf requires.
"""

from __future__ import annotations

from functools import cache
from typing import Final, TypeVar

import msgspec

from dragoman.errors import DecodeError, EncodeError
from dragoman.protocols.mlog.messages import Field, Kind, fields_of

AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_MASK64: Final = (1 << 64) - 1
_VARINTS: Final = (Kind.INT, Kind.BOOL)


def encode(message: msgspec.Struct) -> bytes:
    """Raises `EncodeError` for a value that the field cannot hold."""
    out: list[bytes] = []
    for field, tag in _tagged(type(message)):
        value = getattr(message, field.name)
        if field.is_list:
            for each in value or ():
                out += (tag, *_sized(each))
        elif field.kind in _VARINTS:
            if value:
                out += (tag, _varint(value & _MASK64))
        elif value or (value is not None and field.kind is Kind.MESSAGE):
            out += (tag, *_sized(value))
    return b"".join(out)


@cache
def _tagged(kind: type[msgspec.Struct]) -> tuple[tuple[Field, bytes], ...]:
    """The fields with their tags: number and wire type."""
    return tuple(
        (each, _varint(each.number << 3 | (_VARINT if each.kind in _VARINTS else _LENGTH)))
        for each in fields_of(kind)
    )


def _sized(value: object) -> tuple[bytes, bytes]:
    if value is None:
        # Go's nil in a list of bytes: protobuf only has empty bytes.
        content = b""
    elif isinstance(value, msgspec.Struct):
        content = encode(value)
    elif isinstance(value, str):
        content = text_bytes(value)
    else:
        assert isinstance(value, bytes)
        content = value
    return _varint(len(content)), content


def text_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"not Unicode text: {error}") from None


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- decoding


def decode(kind: type[AnyStruct], data: bytes) -> AnyStruct:
    """Raises `DecodeError`."""
    fields = _by_tag(kind)
    found: dict[str, object] = {}
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _read_varint(data, position)
        field = fields.get(tag)
        if field is not None and position < end and data[position] < 0x80:
            # Fast path for nearly every field: short content, or a small number.
            small = data[position]
            start = position = position + 1
            if tag & 7 == _VARINT:
                found[field.name] = small if field.kind is Kind.INT else small != 0
                continue
            position += small
            if position > end:
                raise DecodeError(f"protobuf field of {small} bytes in {end - start}")
        else:
            start, position = _content(data, position, tag & 7)
        if field is None:
            if tag < 8:
                raise DecodeError("protobuf field number 0")
        elif field.is_list:
            earlier = found.setdefault(field.name, [])
            assert isinstance(earlier, list)
            earlier.append(_value(field, data, start, position))
        elif field.kind is Kind.BYTES:
            found[field.name] = data[start:position]
        else:
            found[field.name] = _value(field, data, start, position)
    return kind(**found)


@cache
def _by_tag(kind: type[msgspec.Struct]) -> dict[int, Field]:
    """The fields by tag. A known number with another wire type is an unknown tag."""
    return {
        each.number << 3 | (_VARINT if each.kind in _VARINTS else _LENGTH): each
        for each in fields_of(kind)
    }


def _value(field: Field, data: bytes, start: int, end: int) -> object:
    """The content of a field between `start` and `end`."""
    kind = field.kind
    if kind is Kind.BYTES:
        return data[start:end]
    if kind is Kind.TEXT:
        try:
            return data[start:end].decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"{field.name} is not UTF-8: {error}") from None
    if kind is Kind.MESSAGE:
        assert field.message is not None
        return decode(field.message, data[start:end])
    number, _ = _read_varint(data, start)
    if kind is Kind.BOOL:
        return number != 0
    if number <= field.high >> 1:
        return number
    # protobuf truncates integers to the size of the field.
    bits = (field.high - field.low).bit_length()
    number &= (1 << bits) - 1
    return number - (1 << bits) if number > field.high else number


def _content(data: bytes, position: int, wire_type: int) -> tuple[int, int]:
    """The positions at which a field's content begins and ends."""
    if wire_type == _LENGTH:
        size, position = _read_varint(data, position)
    elif wire_type == _VARINT:
        return position, _read_varint(data, position)[1]
    elif wire_type in (_FIXED64, _FIXED32):
        size = 8 if wire_type == _FIXED64 else 4
    else:
        raise DecodeError(f"protobuf wire type {wire_type}")
    if size > len(data) - position:
        raise DecodeError(f"protobuf field of {size} bytes in {len(data) - position}")
    return position, position + size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    try:
        while (byte := data[position]) >= 0x80:
            result |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if shift > 63:
                raise DecodeError("protobuf varint is longer than ten bytes")
    except IndexError:
        raise DecodeError("protobuf varint is cut off") from None
    return (result | byte << shift) & _MASK64, position + 1
