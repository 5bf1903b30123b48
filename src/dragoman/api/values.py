"""Values of the JSON API, version 1. Field names are the JSON names; both sides of the wire use
them.

Adding a field with a default keeps the version; renaming or removing one needs the next.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.captures.control import Finding, Status
from dragoman.captures.definition import Definition


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
    #: These four are of the copy on the node that answers; null when it has none.
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None


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
    #: Protocols of this node whose clients cannot name the topic, and so do not see it.
    hidden_from: tuple[str, ...] = ()


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
    #: Whether the node that leads the metadata hears of it.
    alive: bool
    listeners: tuple[ListenerStatus, ...]
    rack: str = ""
    #: Its part in the metadata quorum; `none`: it was removed and replicas still wait for it;
    #: `etcd`: nodes have no part in it.
    role: Literal["voter", "learner", "none", "etcd"] = "voter"
    replicas: int = 0
    leads: int = 0
    #: The highest feature level that it knows; null: it has never been there.
    feature_level: int | None = None


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that wants attention."""

    topic: str
    partition: int
    #: Null: nobody leads it.
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    #: Replicas after the move that is under way; empty: none is.
    target: tuple[int, ...] = ()
    #: The newest leadership that may have begun without committed records; null: none ever did.
    unclean_epoch: int | None = None


class FewCopies(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with fewer replicas than one would get that is made now."""

    topic: str
    copies: int


class DamagedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that the answering node cannot read: bytes on its disk are not what they were."""

    topic: str
    partition: int
    first_offset: int
    #: Where a reader may go on.
    next_offset: int
    #: Within the data directory.
    path: str
    position: int


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    #: Node that answered.
    node_id: int
    #: Node that leads the metadata, or null while there is none.
    controller: int | None
    version: str
    #: What the cluster uses: the highest that all its nodes have known at some time.
    feature_level: int
    ready: bool
    durability: Literal["fsync", "os"]
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    nodes: tuple[NodeStatus, ...]
    #: Partitions without a leader, with too few replicas in sync, being moved, or led without all
    #: committed records at some time: how many of each, and the first of them all.
    leaderless: int = 0
    under_replicated: int = 0
    moving: int = 0
    unclean: int = 0
    attention: tuple[PartitionStatus, ...] = ()
    #: Replicas that a topic gets when it is made without a number, and the first of the topics that
    #: have fewer.
    copies: int = 0
    few_copies: tuple[FewCopies, ...] = ()
    #: Damage on the disk of the node that answered: how many ranges of offsets, the first of them,
    #: and what was lost of its journal.
    damaged_ranges: int = 0
    damage: tuple[DamagedRange, ...] = ()
    journal_damage: tuple[str, ...] = ()


class MlogEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata as mlog's metadata events, each as its nodes write it down."""

    items: tuple[msgspec.Raw, ...]


class NewNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that shall join."""

    node_id: Annotated[int, Meta(ge=0, le=999_999_999)]
    #: Where the other nodes reach it, as host and port.
    address: str


class Transfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who shall lead."""

    #: This node shall lead the metadata; -1: any other than the one that does; null: as it is.
    metadata_to: int | None = None
    #: Others shall lead the partitions that this node leads; null: as it is.
    relieve: int | None = None


class NewMoves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where replicas shall be. Either `nodes`, or the node to `drain`, or `cancel`."""

    #: Null: all topics.
    topic: str | None = None
    #: Null: all partitions.
    partition: Annotated[int, Meta(ge=0)] | None = None
    nodes: tuple[int, ...] = ()
    #: Replicas of each partition; null: all nodes for one partition, else as many as it has.
    factor: Annotated[int, Meta(ge=1)] | None = None
    drain: int | None = None
    #: The node to drain is gone for good: where no other node can take a replica there is one less.
    shrink: bool = False
    cancel: bool = False
    #: Bytes per second that each node sends to replicas that are being added, from now on; 0: no
    #: limit; null: as it is.
    throttle: Annotated[int, Meta(ge=0)] | None = None


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    #: Those that this request has begun, or taken back.
    items: tuple[PartitionStatus, ...]
    #: Partitions that it asks for and that there was no time for: repeat it for them.
    remaining: int = 0


class Election(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Partitions that shall have another leader."""

    #: Null: all topics.
    topic: str | None = None
    #: Null: all partitions.
    partition: Annotated[int, Meta(ge=0)] | None = None
    #: Null: the preferred leaders. A node: it leads that one partition although it may lack
    #: committed records, which are lost then.
    unclean_node: int | None = None


class CaptureDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A capture of a database, with how it is."""

    name: str
    #: What it is told, with secrets hidden; null: a newer release has defined it.
    definition: Definition | None
    paused: bool
    #: Node that runs it; null: none does at the moment.
    node: int | None
    status: Status
    #: Processes that ended and were replaced, and rows captured, since the node runs it.
    restarts: int
    rows: int


class CapturePage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[CaptureDescription, ...]
    #: Give it as `after` to get the next page; null on the last one.
    next: str | None


class CaptureCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a capture shall do."""

    command: Literal["pause", "resume", "rewind", "snapshot"]
    #: For `rewind`: what came after this position is captured again.
    lsn: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})?$")] = ""
    #: For `snapshot`: tables to read again; none: all.
    tables: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()


class CaptureCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database to look at: of a capture that there is, or of one that there could be."""

    name: str | None = None
    definition: Definition | None = None


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Finding, ...]


_Words = Annotated[str, Meta(max_length=limits.PIPELINE_WORDS_MAX)]


class PipelinePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sink or job of a pipeline. Figures are of the last batch unless they say otherwise."""

    part: _Words
    state: Literal["starting", "running", "done", "failed", "stopped"] = "running"
    #: Since the start.
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    #: Records that are there and not read yet; -1: not known.
    lag_records: int = -1
    batch_id: int = -1
    batch_ms: int = 0
    #: What aggregates, joins and de-duplication remember.
    state_rows: int = 0
    state_bytes: int = 0
    #: What else there is to say, in a few words.
    note: _Words = ""
    problem: _Words = ""
    #: Milliseconds since 1970.
    at_ms: int = 0


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a pipeline is, as the process that runs it says."""

    name: _Words
    file: _Words
    #: died: it was not heard of any more.
    state: Literal["starting", "running", "stopping", "stopped", "done", "failed", "died"] = (
        "starting"
    )
    problem: _Words = ""
    pid: int = 0
    host: _Words = ""
    master: _Words = ""
    #: Milliseconds since 1970.
    started_ms: int = 0
    updated_ms: int = 0
    parts: Annotated[tuple[PipelinePart, ...], Meta(max_length=limits.PIPELINE_PARTS_MAX)] = ()


class PipelineList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[PipelineStatus, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, for people."""

    detail: str
    #: Replicas that still wait for a node that was taken out of the quorum.
    waiting_replicas: int = 0


class Elected(Told, frozen=True, kw_only=True):
    """What has become of elections."""

    elected: int = 0
    #: Partitions whose preferred leader is not in sync.
    unable: int = 0
    #: Partitions that the request asks for and that there was no time for: repeat it for them.
    remaining: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "type"}):
    """RFC 9457. `code` is stable and for programs; `detail` is for people and may change."""

    kind: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
