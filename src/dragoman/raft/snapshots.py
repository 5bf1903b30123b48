"""The encoding of snapshots, in files and between nodes, and the receipt of one in pieces."""

from __future__ import annotations

import msgspec

from dragoman.checksum import crc32c
from dragoman.errors import MALFORMED, DecodeError
from dragoman.limits import RAFT_SNAPSHOT_BYTES_MAX
from dragoman.raft.membership import Membership
from dragoman.raft.messages import SnapshotRequest


class Snapshot(msgspec.Struct, frozen=True):
    """The state after all entries below `end`."""

    end: int
    #: Term of the last of those entries.
    last_term: int
    membership: Membership
    state: bytes


_decoder = msgspec.msgpack.Decoder(Snapshot)
_CRC_BYTES = 4


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """CRC-32C of the rest, little-endian, then msgpack."""
    body = msgspec.msgpack.encode(snapshot)
    return crc32c(body).to_bytes(_CRC_BYTES, "little") + body


def decode_snapshot(data: bytes | bytearray) -> Snapshot:
    """Raises `DecodeError`."""
    body = memoryview(data)[_CRC_BYTES:]
    if len(data) < _CRC_BYTES or crc32c(body) != int.from_bytes(data[:_CRC_BYTES], "little"):
        raise DecodeError("snapshot fails its checksum")
    try:
        return _decoder.decode(body)
    except MALFORMED as error:
        raise DecodeError(f"snapshot cannot be read: {error}; a newer release?") from None


class IncomingSnapshot:
    """A snapshot that is being received, in order. Duplicate and early pieces are ignored."""

    def __init__(self, request: SnapshotRequest) -> None:
        self._key = _key(request)
        self._size = request.size
        self._data = bytearray()

    def is_same(self, request: SnapshotRequest) -> bool:
        return self._key == _key(request)

    @property
    def position(self) -> int:
        return len(self._data)

    def add(self, request: SnapshotRequest) -> Snapshot | None:
        """Add a piece; return the snapshot if it is complete. A corrupt one is received again."""
        fits = self.position + len(request.data) <= min(self._size, RAFT_SNAPSHOT_BYTES_MAX)
        if request.position == self.position and fits:
            self._data += request.data
        if self.position < self._size or not self._size:
            return None
        try:
            snapshot = decode_snapshot(self._data)
        except DecodeError:
            self._data = bytearray()
            return None
        is_promised = (snapshot.end, snapshot.last_term) == (request.end, request.last_term)
        if not is_promised:
            self._data = bytearray()
        return snapshot if is_promised else None


def _key(request: SnapshotRequest) -> tuple[int, int, int, int]:
    return request.source, request.end, request.last_term, request.size
