"""Values of the JSON API, version 1. Field names are the JSON names; both sides of the wire use
them.

Adding a field with a default keeps the version; renaming or removing one needs the next.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman import limits


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    replication_factor: int
    internal: bool


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: Node id, or null while there is none.
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    source: Literal["topic", "group", "dynamic_node", "dynamic_cluster", "node", "default"]
    #: False: accepted for the sake of clients, obeyed by nothing.
    effective: bool


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    config: tuple[ConfigValue, ...]


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to create. What is left out or null has the node's default."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.TOPIC_NAME_BYTES_MAX)]
    partitions: Annotated[int, Meta(ge=1, le=limits.TOPIC_PARTITIONS_MAX)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=limits.REPLICATION_FACTOR_MAX)] | None = None
    config: dict[str, str] = {}


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[TopicSummary, ...]
    #: Give it as `after` to get the next page; null on the last one.
    next: str | None


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol: str
    state: str
    members: int


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[GroupSummary, ...]
    #: Give it as `after` to get the next page; null on the last one.
    next: str | None


class GroupAssignment(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[int, ...]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    client_id: str
    host: str
    assignment: tuple[GroupAssignment, ...]


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    #: Next offset to read.
    committed_offset: int
    #: Null when the partition is gone or has no leader.
    log_end_offset: int | None
    lag_records: int | None


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol: str
    state: str
    generation: int
    coordinator: int
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]


class ListenerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bound: str
    #: Null: clients are told the address their connection came in on.
    advertised: str | None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    alive: bool
    listeners: tuple[ListenerStatus, ...]


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    #: Node that answered.
    node_id: int
    #: Node that leads the metadata, or null while there is none.
    controller: int | None
    version: str
    ready: bool
    durability: Literal["fsync", "os"]
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    nodes: tuple[NodeStatus, ...]


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "type"}):
    """RFC 9457. `code` is stable and for programs; `detail` is for people and may change."""

    kind: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
