"""Requests and responses of etcd's JSON gateway, as values.

The gateway is etcd's own translation of its API to HTTP: bytes are base64 and 64-bit numbers are
text, and the decoders here accept both. Names are etcd's; fields with default values are omitted in
both directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from dragoman.errors import MALFORMED

Answer = TypeVar("Answer")


class _Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the messages."""


class Compare(_Request, frozen=True, kw_only=True):
    key: bytes
    target: str
    create_revision: int = -1
    mod_revision: int = -1


def created(key: bytes, revision: int) -> Compare:
    """The key was created in this revision; 0: the key does not exist."""
    return Compare(key=key, target="CREATE", create_revision=revision)


def changed(key: bytes, revision: int) -> Compare:
    """The key was last changed in this revision; 0: the key does not exist."""
    return Compare(key=key, target="MOD", mod_revision=revision)


class Put(_Request, frozen=True, kw_only=True):
    key: bytes
    value: bytes
    lease: int = 0


class Range(_Request, frozen=True, kw_only=True):
    """One key or, with `range_end`, those from the key up to it, in order."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0


class Delete(_Request, frozen=True, kw_only=True):
    key: bytes
    range_end: bytes = b""


class Operation(_Request, frozen=True, kw_only=True):
    request_put: Put | None = None
    request_range: Range | None = None
    request_delete_range: Delete | None = None


class Transaction(_Request, frozen=True, kw_only=True):
    compare: tuple[Compare, ...] = ()
    success: tuple[Operation, ...] = ()
    failure: tuple[Operation, ...] = ()


def puts(*requests: Put) -> tuple[Operation, ...]:
    return tuple(Operation(request_put=each) for each in requests)


def ranges(*requests: Range) -> tuple[Operation, ...]:
    return tuple(Operation(request_range=each) for each in requests)


def deletes(*requests: Delete) -> tuple[Operation, ...]:
    return tuple(Operation(request_delete_range=each) for each in requests)


class Watch(_Request, frozen=True, kw_only=True):
    key: bytes
    range_end: bytes
    start_revision: int
    progress_notify: bool = False


class WatchRequest(_Request, frozen=True, kw_only=True):
    create_request: Watch


class Grant(_Request, frozen=True, kw_only=True):
    TTL: int


class Lease(_Request, frozen=True, kw_only=True):
    ID: int


# ---- responses


class Header(msgspec.Struct, frozen=True):
    revision: int = 0


class KeyValue(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()
    #: Whether the limit left some out.
    more: bool = False


class OperationAnswer(msgspec.Struct, frozen=True):
    response_range: RangeAnswer | None = None


class TransactionAnswer(msgspec.Struct, frozen=True):
    header: Header
    succeeded: bool = False
    responses: tuple[OperationAnswer, ...] = ()

    def found(self) -> list[RangeAnswer]:
        """The results of the transaction's ranges, in order."""
        return [each.response_range for each in self.responses if each.response_range is not None]


class WatchEvent(msgspec.Struct, frozen=True):
    kv: KeyValue
    type: str = "PUT"


class WatchAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()
    created: bool = False
    #: Whether the watch has ended, with a reason or because its revision was compacted.
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    events: tuple[WatchEvent, ...] = ()


class LeaseAnswer(msgspec.Struct, frozen=True):
    ID: int = 0
    #: Seconds; 0: the lease does not exist.
    TTL: int = 0


class Empty(msgspec.Struct, frozen=True):
    """A response whose fields are not needed."""


class Version(msgspec.Struct, frozen=True):
    etcdserver: str


class Failure(msgspec.Struct, frozen=True):
    """The reason for a missing response. The effect of the request is unknown unless `code` is
    set.
    """

    message: str
    #: The gRPC status code of a refusal.
    code: int = 0

    @property
    def is_refusal(self) -> bool:
        """Whether the request had no effect; every other failure leaves that unknown."""
        return self.code in _REFUSALS


NOT_FOUND = 5
UNAUTHENTICATED = 16
#: Invalid argument, not found, permission denied, no room, out of range, unauthenticated.
_REFUSALS = frozenset({3, NOT_FOUND, 7, 8, 11, UNAUTHENTICATED})


class _Streamed(msgspec.Struct, frozen=True):
    """A line of a stream, and the only line of other responses."""

    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    code: int = 0
    # The name in streams.
    grpc_code: int = 0


encode: Callable[[object], bytes] = msgspec.json.Encoder().encode


def reader(kind: type[Answer]) -> Callable[[bytes], Answer | Failure]:
    """Decodes the body of a response."""
    decoder = msgspec.json.Decoder(kind, strict=False)

    def read(body: bytes) -> Answer | Failure:
        try:
            return decoder.decode(body)
        except MALFORMED as error:
            return Failure(f"an invalid response of etcd: {error}")

    return read


def stream_reader(kind: type[Answer]) -> Callable[[bytes], Answer | Failure]:
    """Decodes a line of a stream."""
    read_line, read_result = reader(_Streamed), reader(kind)

    def read(body: bytes) -> Answer | Failure:
        line = read_line(body)
        if isinstance(line, Failure):
            return line
        if bytes(line.error):
            return read_failure(bytes(line.error))
        return read_result(bytes(line.result))

    return read


_read_error = reader(_Error)


def read_failure(body: bytes) -> Failure:
    """The failure in the body of an error response."""
    error = _read_error(body)
    if isinstance(error, Failure):
        # The response comes from a proxy in front of etcd.
        return Failure(body[:200].decode("utf-8", "replace"))
    return Failure(error.message, error.code or error.grpc_code)
