"""Reading and writing of the varints that wire protocols share: the encoding and its bounds checks.

Varints are those of Protocol Buffers and Kafka: seven bits per byte, low group first, high bit set
on all but the last byte.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import DecodeError, EncodeError
from dragoman.types import Buffer

_BITS_MAX = 32

#: Every one-byte varint, so that the common case is an index instead of a call.
UVARINT_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    value = shift = 0
    start = position
    size = len(data)
    while position < size:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> _BITS_MAX:
                break
            return value, position
        shift += 7
        if shift >= _BITS_MAX:
            break
    else:
        raise DecodeError(f"varint at byte {start} is cut off")
    raise DecodeError(f"varint at byte {start} has more than {_BITS_MAX} bits")


def uvarint(value: int) -> bytes:
    """The bytes of a non-negative integer as a varint."""
    if value < 0:
        raise EncodeError(f"{value} is negative and cannot be an unsigned varint")
    if value < 0x80:
        return UVARINT_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
