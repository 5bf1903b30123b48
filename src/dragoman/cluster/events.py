"""What happens to the cluster's metadata, as values: the entries of the metadata log.

An event is a fact that the quorum has committed; applying it cannot fail. Events are encoded as
msgpack, one to a record of the internal metadata partition. Older nodes read them too: a new kind
of event, or a new field that the image keeps, is written only when all nodes know it (`LEVELS`,
docs/guides/upgrading.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from dragoman.errors import MALFORMED, FormatError
from dragoman.security.access import ANONYMOUS
from dragoman.security.rules import Rule
from dragoman.security.users import SealedSecret, User

#: The feature level of nodes that do not report one, and of clusters without a committed one.
FIRST_LEVEL = 2
#: The name of the feature whose level is the cluster's.
LEVEL_IN_FORCE = "dragoman"


class PartitionPlacement(msgspec.Struct, frozen=True, array_like=True):
    partition_id: int
    replicas: tuple[int, ...]


class Member(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A node in one of its lives: a restarted node is another member."""

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
    """All overrides of a topic, after the change."""

    topic_id: bytes
    config: dict[str, str]


class LeaderChanged(_Event, frozen=True, kw_only=True, tag="LeaderChanged"):
    """Leader and in-sync set of a partition, after the change. -1: no leader.

    Occurs in logs from before clusters; superseded by `PartitionChanged`.
    """

    partition_id: int
    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    partition_epoch: int


class PartitionChanged(_Event, frozen=True, kw_only=True, tag="PartitionChanged"):
    """The complete replication state of a partition, after the change."""

    partition_id: int
    #: -1: no leader.
    leader: int
    leader_epoch: int
    #: One more than before, so that changes form a chain.
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[Member, ...]
    #: Replicas out of sync that have every committed record, so they may lead as well.
    eligible: tuple[int, ...] = ()
    #: Replicas after the move in progress; empty: no move.
    target: tuple[int, ...] = ()
    #: Replicas before the move in progress.
    before: tuple[int, ...] = ()
    #: Whether an operator has elected a leader that may lack committed records.
    is_unclean: bool = False


class ProducerIdsReserved(_Event, frozen=True, kw_only=True, tag="ProducerIdsReserved"):
    """Ids below `next_id` are allocated, and are never allocated again."""

    next_id: int


class NodeAdded(_Event, frozen=True, kw_only=True, tag="NodeAdded"):
    """A node is added. Until it registers, other nodes reach it at this address."""

    node_id: int
    address: str


class NodeRemoved(_Event, frozen=True, kw_only=True, tag="NodeRemoved"):
    """A node is removed for good; it holds no partition."""

    node_id: int


class NodeRegistered(_Event, frozen=True, kw_only=True, tag="NodeRegistered"):
    """A node has registered with a new incarnation, or is unfenced."""

    node_id: int
    incarnation: int
    #: Random id of the data directory; a node with another one has lost its data.
    directory: str = ""
    #: Identifies this start of the directory; opaque to other nodes.
    life: str = ""
    #: Addresses of its listeners, by name.
    addresses: dict[str, str] = {}
    rack: str = ""
    #: The data directory with the node's votes in the quorum. A node with another directory has
    #: forgotten them; it does not vote until it has been removed from the quorum and added again.
    voter_directory: str = ""
    #: The highest feature level that the node supports.
    feature_level: int = FIRST_LEVEL


class NodeFenced(_Event, frozen=True, kw_only=True, tag="NodeFenced"):
    """A node is fenced: its session has expired, or it is stopping."""

    node_id: int
    incarnation: int


class NodeConfigChanged(_Event, frozen=True, kw_only=True, tag="NodeConfigChanged"):
    """All settings changed at run time, after the change; -1: for every node."""

    config: dict[str, str]
    node_id: int = -1


class GroupConfigChanged(_Event, frozen=True, kw_only=True, tag="GroupConfigChanged"):
    """All overrides of a group, after the change; empty: the group has none any more."""

    group_id: str
    config: dict[str, str]


class ClientQuotaChanged(_Event, frozen=True, kw_only=True, tag="ClientQuotaChanged"):
    """All quotas of one entity, after the change; empty: the entity has none any more.

    An entity is a sorted set of kinds and names; the name None is the default of all without a
    quota of their own.
    """

    entity: tuple[tuple[str, str | None], ...]
    quotas: dict[str, float] = {}


class FeatureLevelChanged(_Event, frozen=True, kw_only=True, tag="FeatureLevelChanged"):
    """The level of a feature that clients may use, or the feature level of the cluster."""

    feature: str
    level: int


