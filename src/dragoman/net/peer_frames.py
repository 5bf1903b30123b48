"""The frames between the nodes of a cluster.

    frame    size u32, kind u8, service u8, number u32, header size u32,  header,  body
    kinds    HELLO, MESSAGE (no reply), REQUEST, REPLY, REFUSAL (the header is a text),
             CHALLENGE, PROOF and WELCOME (`peer_handshake.py`; sent only to nodes that know them)

Headers are the services' own encodings; bodies are handed over as they are, so that record batches
are not copied through a codec. The body of a HELLO is the caller's nonce, if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

import msgspec

from dragoman.errors import MALFORMED, ClusterError, DecodeError
from dragoman.limits import PEER_FRAME_BYTES_MAX
from dragoman.types import Buffer

#: The version of this protocol here, and the oldest supported one.
VERSION = 1
VERSION_MIN = 1
_HEAD = Struct(">IBBII")
_SIZE_BYTES = 4
_HEAD_BYTES = _HEAD.size - _SIZE_BYTES
_take_head = Struct(">BBII").unpack_from


class Kind(IntEnum):
    HELLO = 1
    MESSAGE = 2
    REQUEST = 3
    REPLY = 4
    REFUSAL = 5
    CHALLENGE = 6
    PROOF = 7
    WELCOME = 8


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies the caller. A node that has not joined a cluster yet knows no cluster id."""

    node_id: int
    incarnation: int
    cluster_id: str = ""
    #: Id of the node's data directory.
    directory: str = ""
    #: The newest version of this protocol that the node supports, and the oldest.
    version: int = VERSION
    version_min: int = 1


def frame(
    kind: Kind, service: int, number: int, header: bytes, body: Sequence[Buffer] = ()
) -> list[Buffer]:
    size = _HEAD_BYTES + len(header) + sum(map(len, body))
    if size > PEER_FRAME_BYTES_MAX:
        raise ClusterError(f"{size} bytes for another node; at most {PEER_FRAME_BYTES_MAX}")
    return [_HEAD.pack(size, kind, service, number, len(header)) + header, *body]


class Arrived(msgspec.Struct, frozen=True):
    """A decoded frame."""

    kind: Kind
    service: int
    number: int
    header: memoryview
    body: memoryview


def take_apart(data: bytearray) -> Arrived:
    """Raises `DecodeError`."""
    if len(data) < _HEAD_BYTES:
        raise DecodeError(f"frame of {len(data)} bytes from another node")
    kind, service, number, header_size = _take_head(data)
    end = _HEAD_BYTES + header_size
    if end > len(data):
        raise DecodeError(f"header of {header_size} bytes in a frame of {len(data)}")
    try:
        known = Kind(kind)
    except ValueError:
        raise DecodeError(f"frame of kind {kind} from another node") from None
    view = memoryview(data)
    return Arrived(known, service, number, view[_HEAD_BYTES:end], view[end:])


def read_hello(arrived: Arrived) -> Hello:
    """Raises `DecodeError`."""
    if arrived.kind is not Kind.HELLO:
        raise DecodeError(f"{arrived.kind.name} from a node that has not said who it is")
    try:
        hello = msgspec.msgpack.decode(arrived.header, type=Hello)
    except MALFORMED as error:
        raise DecodeError(f"a node says who it is in an unknown way: {error}") from None
    if hello.version < VERSION_MIN or hello.version_min > VERSION:
        is_older = hello.version < VERSION_MIN
        raise DecodeError(
            f"node {hello.node_id} speaks versions {hello.version_min} to {hello.version} of the "
            f"protocol between nodes, this one {VERSION_MIN} to {VERSION}: run "
            f"{'a newer' if is_older else 'an older'} release on node {hello.node_id}"
        )
    return hello
