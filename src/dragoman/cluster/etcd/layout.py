"""The layout of the metadata in etcd: keys under one prefix, and their values.

    PREFIX/head                how many entries there are, and how many events in them   JSON
    PREFIX/leader              the node that leads, bound to its lease                    JSON
    PREFIX/log/NUMBER          one entry: the events of one proposal                      msgpack
    PREFIX/nodes/ID            a node that is alive, bound to its lease                   JSON
    PREFIX/snapshot            which snapshot counts                                      JSON
    PREFIX/snapshots/N/PIECE   the image after the first N entries, in pieces

Entries are numbered from 0 without gaps. The revision that created the leader's key is its *term*:
etcd never reuses a revision, and a key that is created again gets a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from dragoman.cluster.events import Event
from dragoman.errors import MALFORMED, FormatError

_Value = TypeVar("_Value")


class Head(msgspec.Struct, frozen=True):
    entries: int = 0
    version: int = 0


class Holder(msgspec.Struct, frozen=True):
    """The value of the leader's key and of node keys."""

    node: int
    incarnation: int


class Entry(msgspec.Struct, frozen=True, array_like=True):
    #: The identity of a proposal, unique for ever: the term of its leader, and a number unique
    #: within the term.
    term: int
    proposal: int
    events: tuple[Event, ...]


class SnapshotHead(msgspec.Struct, frozen=True):
    entries: int
    pieces: int
    #: CRC-32C of the image's bytes.
    checksum: int


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = f"/{prefix.strip('/')}"
        self.head = self._key("head")
        self.leader = self._key("leader")
        self.log = self._key("log/")
        self.nodes = self._key("nodes/")
        self.snapshot = self._key("snapshot")
        self.snapshots = self._key("snapshots/")
        #: All keys from the head to the last node, without the snapshots.
        self.watched = (self.head, after(self.nodes))

    def _key(self, name: str) -> bytes:
        return f"{self.prefix}/{name}".encode()

    def entry(self, number: int) -> bytes:
        return self.log + b"%020d" % number

    def node(self, node_id: int) -> bytes:
        return self.nodes + b"%d" % node_id

    def image(self, entries: int) -> bytes:
        """The prefix of the keys of a snapshot's pieces."""
        return self.snapshots + b"%020d/" % entries

    def piece(self, entries: int, index: int) -> bytes:
        return self.image(entries) + b"%06d" % index

    def number_of(self, key: bytes) -> int:
        """The number in the key of an entry or a node."""
        return int(key.rpartition(b"/")[2])


def after(beginning: bytes) -> bytes:
    """The end of the range of all keys with this prefix."""
    return beginning[:-1] + bytes([beginning[-1] + 1])


to_json = msgspec.json.encode
encode_entry = msgspec.msgpack.encode


def _reader(decode: Callable[[bytes], _Value]) -> Callable[[bytes], _Value]:
    def read(value: bytes) -> _Value:
        try:
            return decode(value)
        except MALFORMED as error:
            text = f"metadata in etcd cannot be read: {error}; a newer release?"
            raise FormatError(text) from None

    return read


#: Decoders, which raise `FormatError`.
read_head = _reader(msgspec.json.Decoder(Head).decode)
read_holder = _reader(msgspec.json.Decoder(Holder).decode)
read_snapshot_head = _reader(msgspec.json.Decoder(SnapshotHead).decode)
read_entry = _reader(msgspec.msgpack.Decoder(Entry).decode)
