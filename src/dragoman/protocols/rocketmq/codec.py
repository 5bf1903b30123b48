"""Encodes commands to frames and decodes them, with headers in JSON or RocketMQ's binary format.

    frame    size i32 (of what follows), meta u32 (type u8, header length u24), header, body
    binary   code i16, language u8, version i16, opaque i32, flag i32,
             remark (length i32, text), fields (length i32; each: name length i16, value length i32)

JSON is written compactly and with strings as the values of `extFields`, because the official Go
client accepts nothing else. Input may also have numbers and booleans there, and a number as the
language.

Both sides of a `Connection` send requests, and responses come in any order: the caller matches them
by `opaque`. After a `DecodeError` the rest of the stream cannot be decoded.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

import msgspec

from dragoman.errors import MALFORMED, DecodeError, EncodeError
from dragoman.framing import FrameReader, Scratch
from dragoman.protocols.rocketmq.constants import (
    FRAME_BYTES_MAX,
    IS_ONE_WAY,
    IS_RESPONSE,
    LANGUAGES,
    VERSION,
    Serialization,
)
from dragoman.types import Buffer

_META: Final = Struct(">I")
_FRAME: Final = Struct(">iI")
_BINARY: Final = Struct(">hBhii")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_META_BYTES: Final = 4
_HEADER_BYTES_MASK: Final = 0xFFFFFF
_I32_RANGE: Final = range(-(1 << 31), 1 << 31)
_JSON: Final = Serialization.JSON
_OTHER: Final = LANGUAGES.index("OTHER")
_NO_FIELDS: Final[dict[str, str]] = {}


class Command(msgspec.Struct, kw_only=True):
    """A request or a response."""

    #: The request code, or the response code.
    code: int
    #: Matches a response with its request.
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION
    remark: str | None = None
    fields: dict[str, str] = _NO_FIELDS
    body: Buffer = b""
    serialization: Serialization = _JSON
    #: The name of the serialization, which Java clients send in the header. It has no effect.
    stated_serialization: str | None = None

    @property
    def is_response(self) -> bool:
        return bool(self.flag & IS_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & IS_ONE_WAY)


_NAMES: Final = {"fields": "extFields", "serialization": "serializeTypeCurrentRPC"}


class _ReadHeader(msgspec.Struct, rename=_NAMES):
    code: int
    opaque: int = 0
    flag: int = 0
    language: str | int = "JAVA"
    version: int = 0
    remark: str | None = None
    fields: dict[str, str] | None = None
    serialization: str | None = None


class _AnyHeader(msgspec.Struct, rename=_NAMES):
    """A header whose field values need not be strings."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str | int = "JAVA"
    version: int = 0
    remark: str | None = None
    fields: dict[str, str | int | float | bool | None] | None = None
    serialization: str | None = None


class _WrittenHeader(msgspec.Struct, omit_defaults=True, rename=_NAMES):
    """A header with its members in Java's order."""

    code: int
    fields: dict[str, str] | None = None
    #: The defaults never occur as values, so that these members are always written.
    flag: int = -1
    language: str = ""
    opaque: int | None = None
    remark: str | None = None
    serialization: str | None = None
    version: int = -1


_read_strict: Final = msgspec.json.Decoder(_ReadHeader).decode
_read_any: Final = msgspec.json.Decoder(_AnyHeader).decode
_write: Final = msgspec.json.Encoder().encode


# ---- reading


def decode(frame: Buffer, header_bytes_max: int = _HEADER_BYTES_MASK) -> Command:
    """Decode a frame without its size. Raises `DecodeError`."""
    view = memoryview(frame)
    if len(view) < _META_BYTES:
        raise DecodeError(f"a frame of {len(view)} bytes has no header")
    (meta,) = _META.unpack_from(view)
    end = _META_BYTES + (meta & _HEADER_BYTES_MASK)
    if end > len(view):
        raise DecodeError(f"header of {end - _META_BYTES} bytes in a frame of {len(view)}")
    if end - _META_BYTES > header_bytes_max:
        raise DecodeError(f"header of {end - _META_BYTES} bytes; {header_bytes_max} are allowed")
    header, body = view[_META_BYTES:end], view[end:]
    kind = meta >> 24
    if kind == Serialization.JSON:
        return _decode_json(header, body)
    if kind == Serialization.BINARY:
        return _decode_binary(bytes(header), body)
    raise DecodeError(f"header of unknown serialize type {kind}")


