"""Encodes messages to frames and decodes them, for both sides of a connection.

All functions are pure. The first use of a version compiles its encoder or decoder from the schema
(well under a millisecond for most); after that, a call costs a table lookup in addition to the
emitted code.

Decoders take the frame without its size, and the position of the body. They raise only
`DecodeError` and take time linear in the frame. Extra bytes after a request are ignored, as in
Kafka; after a response they are an error. Encoders raise only `EncodeError`. They return a list of
buffers to send in order: a single buffer, unless there are records, which are not copied.

A frame is a size (i32, without itself), a header and a body:

    request header    key i16, version i16, correlation id i32, client id as str16
    response header   correlation id i32

In flexible versions a tagged section ends the header, except that of ApiVersions responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Final, TypeAlias, TypeVar

import msgspec

from dragoman.errors import DecodeError, EncodeError
from dragoman.primitives import uvarint
from dragoman.protocols.kafka import messages, notation
from dragoman.protocols.kafka.decoder_source import Decoder, compile_decoder
from dragoman.protocols.kafka.emitter import has_records
from dragoman.protocols.kafka.encoder_source import FAULTS, Encoder, compile_encoder
from dragoman.protocols.kafka.errors import UnsupportedVersionError
from dragoman.protocols.kafka.messages import Message
from dragoman.types import Buffer

AnyMessage = TypeVar("AnyMessage", bound=Message)
_RequestFramer: TypeAlias = Callable[[Message, int, "str | None"], "list[Buffer]"]
_ResponseFramer: TypeAlias = Callable[[Message, int], "list[Buffer]"]

API_VERSIONS_KEY: Final = 18
_VERSION_PREFIX: Final = Struct(">h")
_RESPONSE_HEAD: Final = Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE: Final = Struct(">iix")
_REQUEST_HEAD: Final = Struct(">ihhih")

# ---- decoding


def decode_request(api_key: int, version: int, data: Buffer, position: int = 0) -> Message:
    """The body of a request, from `position` to the end of `data`."""
    decoder = _REQUEST_DECODERS[api_key << 16 | version & 0xFFFF]
    return decoder(data if type(data) is bytearray else _whole(data), position)


def decode_response(api_key: int, version: int, data: Buffer, position: int = 0) -> Message:
    """The body of a response, from `position` to the end of `data`."""
    decoder = _RESPONSE_DECODERS[api_key << 16 | version & 0xFFFF]
    return decoder(data if type(data) is bytearray else _whole(data), position)


def decode(kind: type[AnyMessage], version: int, data: Buffer, position: int = 0) -> AnyMessage:
    """Decode a message of a class that the caller knows, so that the result has its type."""
    message = _DECODERS[kind.__name__, version](_whole(data), position)
    assert isinstance(message, kind)
    return message


def _whole(data: Buffer) -> bytes | bytearray:
    """The object that decoders index and slice. A view of a whole object yields that object; other
    views are copied.
    """
    if isinstance(data, memoryview):
        owner = data.obj
        if (
            isinstance(owner, (bytes, bytearray))
            and len(owner) == data.nbytes
            and data.c_contiguous
        ):
            return owner
        return bytearray(data)
    return data


class _Decoders(dict[tuple[str, int], Decoder]):
    """Decoders by message name and version, compiled on first use."""

    def __missing__(self, key: tuple[str, int]) -> Decoder:
        name, version = key
        if version not in notation.versions_of(name):
            raise UnsupportedVersionError(f"{name} has no version {version}")
        decoder = self[key] = compile_decoder(notation.message(name), version)
        return decoder


class _KeyedDecoders(dict[int, Decoder]):
    """Decoders by API key and version, which are packed into one integer."""

    def __init__(self, direction: notation.Direction) -> None:
        super().__init__()
        self._direction = direction

    def __missing__(self, packed: int) -> Decoder:
        api_key, version = packed >> 16, packed & 0xFFFF
        name = notation.name_of(api_key, self._direction)
        if name is None:
            raise UnsupportedVersionError(f"API key {api_key} is not known")
        decoder = self[packed] = _DECODERS[name, version]
        return decoder


_DECODERS: Final = _Decoders()
_REQUEST_DECODERS: Final = _KeyedDecoders("Request")
_RESPONSE_DECODERS: Final = _KeyedDecoders("Response")

# ---- encoding


def encode_response(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """A whole response frame."""
    return _RESPONSE_FRAMERS[type(message), version](message, correlation_id)


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole request frame."""
    return _REQUEST_FRAMERS[type(message), version](message, correlation_id, client_id)


