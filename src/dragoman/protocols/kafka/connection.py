"""Sans-I/O Kafka connections: `ServerConnection` and `ClientConnection`.

Bytes are received through `get_buffer` and `buffer_updated`, as in `asyncio.BufferedProtocol`, or
through `receive_data`. Both return the complete messages, in order. A connection has no access to
sockets, time or handlers, and does not decide when to close. After a `DecodeError` the rest of the
stream cannot be decoded.

Server. A request is its header and the frame that contains its body. The caller checks whether key
and version are served (`constants.is_accepted`) before it decodes the body, and sends replies in
request order.

Client. Replies carry neither key nor version, so the connection stores both for each request in
flight. Kafka answers strictly in order: a correlation id other than that of the oldest request
means that the stream is out of sync.

A broker that does not know the version of an ApiVersions request answers with error 35 in the
layout of version 0 (KIP-511). `encode_api_versions_fallback` writes that reply, and the client
reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec

from dragoman.errors import DecodeError, LocalProtocolError, RemoteProtocolError
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import CLIENT_ID_BYTES_MAX, KAFKA_HEADER_TAGS_MAX, KAFKA_IN_FLIGHT_MAX
from dragoman.protocols.kafka import codec, notation
from dragoman.protocols.kafka.bounds import bound_of
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.decoder_source import skip_tags
from dragoman.protocols.kafka.errors import ErrorCode, OversizedMessageError
from dragoman.protocols.kafka.messages import (
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    Message,
    ProduceRequest,
)
from dragoman.types import Buffer

_REQUEST_HEAD: Final = Struct(">hhih")
_CORRELATION_ID: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request as received. `frame` is not shared, so the owner may keep and modify it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    #: The whole frame without its size.
    frame: bytearray
    #: Position of the body in the frame.
    body_start: int

    @property
    def body(self) -> memoryview:
        return memoryview(self.frame)[self.body_start :]

    def decode(self) -> Message:
        """Decode the body. Raises `UnsupportedVersionError` if the schema lacks the key or version,
        and `OversizedMessageError` beyond the bounds of `bounds.py`.
        """
        check_size(self.api_key, len(self.frame))
        return codec.decode_request(self.api_key, self.version, self.frame, self.body_start)


class _FrameBounds(dict[int, int | None]):
    """By API key, the maximum frame size of a request; None where only the listener's bound
    applies.
    """

    def __missing__(self, api_key: int) -> int | None:
        name = notation.name_of(api_key, "Request")
        bytes_max = None if name is None else bound_of(name).bytes_max
        if name is not None:
            self[api_key] = bytes_max
        return bytes_max


_FRAME_BOUNDS: Final = _FrameBounds()


def check_size(api_key: int, size: int) -> None:
    """Raises `OversizedMessageError` for a frame larger than its API key allows."""
    bytes_max = _FRAME_BOUNDS[api_key]
    if bytes_max is not None and size > bytes_max:
        raise OversizedMessageError(f"request of {size} bytes; at most {bytes_max}")


class ServerConnection:
    """The broker's side of one connection."""

    __slots__ = ("_client_id", "_client_id_bytes", "reader")

    def __init__(self, frame_bytes_max: int, scratch: Scratch) -> None:
        #: Splits the stream into frames for `request`.
        self.reader = FrameReader(frame_bytes_max, scratch)
        # A client sends the same id with every request, and comparing is cheaper than decoding.
        self._client_id: str | None = None
        self._client_id_bytes = b"\xff\xff"

    def receive_data(self, data: Buffer) -> list[Request]:
        """Receive bytes from another source; returns the requests that they complete, in order."""
        return [self.request(frame) for frame in self.reader.receive(data)]

    def request(self, frame: bytearray) -> Request:
        """Decode the header of a frame. Raises `DecodeError`."""
        if len(frame) < _REQUEST_HEAD.size:
            raise DecodeError(f"request of {len(frame)} bytes is shorter than a header")
        api_key, version, correlation_id, client_id_size = _REQUEST_HEAD.unpack_from(frame)
        if not frame.startswith(self._client_id_bytes, 8):
            self._read_client_id(frame, client_id_size)
        body_start = 8 + len(self._client_id_bytes)
        if _FLEXIBLE_HEADERS[api_key << 16 | version & 0xFFFF]:
            body_start = _after_tags(frame, body_start)
        return Request(api_key, version, correlation_id, self._client_id, frame, body_start)

    def _read_client_id(self, frame: bytearray, size: int) -> None:
        # Not compact even in flexible headers: a broker must locate it before it knows the version.
        end = _REQUEST_HEAD.size + max(size, 0)
        if size < -1 or end > len(frame):
            raise DecodeError(f"client id of {size} bytes in a request of {len(frame)}")
        if size > CLIENT_ID_BYTES_MAX:
            raise DecodeError(f"client id of {size} bytes; at most {CLIENT_ID_BYTES_MAX}")
        raw = bytes(frame[8:end])
        try:
            self._client_id = None if size < 0 else raw[2:].decode()
        except UnicodeDecodeError:
            raise DecodeError("client id is not UTF-8") from None
        self._client_id_bytes = raw


