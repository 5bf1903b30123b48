"""What nodes of an mlog cluster tell each other: batches of records and metadata events.

    batch   0   base offset i64   8   bytes of records i32   12  leader epoch i32 (always 0)
            16  CRC-32 u32 (IEEE, of the records)            20  attributes u8 (0)
            21  last offset delta i32
            25  records: offset i64, size i32, value

A batch travels in `ReplicateResp.raw_chunk`. Its base offset is not compared with its records, as
the original does not; what is malformed behind the first good records is left out, likewise.

Events are the entries of the original's Raft log: JSON with names of its own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.mlog.codec import decode_json, encode_json
from dragoman.protocols.mlog.messages import Entry, Int32, Int64, UInt32
from dragoman.types import Buffer

_BATCH: Final = struct.Struct(">qiiIBi")
_RECORD: Final = struct.Struct(">qi")


def encode_batch(entries: Sequence[Entry]) -> bytes:
    """No entries make no bytes."""
    if not entries:
        return b""
    records = b"".join(
        _RECORD.pack(each.offset, len(each.value or b"")) + (each.value or b"") for each in entries
    )
    first, last = entries[0].offset, entries[-1].offset
    crc = zlib.crc32(records)
    return _BATCH.pack(first, len(records), 0, crc, 0, last - first) + records


def decode_batch(data: Buffer) -> list[Entry]:
    """Raises `DecodeError` for another length than announced and for a wrong checksum."""
    if not data:
        return []
    if len(data) < _BATCH.size:
        raise DecodeError(f"batch of {len(data)} bytes; its header has {_BATCH.size}")
    _, size, _, crc, _, _ = _BATCH.unpack_from(data)
    records = bytes(data[_BATCH.size :])
    if size != len(records):
        raise DecodeError(f"batch announces {size} bytes of records and has {len(records)}")
    if zlib.crc32(records) != crc:
        raise DecodeError("batch fails its checksum")
    entries: list[Entry] = []
    position = 0
    while position + _RECORD.size <= size:
        offset, length = _RECORD.unpack_from(records, position)
        position += _RECORD.size
        if offset < 0 or not 0 <= length <= size - position:
            break
        entries.append(Entry(offset=offset, value=records[position : position + length]))
        position += length
    return entries


# ---- metadata events


class MetadataEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Root of the events."""


class TopicCreated(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    replica_count: UInt32 = 0
    leader_id: str = ""
    leader_epoch: Int64 = 0
    replicas: list[str] | None = None


class TopicDeleted(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""


class LeaderChanged(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    leader_id: str = ""
    leader_epoch: Int64 = 0


class IsrUpdated(MetadataEvent, frozen=True, kw_only=True):
    topic: str = ""
    replica_id: str = ""
    isr: bool = False


class NodeAdded(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""
    addr: str = ""
    rpc_addr: str = ""


class NodeRemoved(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""


class NodeUpdated(MetadataEvent, frozen=True, kw_only=True):
    node_id: str = ""
    is_healthy: bool = False


#: The place of each is its number.
EVENTS: Final[tuple[type[MetadataEvent], ...]] = (
    TopicCreated,
    TopicDeleted,
    LeaderChanged,
    IsrUpdated,
    NodeAdded,
    NodeRemoved,
    NodeUpdated,
)


class _Envelope(msgspec.Struct, frozen=True):
    event_type: Int32 = 0
    data: msgspec.Raw = msgspec.Raw(b"{}")


def encode_event(event: MetadataEvent) -> bytes:
    number = EVENTS.index(type(event))
    return b'{"event_type":%d,"data":%b}' % (number, encode_json(event))


def decode_event(data: Buffer) -> MetadataEvent:
    """Raises `DecodeError`, also for a type that there is not."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not a metadata event: {error}") from None
    if not 0 <= envelope.event_type < len(EVENTS):
        raise DecodeError(f"metadata event type {envelope.event_type} is unknown")
    return decode_json(EVENTS[envelope.event_type], bytes(envelope.data))
