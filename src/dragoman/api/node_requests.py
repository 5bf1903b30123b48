"""Requests that the nodes of a cluster send each other for callers of the HTTP API.

Each travels in the body of a `Relay` (`node_rpc.py`), encoded as msgpack. Fields with defaults may
be added: earlier releases ignore them. A request carries its caller, and the node that executes it
decides.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from dragoman.api.connection_values import ConnectionPage, DamagePage
from dragoman.api.delayed_values import DelayedPage
from dragoman.api.values import GroupDescription, GroupSummary, PipelineList
from dragoman.security.access import Caller

A_co = TypeVar("A_co", bound=msgspec.Struct, covariant=True)


class NodeRequest(msgspec.Struct, Generic[A_co], frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a `NodeRequest[Truncated]` is a `Truncated`."""

    caller: Caller


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The request was carried out; it has no result."""


# ---- topics


class Truncated(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a log before and after its truncation."""

    before: int
    after: int


class TruncatePartition(NodeRequest[Truncated], frozen=True, kw_only=True, tag="TruncatePartition"):
    """Delete the records of a partition below an offset, or before a time."""

    topic: str
    partition: int
    #: -1: all committed records.
    offset: int = -1
    #: Milliseconds since 1970; takes precedence over the offset.
    time_ms: int | None = None
    #: Only check, and answer what would be done.
    validate_only: bool = False


class TopicUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has of a topic: the partitions that it leads, and the groups that it coordinates
    and the caller may describe.
    """

    records: int = 0
    size_bytes: int = 0
    #: In order of name.
    groups: tuple[str, ...] = ()
    #: How many groups there are in all.
    group_count: int = 0


class MeasureTopic(NodeRequest[TopicUse], frozen=True, kw_only=True, tag="MeasureTopic"):
    topic: str


class PartitionMarks(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


class FoundMarks(msgspec.Struct, frozen=True, kw_only=True):
    #: Those of which the node has a replica, and can read it.
    items: tuple[PartitionMarks, ...] = ()


class FindMarks(NodeRequest[FoundMarks], frozen=True, kw_only=True, tag="FindMarks"):
    """The ends and the sizes of a node's replicas of a topic's partitions."""

    topic: str
    partitions: tuple[int, ...]


class FoundOffset(msgspec.Struct, frozen=True, kw_only=True):
    #: None: all records are older.
    offset: int | None = None


class FindOffset(NodeRequest[FoundOffset], frozen=True, kw_only=True, tag="FindOffset"):
    """The first record of a partition at or after a time."""

    topic: str
    partition: int
    time_ms: int


class FoundTime(msgspec.Struct, frozen=True, kw_only=True):
    #: Milliseconds since 1970; None: there is no such record, or it has no timestamp.
    time_ms: int | None = None


class FindTime(NodeRequest[FoundTime], frozen=True, kw_only=True, tag="FindTime"):
    """The time of the record of a partition at an offset, or of the oldest after it."""

    topic: str
    partition: int
    offset: int


# ---- groups


class GroupRows(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[GroupSummary, ...] = ()


class ListGroups(NodeRequest[GroupRows], frozen=True, kw_only=True, tag="ListGroups"):
    """The first groups after a name, in order, that the node coordinates and the caller may
    describe.
    """

    after: str = ""
    limit: int


class DescribeGroup(NodeRequest[GroupDescription], frozen=True, kw_only=True, tag="DescribeGroup"):
    """A group with its first offsets after a partition, without the ends of the logs."""

    group: str
    after: tuple[str, int] | None = None
    limit: int


class StoredOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Topic, partition and committed offset."""

    items: tuple[tuple[str, int, int], ...] = ()


class FindOffsets(NodeRequest[StoredOffsets], frozen=True, kw_only=True, tag="FindOffsets"):
    """The committed offsets of a group in these topics, or in all that the caller may describe."""

    group: str
    topics: tuple[str, ...] = ()


class ResetOffsets(NodeRequest[Done], frozen=True, kw_only=True, tag="ResetOffsets"):
    """Commit offsets for a group without members: all, or none."""

    group: str
    items: tuple[tuple[str, int, int], ...]
    validate_only: bool = False


class RemoveOffsets(NodeRequest[StoredOffsets], frozen=True, kw_only=True, tag="RemoveOffsets"):
    """Delete the committed offsets of a group in a topic that no member reads."""

    group: str
    topic: str
    validate_only: bool = False


class RemovedGroup(msgspec.Struct, frozen=True, kw_only=True):
    offsets: int = 0


class RemoveGroup(NodeRequest[RemovedGroup], frozen=True, kw_only=True, tag="RemoveGroup"):
    """Delete a group without members, and its offsets."""

    group: str
    validate_only: bool = False


# ---- lists with measures


