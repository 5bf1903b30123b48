"""Reading and writing of the integers, varints and strings that several wire protocols share.

Owns the encodings and their bounds checks, and knows no protocol. All fixed-width integers are
big-endian. Readers take any bytes-like object and a position, return the value and the position
after it, and raise only `DecodeError`. `Reader` is a cursor for whole messages.

Varints are those of Protocol Buffers and Kafka: seven bits per byte, low group first, high bit set
on all but the last byte. Signed ones are zigzag coded first (0, -1, 1, -2 … become 0, 1, 2, 3 …).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from dragoman.errors import DecodeError, EncodeError
from dragoman.types import Buffer

UVARINT32_BYTES_MAX: Final = 5
UVARINT64_BYTES_MAX: Final = 10

_UINT16 = Struct(">H")
_UINT32 = Struct(">I")
_UINT64 = Struct(">Q")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

#: Every one-byte varint, so that the common case is an index instead of a call.
UVARINT_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    return _read_uvarint(data, position, 32)


def read_uvarlong(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits."""
    return _read_uvarint(data, position, 64)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 32 bits."""
    value, position = _read_uvarint(data, position, 32)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits."""
    value, position = _read_uvarint(data, position, 64)
    return (value >> 1) ^ -(value & 1), position


def _read_uvarint(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    start = position
    size = len(data)
    while position < size:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
        shift += 7
        if shift >= bits:
            break
    else:
        raise DecodeError(f"varint at byte {start} is cut off")
    raise DecodeError(f"varint at byte {start} has more than {bits} bits")


def uvarint(value: int) -> bytes:
    """The bytes of a non-negative integer as a varint."""
    if value < 0:
        raise EncodeError(f"{value} is negative and cannot be an unsigned varint")
    if value < 0x80:
        return UVARINT_BYTE[value]
    out = bytearray()
    append_uvarint(out, value)
    return bytes(out)


def append_uvarint(out: bytearray, value: int) -> None:
    """Append a non-negative integer as a varint. The caller guarantees the sign."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def append_varint(out: bytearray, value: int) -> None:
    """Append an integer of at most 32 bits zigzag coded."""
    append_uvarint(out, (value << 1) ^ (value >> 31))


def append_varlong(out: bytearray, value: int) -> None:
    """Append an integer of at most 64 bits zigzag coded."""
    append_uvarint(out, (value << 1) ^ (value >> 63))


def uvarint_size(value: int) -> int:
    """How many bytes `value` takes as an unsigned varint."""
    return max(1, (value.bit_length() + 6) // 7)


def varint_size(value: int) -> int:
    """How many bytes `value` takes as a zigzag varint, of either width."""
    return uvarint_size((value << 1) ^ (value >> 63))


def text(data: Buffer) -> str:
    """UTF-8 to string; `DecodeError` when it is not UTF-8."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"text is not UTF-8 at its byte {error.start}") from None


class Reader:
    """A cursor over one message. Every method checks the remaining bytes before it takes any."""

    __slots__ = ("_data", "_size", "position")

    def __init__(self, data: Buffer, position: int = 0) -> None:
        self._data = data
        self._size = len(data)
        self.position = position

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def take(self, size: int) -> bytes:
        """The next `size` bytes, copied."""
        return bytes(self._data[self._advance(size) : self.position])

    def view(self, size: int) -> memoryview:
        """The next `size` bytes without a copy; keeps the message alive."""
        return memoryview(self._data)[self._advance(size) : self.position]

    def skip(self, size: int) -> None:
        self._advance(size)

    def text(self, size: int) -> str:
        """The next `size` bytes as UTF-8."""
        return text(self.take(size))

    def uint8(self) -> int:
        return self._data[self._advance(1)]

    def uint16(self) -> int:
        value: int = _UINT16.unpack_from(self._data, self._advance(2))[0]
        return value

    def uint32(self) -> int:
        value: int = _UINT32.unpack_from(self._data, self._advance(4))[0]
        return value

    def uint64(self) -> int:
        value: int = _UINT64.unpack_from(self._data, self._advance(8))[0]
        return value

    def int8(self) -> int:
        value = self.uint8()
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        value: int = _INT16.unpack_from(self._data, self._advance(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack_from(self._data, self._advance(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack_from(self._data, self._advance(8))[0]
        return value

    def uvarint(self) -> int:
        value, self.position = read_uvarint(self._data, self.position)
        return value

    def varint(self) -> int:
        value, self.position = read_varint(self._data, self.position)
        return value

    def varlong(self) -> int:
        value, self.position = read_varlong(self._data, self.position)
        return value

    def finish(self) -> None:
        """Complain when bytes are left over."""
        if self.remaining:
            raise DecodeError(f"{self.remaining} bytes left over at byte {self.position}")

    def _advance(self, size: int) -> int:
        """Move past `size` bytes and return where they start."""
        start = self.position
        end = start + size
        if not start <= end <= self._size:
            left = self._size - start
            raise DecodeError(f"{size} bytes announced at byte {start}, {left} are left")
        self.position = end
        return start