def encode_body(message: Message, version: int) -> bytes:
    """A message without frame and header, in one piece."""
    out: list[Buffer] = []
    buffers: list[Buffer] = []
    encoder = _ENCODERS[type(message), version]
    encoder(message, out, buffers)
    try:
        return b"".join([*buffers, *out])
    except FAULTS as error:
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error


def join(buffers: list[Buffer]) -> bytes:
    """A frame as one buffer, for transports and tests that need one. Copies records."""
    only = buffers[0]
    return only if len(buffers) == 1 and type(only) is bytes else b"".join(buffers)


class _Encoders(dict[tuple[type[Message], int], Encoder]):
    """Encoders by class and version, compiled on first use."""

    def __missing__(self, key: tuple[type[Message], int]) -> Encoder:
        kind, version = key
        spec = _encodable(kind, version)
        encoder = self[key] = compile_encoder(spec, version)
        return encoder


def _encodable(kind: type[Message], version: int) -> notation.MessageSpec:
    name = kind.__name__
    if name not in notation.message_names():
        raise EncodeError(f"{name} is part of a message and cannot be sent alone")
    if version not in notation.versions_of(name):
        raise EncodeError(f"{name} has no version {version}")
    return notation.message(name)


class _ResponseFramers(dict[tuple[type[Message], int], _ResponseFramer]):
    def __missing__(self, key: tuple[type[Message], int]) -> _ResponseFramer:
        kind, version = key
        spec = _encodable(kind, version)
        if spec.direction != "Response":
            raise EncodeError(f"{spec.name} is not a response")
        framer = self[key] = _response_framer(spec, version)
        return framer


class _RequestFramers(dict[tuple[type[Message], int], _RequestFramer]):
    def __missing__(self, key: tuple[type[Message], int]) -> _RequestFramer:
        kind, version = key
        spec = _encodable(kind, version)
        if spec.direction != "Request":
            raise EncodeError(f"{spec.name} is not a request")
        framer = self[key] = _request_framer(spec, version)
        return framer


def _response_framer(spec: notation.MessageSpec, version: int) -> _ResponseFramer:
    encoder = _ENCODERS[getattr(messages, spec.name), version]
    # When a client sends ApiVersions, it cannot know yet which header the broker uses (KIP-511).
    flexible = version >= spec.flexible and spec.api_key != API_VERSIONS_KEY
    head = _RESPONSE_HEAD_FLEXIBLE if flexible else _RESPONSE_HEAD
    pack, after_size = head.pack, head.size - 4
    what = f"{spec.name} v{version}"

    def frame(message: Message, correlation_id: int) -> list[Buffer]:
        out: list[Buffer] = []
        encoder(message, out, out)
        try:
            body = b"".join(out)
            return [pack(len(body) + after_size, correlation_id) + body]
        except FAULTS as error:
            raise EncodeError(f"{what}: {error}") from error

    def frame_with_records(message: Message, correlation_id: int) -> list[Buffer]:
        out: list[Buffer] = []
        buffers: list[Buffer] = []
        encoder(message, out, buffers)
        try:
            buffers.append(b"".join(out))
            size = sum(map(len, buffers)) + after_size
            buffers[0] = pack(size, correlation_id) + buffers[0]
        except FAULTS as error:
            raise EncodeError(f"{what}: {error}") from error
        return buffers

    return frame_with_records if has_records(spec.struct, version) else frame


def _request_framer(spec: notation.MessageSpec, version: int) -> _RequestFramer:
    encoder = _ENCODERS[getattr(messages, spec.name), version]
    tags = b"\0" if version >= spec.flexible else b""
    after_size = _REQUEST_HEAD.size - 4 + len(tags)
    what = f"{spec.name} v{version}"

    def frame(message: Message, correlation_id: int, client_id: str | None) -> list[Buffer]:
        out: list[Buffer] = []
        buffers: list[Buffer] = []
        encoder(message, out, buffers)
        try:
            buffers.append(b"".join(out))
            client = b"" if client_id is None else client_id.encode()
            length = -1 if client_id is None else len(client)
            size = after_size + len(client) + sum(map(len, buffers))
            head = _REQUEST_HEAD.pack(size, spec.api_key, version, correlation_id, length)
            buffers[0] = b"".join((head, client, tags, buffers[0]))
        except FAULTS as error:
            raise EncodeError(f"{what}: {error}") from error
        return buffers

    return frame