def _after_tags(frame: bytearray, position: int) -> int:
    """The position after the tagged section of a header, whose fields are all unknown."""
    try:
        count = frame[position]
        if not count:
            return position + 1
        return skip_tags(frame, position + 1, count, "header", KAFKA_HEADER_TAGS_MAX)[0]
    except IndexError:
        raise DecodeError("header is cut off") from None


class _FlexibleHeaders(dict[int, bool]):
    """By API key and version, whether the request header has a tagged section.

    False for keys and versions outside the schema: their bodies are never decoded, so the position
    of the body does not matter.
    """

    #: Bounds the entries that a peer can create with unknown versions.
    _KEPT_MAX: Final = 1000

    def __missing__(self, packed: int) -> bool:
        api_key, version = packed >> 16, packed & 0xFFFF
        name = notation.name_of(api_key, "Request")
        known = name is not None and version in notation.versions_of(name)
        flexible = name is not None and known and notation.is_flexible(name, version)
        if len(self) < self._KEPT_MAX:
            self[packed] = flexible
        return flexible


_FLEXIBLE_HEADERS: Final = _FlexibleHeaders()


def encode_api_versions_fallback(
    correlation_id: int, served: Iterable[ApiVersionsResponseApiKey]
) -> list[Buffer]:
    """The reply to an ApiVersions request of an unknown version: error 35 in version 0's layout."""
    reply = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION.value, api_keys=list(served)
    )
    return codec.encode_response(reply, 0, correlation_id)


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A response, and the request that it answers."""

    correlation_id: int
    api_key: int
    #: The request's version; an ApiVersions reply with error 35 is in version 0's layout.
    version: int
    message: Message


class _InFlight(msgspec.Struct, frozen=True, gc=False):
    correlation_id: int
    api_key: int
    version: int


class ClientConnection:
    """A client's side of one connection."""

    __slots__ = ("_client_id", "_in_flight", "_next_id", "_reader", "get_buffer")

    def __init__(
        self,
        client_id: str | None,
        frame_bytes_max: int,
        scratch: Scratch,
        first_correlation_id: int = 0,
    ) -> None:
        self._client_id = client_id
        self._reader = FrameReader(frame_bytes_max, scratch)
        self.get_buffer = self._reader.get_buffer
        self._in_flight: deque[_InFlight] = deque()
        self._next_id = first_correlation_id

    @property
    def in_flight(self) -> int:
        """The number of requests without a reply."""
        return len(self._in_flight)

    def send(self, message: Message, version: int) -> tuple[int, list[Buffer]]:
        """Returns the correlation id and the frame to send. Produce with acks=0 gets no reply.

        Raises `EncodeError`, and `LocalProtocolError` when too many requests are unanswered.
        """
        if len(self._in_flight) >= KAFKA_IN_FLIGHT_MAX:
            raise LocalProtocolError(f"{KAFKA_IN_FLIGHT_MAX} requests are unanswered")
        correlation_id = self._next_id
        frame = codec.encode_request(message, version, correlation_id, self._client_id)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if not (isinstance(message, ProduceRequest) and message.acks == 0):
            api_key = notation.message(type(message).__name__).api_key
            self._in_flight.append(_InFlight(correlation_id, api_key, version))
        return correlation_id, frame

    def buffer_updated(self, count: int) -> list[Reply]:
        """Returns the complete replies, in order."""
        return [self._reply(frame) for frame in self._reader.buffer_updated(count)]

    def receive_data(self, data: Buffer) -> list[Reply]:
        return [self._reply(frame) for frame in self._reader.receive(data)]

    def _reply(self, frame: bytearray) -> Reply:
        if len(frame) < _CORRELATION_ID.size:
            raise DecodeError(f"response of {len(frame)} bytes is shorter than a header")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        if not self._in_flight:
            raise RemoteProtocolError(f"response {correlation_id} answers no request")
        sent = self._in_flight.popleft()
        if correlation_id != sent.correlation_id:
            raise RemoteProtocolError(
                f"response {correlation_id} came where {sent.correlation_id} was due"
            )
        message = self._decode(sent, frame)
        return Reply(correlation_id, sent.api_key, sent.version, message)

    @staticmethod
    def _decode(sent: _InFlight, frame: bytearray) -> Message:
        position, version = _CORRELATION_ID.size, sent.version
        if sent.api_key == ApiKey.API_VERSIONS:
            if _starts_with_unsupported_version(frame, position):
                version = 0
        elif _FLEXIBLE_HEADERS[sent.api_key << 16 | version]:
            position = _after_tags(frame, position)
        return codec.decode_response(sent.api_key, version, frame, position)


def _starts_with_unsupported_version(frame: bytearray, position: int) -> bool:
    if len(frame) < position + _ERROR_CODE.size:
        return False
    (code,) = _ERROR_CODE.unpack_from(frame, position)
    return bool(code == ErrorCode.UNSUPPORTED_VERSION)
