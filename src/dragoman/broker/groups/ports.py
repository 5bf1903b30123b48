"""The ports of groups, and the settings that all groups share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from dragoman.broker.groups.records import GroupValue, StateRecord
from dragoman.broker.patterns import Patterns
from dragoman.errors import DragomanError
from dragoman.security.access import Caller
from dragoman.types import GroupId, TopicName
from dragoman.world import Clock, Random, Scheduler

#: The permitted conversions of groups with members between Kafka's two protocols.
MigrationPolicy: TypeAlias = Literal["disabled", "upgrade", "downgrade", "bidirectional"]


class GroupSettings(msgspec.Struct, kw_only=True):
    """One object that all groups share; a change takes effect with the next request."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    #: How long the first rebalance of an empty group waits for more members; 0 in tests.
    group_initial_rebalance_delay_ms: int = 3_000
    #: `limits.GROUP_MEMBERS_MAX` holds in any case.
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    #: Counted from the time when the group became empty.
    offsets_retention_minutes: int = 10_080
    #: Sent to members of consumer groups (KIP-848), which have no settings of their own.
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    #: `limits.GROUP_MEMBERS_MAX` holds in any case.
    group_consumer_max_size: int = 2_147_483_647
    #: The first is used when the members request none.
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = "bidirectional"


#: The protocol type of groups whose members read topics.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
#: Makes records of a group durable, in the order of the calls, and calls `done` exactly once, at
#: once or later, with the error if they are not.
Persist: TypeAlias = Callable[
    [GroupId, Sequence[StateRecord], Callable[[DragomanError | None], None]], None
]
#: The topics in a member's metadata, given its protocol type; None when they are unknown.
ReadSubscription: TypeAlias = Callable[[str, bytes], frozenset[TopicName] | None]
#: What a group has of the configuration that groups may have of their own, as text.
OwnConfig: TypeAlias = Callable[[GroupId], Mapping[str, str]]
#: Indexes of partitions by the name of their topic.
NamedPartitions: TypeAlias = Sequence[tuple[str, Sequence[int]]]


class TopicFacts(msgspec.Struct, frozen=True):
    name: TopicName
    topic_id: bytes
    partition_count: int


class Catalog(Protocol):
    """The topics that members of consumer groups can read."""

    @property
    def revision(self) -> int:
        """Changes whenever a topic is made, deleted or grows, and when rights may have changed."""
        ...

    @property
    def is_limited(self) -> bool:
        """Whether patterns match only topics that the member may describe."""
        ...

    def describable(self, caller: Caller, names: Collection[TopicName]) -> frozenset[str]:
        """The topics that the caller may describe."""
        ...

    def generalized(self, caller: Caller) -> Caller:
        """Callers that are generalized to the same have the same rights."""
        ...

    def find(self, name: str) -> TopicFacts | None: ...

    def find_by_id(self, topic_id: bytes) -> TopicFacts | None: ...

    def names(self) -> Iterable[TopicName]:
        """Names for the matching of patterns, without internal topics."""
        ...


class ClassicSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a member of Kafka's first protocol."""

    topics: frozenset[TopicName]
    owned: NamedPartitions
    rack_id: str | None


class Dialect(Protocol):
    """Decodes and encodes the metadata of members of Kafka's first protocol.

    A group of both protocols needs it: its coordinator takes the place of the leading member.
    """

    def read_subscription(self, metadata: bytes) -> ClassicSubscription | None:
        """The decoded metadata; None when it is unreadable."""
        ...

    def read_assignment(self, assignment: bytes) -> NamedPartitions | None: ...

    def write_assignment(self, metadata: bytes, partitions: NamedPartitions) -> bytes:
        """Encode in the version of the member's `metadata`."""
        ...


class GroupPorts(msgspec.Struct, frozen=True, kw_only=True):
    settings: GroupSettings
    scheduler: Scheduler
    clock: Clock
    random: Random
    persist: Persist
    read_subscription: ReadSubscription
    catalog: Catalog
    #: None where no protocol has one: groups are never converted then.
    dialect: Dialect | None
    own_config: OwnConfig
    patterns: Patterns
    #: Called when a group has neither members nor pending joins.
    became_idle: Callable[[GroupId], None]
    #: Called when only members of the first protocol are left in a consumer group, with the
    #: converted group; its records have been passed to `persist`.
    became_classic: Callable[[GroupId, GroupValue], None]


class NoTopics:
    """A catalogue for groups whose protocol needs none."""

    revision = 0
    is_limited = False

    def describable(self, _caller: Caller, names: Collection[TopicName]) -> frozenset[str]:
        return frozenset(names)

    def generalized(self, caller: Caller) -> Caller:
        return caller

    def find(self, _name: str) -> TopicFacts | None:
        return None

    def find_by_id(self, _topic_id: bytes) -> TopicFacts | None:
        return None

    def names(self) -> Iterable[TopicName]:
        return ()


def no_config(_group_id: GroupId) -> Mapping[str, str]:
    """For groups that have no configuration of their own."""
    return {}


def unreadable(_protocol_type: str, _metadata: bytes) -> None:
    """For callers that cannot read any member's metadata."""


def subscriptions_read_by(dialect: Dialect) -> ReadSubscription:
    def read(protocol_type: str, metadata: bytes) -> frozenset[TopicName] | None:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        subscription = dialect.read_subscription(metadata)
        return None if subscription is None else subscription.topics

    return read