_ENCODERS: Final = _Encoders()
_RESPONSE_FRAMERS: Final = _ResponseFramers()
_REQUEST_FRAMERS: Final = _RequestFramers()

# ---- responses whose array is encoded incrementally


class ArrayEncoder:
    """Encodes a response incrementally, for arrays of many thousands of elements.

    The response is split into the fields before the array, the elements, and the fields after it.
    Each part is encoded as if it were a message, since the encoding of a structure does not depend
    on its context. Only the empty tagged section that would end the first part is removed.
    """

    __slots__ = ("_after", "_before", "_element", "_is_flexible", "_pack", "_what")

    def __init__(self, spec: notation.MessageSpec, field_name: str, version: int) -> None:
        fields = spec.struct.fields
        place = next(at for at, field in enumerate(fields) if field.name == field_name)
        element = fields[place].inner
        assert spec.direction == "Response", spec.name
        assert element is not None, field_name
        assert version in fields[place].versions, (spec.name, field_name, version)
        before = tuple(field for field in fields[:place] if field.tag is None)
        after = tuple(field for field in fields if field not in before and field != fields[place])

        def encoder(class_name: str, part: tuple[notation.FieldSpec, ...]) -> Encoder:
            struct = notation.StructSpec(class_name, part)
            return compile_encoder(msgspec.structs.replace(spec, struct=struct), version)

        self._before = encoder(spec.name, before)
        self._element = encoder(element.class_name, element.fields)
        self._after = encoder(spec.name, after)
        self._is_flexible = version >= spec.flexible
        self._pack = (_RESPONSE_HEAD_FLEXIBLE if self._is_flexible else _RESPONSE_HEAD).pack
        self._what = f"{spec.name} v{version}"

    def element(self, message: Message) -> bytes:
        return self._part(self._element, message)

    def frame(self, rest: Message, elements: Sequence[bytes], correlation_id: int) -> list[Buffer]:
        """A whole response frame. `rest` is the response; its own array is ignored."""
        before, after = self._part(self._before, rest), self._part(self._after, rest)
        if self._is_flexible:
            before = before[:-1] + uvarint(len(elements) + 1)
        else:
            before += len(elements).to_bytes(4, "big")
        body = b"".join((before, *elements, after))
        after_size = 5 if self._is_flexible else 4
        return [self._pack(len(body) + after_size, correlation_id) + body]

    def _part(self, encoder: Encoder, message: Message) -> bytes:
        out: list[Buffer] = []
        encoder(message, out, out)
        try:
            return b"".join(out)
        except FAULTS as error:
            raise EncodeError(f"{self._what}: {error}") from error


@cache
def array_encoder(kind: type[Message], field_name: str, version: int) -> ArrayEncoder:
    """An encoder for the array `field_name` of a response without records, other than
    ApiVersions.
    """
    return ArrayEncoder(_encodable(kind, version), field_name, version)


# ---- structures embedded in group requests


def encode_versioned(message: Message, version: int) -> bytes:
    """Encode a consumer subscription or assignment for a group request, prefixed with its
    version.
    """
    return _VERSION_PREFIX.pack(version) + encode_body(message, version)


def decode_versioned(kind: type[AnyMessage], data: Buffer) -> AnyMessage:
    """Decode what `encode_versioned` encodes.

    A version newer than the newest known one is decoded as the newest known one, as in Kafka:
    fields are only ever added.
    """
    if len(data) < _VERSION_PREFIX.size:
        raise DecodeError(f"{kind.__name__} has no version")
    (version,) = _VERSION_PREFIX.unpack_from(data)
    if version < 0:
        raise DecodeError(f"{kind.__name__} has version {version}")
    newest = notation.versions_of(kind.__name__).high
    return decode(kind, min(version, newest), data, _VERSION_PREFIX.size)