class TopicsMeasured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By topic: records and bytes of the partitions that a node leads, and how many of the groups
    that it coordinates have committed offsets. What is zero is left out.
    """

    records: dict[str, int] = {}
    sizes: dict[str, int] = {}
    groups: dict[str, int] = {}


class MeasureTopics(NodeRequest[TopicsMeasured], frozen=True, kw_only=True, tag="MeasureTopics"):
    """Those of these topics that the caller may describe."""

    topics: tuple[str, ...]


class GroupCommits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    group: str
    protocol: str = ""
    state: str = ""
    members: int = 0
    #: Committed offsets by topic and partition.
    offsets: dict[str, dict[int, int]] = {}
    #: Whether the offsets are there; they are too many otherwise.
    is_whole: bool = True


class GroupsMeasured(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[GroupCommits, ...] = ()


class MeasureGroups(NodeRequest[GroupsMeasured], frozen=True, kw_only=True, tag="MeasureGroups"):
    """As `ListGroups`, with committed offsets in topics that the caller may describe."""

    after: str = ""
    limit: int


class FoundEnds(msgspec.Struct, frozen=True, kw_only=True):
    #: High watermarks by topic and partition.
    ends: dict[str, dict[int, int]] = {}


class FindEnds(NodeRequest[FoundEnds], frozen=True, kw_only=True, tag="FindEnds"):
    """The ends of partitions that the node leads, of topics that the caller may describe."""

    partitions: dict[str, tuple[int, ...]]


# ---- what one node alone knows


class ListConnections(
    NodeRequest[ConnectionPage], frozen=True, kw_only=True, tag="ListConnections"
):
    """The first connections after a name, of one listener or of all."""

    listener: str = ""
    after: str = ""
    limit: int


class ClosedConnection(msgspec.Struct, frozen=True, kw_only=True):
    #: Whether there was such a connection.
    is_found: bool = True


class CloseConnection(
    NodeRequest[ClosedConnection], frozen=True, kw_only=True, tag="CloseConnection"
):
    name: str


class ListDamage(NodeRequest[DamagePage], frozen=True, kw_only=True, tag="ListDamage"):
    """What is damaged on the node's disk: so many ranges after the first ones."""

    skipped: int = 0
    limit: int


class ListPipelines(NodeRequest[PipelineList], frozen=True, kw_only=True, tag="ListPipelines"):
    """The reports that the node has, of pipelines that the caller may describe."""


class CountDelayed(NodeRequest[DelayedPage], frozen=True, kw_only=True, tag="CountDelayed"):
    """Delayed and held records by topic: the first topics after a name."""

    after: str = ""
    limit: int


class StoredDelayed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delayed or held record."""

    partition: int
    state: Literal["delayed", "held", "deciding", "due"]
    due_ms: int
    size_bytes: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class FoundDelayed(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[StoredDelayed, ...] = ()
    #: Time, internal partition and offset of the last one, if there are more.
    next: tuple[int, int, int] | None = None


class ListDelayed(NodeRequest[FoundDelayed], frozen=True, kw_only=True, tag="ListDelayed"):
    """The first records for a topic after a place, in order of time."""

    topic: str
    after: tuple[int, int, int]
    limit: int
    bytes_max: int


# ---- history


class FigureSelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Series of the history: of these names and labels; empty: of all."""

    names: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()


class FigureKeys(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Series: the name of a figure and the values of its labels."""

    items: tuple[tuple[str, ...], ...] = ()
    #: Subjects that are combined, by budget.
    left_out: dict[str, int] = {}


class ListFigures(NodeRequest[FigureKeys], frozen=True, kw_only=True, tag="ListFigures"):
    """The series of the node's history that the caller may see."""

    selection: FigureSelection = FigureSelection()


class FigurePoints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values of series, one for each time."""

    items: tuple[tuple[tuple[str, ...], tuple[float | None, ...]], ...] = ()
    left_out: dict[str, int] = {}
    #: How many series were selected, if these were too many to answer.
    too_many: int = 0


class ReadFigures(NodeRequest[FigurePoints], frozen=True, kw_only=True, tag="ReadFigures"):
    """Values of the node's history at times in seconds since 1970."""

    selection: FigureSelection = FigureSelection()
    first: int
    last: int
    step_s: int


Request: TypeAlias = (
    TruncatePartition
    | MeasureTopic
    | FindMarks
    | FindOffset
    | FindTime
    | ListGroups
    | DescribeGroup
    | FindOffsets
    | ResetOffsets
    | RemoveOffsets
    | RemoveGroup
    | MeasureTopics
    | MeasureGroups
    | FindEnds
    | ListConnections
    | CloseConnection
    | ListDamage
    | ListPipelines
    | CountDelayed
    | ListDelayed
    | ListFigures
    | ReadFigures
)