class CaptureDefined(_Event, frozen=True, kw_only=True, tag="CaptureDefined"):
    """The complete definition of a capture, after the change.

    Superseded by `CaptureChanged`; nodes of level 4 and below know only this one.
    """

    name: str
    #: JSON of `dragoman.captures.definition`, with the password. Stored unparsed, since a newer
    #: release may have written fields that this one does not know.
    definition: bytes
    is_paused: bool = False
    #: Unique to each use of the name, so that the state of an earlier capture is ignored.
    incarnation: str = ""

    def __repr__(self) -> str:
        # Errors and logs must not show the definition.
        return f"CaptureDefined(name={self.name!r}, is_paused={self.is_paused})"


class CaptureChanged(_Event, frozen=True, kw_only=True, tag="CaptureChanged"):
    """The complete state of a capture, after the change; its secrets are sealed."""

    name: str
    #: JSON of `dragoman.captures.definition`; secrets in the address are hidden.
    definition: bytes
    #: The address with its secrets; None if it has none.
    dsn: SealedSecret | None = None
    #: The principal that the capture runs as, as `KIND:NAME`, and which use of that user's name
    #: (empty for one that is not a user of the cluster).
    principal: str = str(ANONYMOUS)
    user: str = ""
    is_paused: bool = False
    #: Unique to each use of the name, so that the state of an earlier capture is ignored.
    incarnation: str = ""


class CaptureRemoved(_Event, frozen=True, kw_only=True, tag="CaptureRemoved"):
    name: str


class UserChanged(_Event, frozen=True, kw_only=True, tag="UserChanged"):
    """The complete state of a user, after the change."""

    user: User


class UserRemoved(_Event, frozen=True, kw_only=True, tag="UserRemoved"):
    name: str


class LoginSecretSet(_Event, frozen=True, kw_only=True, tag="LoginSecretSet"):
    """Written with the first user or capture: the salts of names are made from it."""

    secret: bytes

    def __repr__(self) -> str:
        return "LoginSecretSet()"


class RulesChanged(_Event, frozen=True, kw_only=True, tag="RulesChanged"):
    """Access rules were removed and added, together."""

    added: tuple[Rule, ...] = ()
    removed: tuple[Rule, ...] = ()


class SecurityModeChanged(_Event, frozen=True, kw_only=True, tag="SecurityModeChanged"):
    """What becomes of a request that no rule allows: `open`, `audit` or `enforce`."""

    mode: str


class ClusterKeyChanged(_Event, frozen=True, kw_only=True, tag="ClusterKeyChanged"):
    """Secrets are encrypted with the cluster's key of this id from now on."""

    key_id: str
    #: Tells the right key from another one under the same id; reveals nothing about it.
    check: bytes


class TermBegan(_Event, frozen=True, kw_only=True, tag="TermBegan"):
    """The first entry of a leader of the metadata quorum; it changes nothing."""

    leader: int


class VotersChanged(_Event, frozen=True, kw_only=True, tag="VotersChanged"):
    """The voters and learners of the metadata quorum, after the change.

    A node obeys it as soon as it is in its log, committed or not.
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
    | CaptureChanged
    | CaptureRemoved
    | UserChanged
    | UserRemoved
    | LoginSecretSet
    | RulesChanged
    | SecurityModeChanged
    | ClusterKeyChanged
    | TermBegan
    | VotersChanged
)

#: A capture, as an event describes it.
Capture: TypeAlias = CaptureDefined | CaptureChanged
#: The feature level from which on each kind of event may be written.
LEVELS: dict[type[Event], int] = {
    CaptureDefined: 3,
    CaptureRemoved: 3,
    CaptureChanged: 5,
    UserChanged: 5,
    UserRemoved: 5,
    LoginSecretSet: 5,
    RulesChanged: 5,
    SecurityModeChanged: 5,
    ClusterKeyChanged: 5,
}

_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def level_needed(events: Iterable[Event]) -> int:
    """The feature level at which all of these may be written."""
    return max((LEVELS.get(type(event), FIRST_LEVEL) for event in events), default=FIRST_LEVEL)


def encode_event(event: Event) -> bytes:
    return msgspec.msgpack.encode(event)


def decode_event(data: bytes) -> Event:
    """Raises `FormatError` if a newer release wrote the event."""
    try:
        return _decoder.decode(data)
    except MALFORMED as error:
        raise FormatError(f"metadata event cannot be read: {error}; a newer release?") from None