def _decode_json(header: memoryview, body: memoryview) -> Command:
    try:
        read: _ReadHeader | _AnyHeader
        try:
            read = _read_strict(header)
            fields = read.fields or {}
        except msgspec.ValidationError:
            read = _read_any(header)
            fields = {
                name: value if isinstance(value, str) else _as_text(value)
                for name, value in (read.fields or {}).items()
                if value is not None
            }
    except MALFORMED as error:
        raise DecodeError(f"header is not that of a command: {error}") from None
    if read.opaque not in _I32_RANGE:
        raise DecodeError(f"opaque {read.opaque} has more than 32 bits")
    language = read.language
    return Command(
        code=read.code,
        opaque=read.opaque,
        flag=read.flag,
        language=language if isinstance(language, str) else language_name(language),
        version=read.version,
        remark=read.remark,
        fields=fields,
        body=body,
        stated_serialization=read.serialization,
    )


def _as_text(value: float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def language_name(number: int) -> str:
    return LANGUAGES[number] if 0 <= number < len(LANGUAGES) else LANGUAGES[_OTHER]


def _decode_binary(header: bytes, body: memoryview) -> Command:
    try:
        code, language, version, opaque, flag = _BINARY.unpack_from(header)
        remark, position = _read_text(header, _BINARY.size, _I32)
        (size,) = _I32.unpack_from(header, position)
        position += _I32.size
        if size < 0 or position + size != len(header):
            raise DecodeError(f"fields of {size} bytes where {len(header) - position} are left")
        fields: dict[str, str] = {}
        while position < len(header):
            name, position = _read_text(header, position, _I16)
            value, position = _read_text(header, position, _I32)
            if value:
                # A value without bytes is read as null, as in RocketMQ.
                fields[name] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"binary header is cut off or malformed: {error}") from None
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        language=language_name(language),
        version=version,
        remark=remark or None,
        fields=fields,
        body=body,
        serialization=Serialization.BINARY,
    )


def _read_text(data: bytes, position: int, width: Struct) -> tuple[str, int]:
    (size,) = width.unpack_from(data, position)
    position += width.size
    end = position + size
    if size < 0 or end > len(data):
        raise DecodeError(f"text of {size} bytes where {len(data) - position} are left")
    return data[position:end].decode(), end


# ---- writing


def encode(command: Command) -> bytes:
    """The frame. Raises `EncodeError` for a value that the wire cannot express."""
    return b"".join(encode_parts(command))


def encode_parts(command: Command) -> tuple[bytes, Buffer]:
    """The frame in two parts, so that the body is not copied. Raises `EncodeError`."""
    if command.serialization == Serialization.BINARY:
        header = _encode_binary(command)
    else:
        header = _encode_json(command)
    body = command.body
    size = _META_BYTES + len(header) + len(body)
    if size + _I32.size > FRAME_BYTES_MAX or len(header) > _HEADER_BYTES_MASK:
        raise EncodeError(f"a frame of {size} bytes is larger than {FRAME_BYTES_MAX}")
    return _FRAME.pack(size, command.serialization << 24 | len(header)) + header, body


def frame_of(header: bytes) -> bytes:
    """The frame of a JSON header without a body."""
    return _FRAME.pack(_META_BYTES + len(header), len(header)) + header


def _encode_json(command: Command) -> bytes:
    return _write(
        _WrittenHeader(
            command.code,
            command.fields or None,
            command.flag,
            command.language,
            command.opaque,
            command.remark,
            command.stated_serialization,
            command.version,
        )
    )


def _encode_binary(command: Command) -> bytes:
    try:
        language = LANGUAGES.index(command.language)
    except ValueError:
        language = _OTHER
    remark = (command.remark or "").encode()
    fields = bytearray()
    try:
        for name, value in command.fields.items():
            name_bytes, value_bytes = name.encode(), value.encode()
            fields += _I16.pack(len(name_bytes)) + name_bytes
            fields += _I32.pack(len(value_bytes)) + value_bytes
        head = _BINARY.pack(command.code, language, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise EncodeError(f"a binary header cannot have this: {error}") from None
    return b"".join((head, _I32.pack(len(remark)), remark, _I32.pack(len(fields)), bytes(fields)))


_SIZE_BYTES = 4


class Connection:
    __slots__ = ("reader",)

    def __init__(self, scratch: Scratch | None = None) -> None:
        self.reader = FrameReader(
            FRAME_BYTES_MAX - _SIZE_BYTES, scratch or Scratch(), frame_bytes_min=_SIZE_BYTES
        )

    def receive_data(self, data: Buffer) -> list[Command]:
        """Receive bytes; returns the commands that they complete. Raises `DecodeError`."""
        return [decode(frame) for frame in self.reader.receive(data)]
