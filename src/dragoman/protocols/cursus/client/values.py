"""Values that the client takes and returns."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class TopicInfo(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: int
    #: Address of each partition's leader.
    leaders: tuple[str, ...]
    #: Whether keys choose the partition; otherwise messages go to all partitions in turn.
    is_hashed: bool = True


class OffsetRange(msgspec.Struct, frozen=True):
    earliest: int
    latest: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a consumer has received."""

    topic: str
    partition: int
    offset: int
    key: bytes
    payload: bytes


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a stream. `version` is set in events that were read."""

    payload: bytes
    event_type: str = ""
    schema_version: int = 1
    metadata: str = ""
    version: int = 0


class Appended(msgspec.Struct, frozen=True):
    version: int
    offset: int
    partition: int


class Snapshot(msgspec.Struct, frozen=True):
    version: int
    payload: str


class EventStream(msgspec.Struct, frozen=True):
    snapshot: Snapshot | None
    events: Sequence[Event]
