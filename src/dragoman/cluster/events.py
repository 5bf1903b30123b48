"""What happens to the cluster's metadata, as values: the entries of the metadata log.

An event is a fact that the quorum has agreed on; applying it cannot fail. Encoded as msgpack, one
event to a record of the internal metadata partition. Older nodes read them too: a new kind of event
is written only when all nodes know it (`LEVELS`), and so is a new field that the image keeps
(docs/guides/upgrading.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from dragoman.errors import FormatError

#: The feature level of nodes that do not tell theirs, and of clusters that have not agreed on one.
FIRST_LEVEL = 2
#: The name under which the level that the cluster uses is agreed on.
LEVEL_IN_FORCE = "dragoman"


class PartitionPlacement(msgspec.Struct, frozen=True, array_like=True):
    partition_id: int
    replicas: tuple[int, ...]


class Member(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A node in one of its lives. Whoever comes back after a restart is not the one who went."""

    node_id: int
    incarnation: int


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the events. Their tags are fixed: a class may be renamed, its tag may not."""


class ClusterCreated(_Event, frozen=True, kw_only=True, tag="ClusterCreated"):
    cluster_id: str


class TopicCreated(_Event, frozen=True, kw_only=True, tag="TopicCreated"):
    name: str
    topic_id: bytes
    partitions: tuple[PartitionPlacement, ...]
    config: dict[str, str] = {}
    is_internal: bool = False
    created_ms: int = 0


class TopicDeleted(_Event, frozen=True, kw_only=True, tag="TopicDeleted"):
    topic_id: bytes


class PartitionsAdded(_Event, frozen=True, kw_only=True, tag="PartitionsAdded"):
    topic_id: bytes
    partitions: tuple[PartitionPlacement, ...]


class TopicConfigChanged(_Event, frozen=True, kw_only=True, tag="TopicConfigChanged"):
    """The topic's overrides as a whole, after the change."""

    topic_id: bytes
    config: dict[str, str]


class LeaderChanged(_Event, frozen=True, kw_only=True, tag="LeaderChanged"):
    """Leader and in-sync set of a partition, after the change. -1: no leader.

    Of logs from before there were several nodes; `PartitionChanged` has taken its place.
    """

    partition_id: int
    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    partition_epoch: int


class PartitionChanged(_Event, frozen=True, kw_only=True, tag="PartitionChanged"):
    """Who holds a partition, as a whole, after the change."""

    partition_id: int
    #: -1: none.
    leader: int
    leader_epoch: int
    #: One more than before: changes form one chain.
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[Member, ...]
    #: Not in sync, yet with everything that is committed: these may lead as well.
    eligible: tuple[int, ...] = ()
    #: Replicas as they are to be when a move is over; none: no move is under way.
    target: tuple[int, ...] = ()
    #: Replicas as they were before that move.
    before: tuple[int, ...] = ()
    #: The leader may lack committed records: somebody asked for it.
    is_unclean: bool = False


class ProducerIdsReserved(_Event, frozen=True, kw_only=True, tag="ProducerIdsReserved"):
    """Ids below `next_id` have been given away to a node and never will be again."""

    next_id: int


class NodeAdded(_Event, frozen=True, kw_only=True, tag="NodeAdded"):
    """A node shall join: where the others reach it, until it says so itself."""

    node_id: int
    address: str


class NodeRemoved(_Event, frozen=True, kw_only=True, tag="NodeRemoved"):
    """The node is gone for good; it holds no partition."""

    node_id: int


class NodeRegistered(_Event, frozen=True, kw_only=True, tag="NodeRegistered"):
    """A node is there, with a new incarnation or back after it was fenced."""

    node_id: int
    incarnation: int
    #: Random id of its data directory; another one holds none of what this one held.
    directory: str = ""
    #: Which start of that directory this is; only the node knows what it means.
    life: str = ""
    #: Where its listeners are, by name.
    addresses: dict[str, str] = {}
    rack: str = ""
    #: The data directory that its votes in the quorum were written to. Another one has forgotten
    #: them: until the node has been taken out of the quorum, what it says there counts nothing.
    voter_directory: str = ""
    #: The highest feature level that it knows.
    feature_level: int = FIRST_LEVEL


class NodeFenced(_Event, frozen=True, kw_only=True, tag="NodeFenced"):
    """The node was not heard of for too long, or has said good-bye."""

    node_id: int
    incarnation: int


class NodeConfigChanged(_Event, frozen=True, kw_only=True, tag="NodeConfigChanged"):
    """Settings changed at run time, as a whole, after the change; -1: for every node."""

    config: dict[str, str]
    node_id: int = -1


class GroupConfigChanged(_Event, frozen=True, kw_only=True, tag="GroupConfigChanged"):
    """The group's overrides as a whole, after the change; none: it has none any more."""

    group_id: str
    config: dict[str, str]


class ClientQuotaChanged(_Event, frozen=True, kw_only=True, tag="ClientQuotaChanged"):
    """The quotas of one entity as a whole, after the change; none: the entity has none any more.

    An entity is a set of kinds and names, sorted; the name None stands for all that have no quota
    of their own.
    """

    entity: tuple[tuple[str, str | None], ...]
    quotas: dict[str, float] = {}


class FeatureLevelChanged(_Event, frozen=True, kw_only=True, tag="FeatureLevelChanged"):
    """The level that clients are told to use a feature at, or the one that the cluster uses."""

    feature: str
    level: int


class CaptureDefined(_Event, frozen=True, kw_only=True, tag="CaptureDefined"):
    """Rows of a database become records, as a whole, after the change."""

    name: str
    #: JSON of `dragoman.captures.definition`, with the password: kept as it came, since a newer
    #: release may have written more than this one knows.
    definition: bytes
    is_paused: bool = False
    #: Another one each time the name is given: what was left behind under it is not this one's.
    incarnation: str = ""

    def __repr__(self) -> str:
        # In an error or a log it must not show more.
        return f"CaptureDefined(name={self.name!r}, is_paused={self.is_paused})"


class CaptureRemoved(_Event, frozen=True, kw_only=True, tag="CaptureRemoved"):
    name: str


class TermBegan(_Event, frozen=True, kw_only=True, tag="TermBegan"):
    """The first entry of a leader of the metadata quorum; it changes nothing."""

    leader: int


class VotersChanged(_Event, frozen=True, kw_only=True, tag="VotersChanged"):
    """Who votes in the metadata quorum and who only learns, after the change.

    Voters obey it from the moment they have it in their log, agreed on or not.
    """

    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()


Event: TypeAlias = (
    ClusterCreated
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigChanged
    | LeaderChanged
    | PartitionChanged
    | ProducerIdsReserved
    | NodeAdded
    | NodeRemoved
    | NodeRegistered
    | NodeFenced
    | NodeConfigChanged
    | GroupConfigChanged
    | ClientQuotaChanged
    | FeatureLevelChanged
    | CaptureDefined
    | CaptureRemoved
    | TermBegan
    | VotersChanged
)

#: Kinds of events that not every release knows that can be in a cluster: from which level on.
LEVELS: dict[type[Event], int] = {CaptureDefined: 3, CaptureRemoved: 3}

_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def level_needed(events: Iterable[Event]) -> int:
    """The feature level at which all of these may be written."""
    return max((LEVELS.get(type(event), FIRST_LEVEL) for event in events), default=FIRST_LEVEL)


def encode_event(event: Event) -> bytes:
    return msgspec.msgpack.encode(event)


def decode_event(data: bytes) -> Event:
    """Raises `FormatError`: the log was written by a release that knows more events."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise FormatError(f"metadata event cannot be read: {error}; a newer release?") from None
