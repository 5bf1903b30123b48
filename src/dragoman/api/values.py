"""Values of the JSON API, version 1. Field names are the JSON names, for servers and clients.

A new field with a default keeps the version; renaming or removing a field needs a new version.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from dragoman import limits
from dragoman.captures.control import DatabaseTable, Finding, Status
from dragoman.captures.definition import Definition


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    replication_factor: int
    internal: bool


class PartitionDescription(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    #: Node id; null while there is no leader.
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    #: This field and the next three describe the answering node's replica, or the leader's when it
    #: has none; null when the leader does not answer.
    log_start_offset: int | None
    high_watermark: int | None
    log_end_offset: int | None
    size_bytes: int | None


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    source: Literal["topic", "group", "dynamic_node", "dynamic_cluster", "node", "default"]
    #: False for a key that is accepted for compatibility and has no effect.
    effective: bool


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    config: tuple[ConfigValue, ...]
    #: Protocols of this node whose clients cannot name the topic, and therefore do not see it.
    hidden_from: tuple[str, ...] = ()
    #: The `after` of the next page of partitions; null on the last page.
    next: str | None = None


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to create. Fields that are absent or null take the node's defaults."""

    name: Annotated[str, Meta(min_length=1, max_length=limits.TOPIC_NAME_BYTES_MAX)]
    partitions: Annotated[int, Meta(ge=1, le=limits.TOPIC_PARTITIONS_MAX)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=limits.REPLICATION_FACTOR_MAX)] | None = None
    config: dict[str, str] = {}


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[TopicSummary, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol: str
    state: str
    members: int


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[GroupSummary, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None
    #: Nodes that did not answer: the groups that they coordinate are missing.
    unreachable: tuple[int, ...] = ()


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
    #: Null when the partition does not exist any more or its leader does not answer.
    log_end_offset: int | None
    lag_records: int | None
    #: Age of the oldest record that is not committed; null when it is not known.
    lag_seconds: float | None = None


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    protocol: str
    state: str
    generation: int
    coordinator: int
    members: tuple[GroupMember, ...]
    #: In order of topic and partition.
    offsets: tuple[GroupOffset, ...]
    #: The `after` of the next page of offsets; null on the last page.
    next: str | None = None


class ListenerStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    bound: str
    #: Null when clients are sent the address at which their connection was accepted.
    advertised: str | None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    #: Whether the node's heartbeats reach the metadata leader.
    alive: bool
    listeners: tuple[ListenerStatus, ...]
    rack: str = ""
    #: Role in the metadata quorum. `none`: removed, but still holding replicas; `etcd`: the
    #: metadata is kept in etcd, where nodes have no role.
    role: Literal["voter", "learner", "none", "etcd"] = "voter"
    replicas: int = 0
    leads: int = 0
    #: The highest feature level that the node supports; null when it has never registered.
    feature_level: int | None = None


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that needs attention, or is being moved."""

    topic: str
    partition: int
    #: Null when there is no leader.
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    #: Replicas after the current move; empty when there is none.
    target: tuple[int, ...] = ()
    #: Leader epoch of the last unclean election, which may have lost committed records; null when
    #: there was none.
    unclean_epoch: int | None = None


class FewCopies(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with fewer replicas than a new topic would get by default."""

    topic: str
    copies: int


class DamagedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that the answering node cannot read, because bytes on its disk are damaged."""

    topic: str
    partition: int
    first_offset: int
    #: The offset at which a reader can continue.
    next_offset: int
    #: Path within the data directory.
    path: str
    position: int


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    #: The node that answered.
    node_id: int
    #: The node that leads the metadata; null while there is none.
    controller: int | None
    version: str
    #: The feature level in use: the highest that all nodes have supported at some time.
    feature_level: int
    ready: bool
    durability: Literal["fsync", "os"]
    uptime_ms: int
    topics: int
    partitions: int
    groups: int
    nodes: tuple[NodeStatus, ...]
    #: Numbers of partitions without a leader, with replicas out of sync, being moved, and with a
    #: past unclean election; then the first of all these partitions.
    leaderless: int = 0
    under_replicated: int = 0
    moving: int = 0
    unclean: int = 0
    attention: tuple[PartitionStatus, ...] = ()
    #: Default number of replicas of a topic, and the first topics that have fewer.
    copies: int = 0
    few_copies: tuple[FewCopies, ...] = ()
    #: Damage on the answering node's disk: the number of damaged offset ranges, the first ranges,
    #: and what its journal lost.
    damaged_ranges: int = 0
    damage: tuple[DamagedRange, ...] = ()
    journal_damage: tuple[str, ...] = ()


class MlogEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata as mlog's metadata events, each in the original's JSON."""

    items: tuple[msgspec.Raw, ...]


class NewNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that may join the cluster."""

    node_id: Annotated[int, Meta(ge=0, le=999_999_999)]
    #: Host and port at which the other nodes reach it.
    address: str


class NewSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of settings while nodes run."""

    #: The node whose settings change; null: all nodes.
    node_id: Annotated[int, Meta(ge=0, le=999_999_999)] | None = None
    #: New values, as text.
    values: Annotated[dict[str, str], Meta(max_length=limits.CONFIG_KEYS_PER_REQUEST_MAX)] = {}
    #: Keys that return to the value with which each node was started.
    unset: Annotated[tuple[str, ...], Meta(max_length=limits.CONFIG_KEYS_PER_REQUEST_MAX)] = ()


class Transfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transfer of leadership."""

    #: The node to lead the metadata; -1 for any node but the current leader; null for no change.
    metadata_to: int | None = None
    #: The node to transfer partition leadership away from; null for no change.
    relieve: int | None = None


class NewMoves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to place replicas: either `nodes`, or the node to `drain`, or `cancel`."""

    #: Null for all topics.
    topic: str | None = None
    #: Null for all partitions.
    partition: Annotated[int, Meta(ge=0)] | None = None
    nodes: tuple[int, ...] = ()
    #: Replicas of each partition. Null means all `nodes` if one partition is moved, and otherwise
    #: the partition's current number.
    factor: Annotated[int, Meta(ge=1)] | None = None
    drain: int | None = None
    #: The node to drain will not return, so a partition whose replica no other node can take has
    #: one replica fewer.
    shrink: bool = False
    cancel: bool = False
    #: New limit of the bytes per second that each node sends to replicas being added; 0 for no
    #: limit; null for no change.
    throttle: Annotated[int, Meta(ge=0)] | None = None


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    #: The moves that this request has begun or cancelled.
    items: tuple[PartitionStatus, ...]
    #: Partitions of the request that were not handled for lack of time: repeat the request for
    #: them.
    remaining: int = 0


class Election(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Partitions to elect another leader for."""

    #: Null for all topics.
    topic: str | None = None
    #: Null for all partitions.
    partition: Annotated[int, Meta(ge=0)] | None = None
    #: Null elects the preferred leaders. A node id makes that node the leader of the one partition
    #: even if it lacks committed records, which are then lost.
    unclean_node: int | None = None


class CaptureDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A capture of a database, and its status."""

    name: str
    #: The definition, with secrets hidden; null when it was written by a newer release.
    definition: Definition | None
    #: The principal that the capture runs as.
    principal: str = "User:ANONYMOUS"
    paused: bool
    #: The node that runs the capture; null when no node does at the moment.
    node: int | None
    status: Status
    #: Restarts of the process, and rows captured, since this node took over the capture.
    restarts: int
    rows: int


class CapturePage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[CaptureDescription, ...]
    #: The `after` of the next page; null on the last page.
    next: str | None


class CaptureCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command for a capture."""

    command: Literal["pause", "resume", "rewind", "snapshot", "run_as"]
    #: For `rewind`: changes after this position are captured again.
    lsn: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})?$")] = ""
    #: For `snapshot`: the tables to read again; empty for all.
    tables: Annotated[tuple[str, ...], Meta(max_length=1000)] = ()
    #: For `run_as`: the principal, as `User:NAME`.
    principal: str = ""


class ClusterKeyNode(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of the keys in the key file of a node, the first one first."""

    node: int
    keys: tuple[str, ...]
    #: Why they are not known, or the file cannot be read; empty: all is well.
    problem: str = ""


class ClusterKeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The key that encrypts secrets in the metadata."""

    #: The id of the current key; empty: there is none before the first secret.
    current: str
    nodes: tuple[ClusterKeyNode, ...]
    #: Numbers of secrets by the id of the key that encrypts them.
    sealed: dict[str, int]
    #: Secrets that an earlier release has stored in clear text.
    clear: int


class KeyCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command about the cluster's key."""

    command: Literal["rotate"]


class CertificateStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate that a listener shows to new connections."""

    listener: str
    #: RFC 2253; empty: there is no certificate that can be used.
    subject: str
    expires_ms: int
    #: Why the files cannot be used as they are now; empty: they are in use.
    problem: str


class CertificateList(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[CertificateStatus, ...]


class CertificateCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command about the certificates of the node's listeners."""

    command: Literal["reload"]


class CaptureCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database to check, given by the name of a capture or by a definition."""

    name: str | None = None
    definition: Definition | None = None


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Finding, ...]


class DatabaseTables(msgspec.Struct, frozen=True, kw_only=True):
    #: In order of schema and name.
    items: tuple[DatabaseTable, ...]
    #: Whether the database has more.
    has_more: bool


_Words = Annotated[str, Meta(max_length=limits.PIPELINE_WORDS_MAX)]


class PipelinePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sink or job of a pipeline. Figures describe the last batch unless stated otherwise."""

    part: _Words
    state: Literal["starting", "running", "done", "failed", "stopped"] = "running"
    #: Totals since the start.
    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    #: Records not read yet; -1 when unknown.
    lag_records: int = -1
    batch_id: int = -1
    batch_ms: int = 0
    #: State kept by aggregates, joins and de-duplication.
    state_rows: int = 0
    state_bytes: int = 0
    #: Further information, in a few words.
    note: _Words = ""
    problem: _Words = ""
    #: Milliseconds since 1970.
    at_ms: int = 0


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a pipeline, as reported by the process that runs it."""

    name: _Words
    file: _Words
    #: `died`: its reports have stopped.
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


class MetricHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """How many values were above the bound before and at most each bound; the last count has no
    bound.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    #: Sum of all values.
    total: float


class MetricSeries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One series: a value, or a histogram."""

    labels: dict[str, str] = {}
    value: float | None = None
    histogram: MetricHistogram | None = None


class MetricDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A metric and its series. Of those beyond its bound, the labels are `other`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    series: tuple[MetricSeries, ...]


class MetricPage(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[MetricDescription, ...]
    #: Value of `after` for the next page.
    next: str | None = None


# The name is in the OpenAPI document.
class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, as text for people."""

    detail: str
    #: Replicas still held by a node that was removed from the quorum.
    waiting_replicas: int = 0


class Elected(Told, frozen=True, kw_only=True):
    """The result of elections."""

    elected: int = 0
    #: Partitions whose preferred leader is not in sync.
    unable: int = 0
    #: Partitions of the request that were not handled for lack of time: repeat the request for
    #: them.
    remaining: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "type"}):
    """RFC 9457. `code` is stable and for programs; `detail` is for people and may change."""

    kind: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str


# ---- health

CheckStatus: TypeAlias = Literal["ok", "warning", "failed"]
HealthStatus: TypeAlias = Literal["live", "not live", "ready", "degraded", "not ready"]


class Check(msgspec.Struct, frozen=True):
    """One check of a node's health."""

    name: str
    status: CheckStatus
    #: What was found. Without the right to describe the cluster: empty, unless the check failed.
    detail: str = ""


class Health(msgspec.Struct, frozen=True):
    """The health of a node, as `/livez` and `/readyz` show it in JSON."""

    status: HealthStatus
    checks: tuple[Check, ...]
