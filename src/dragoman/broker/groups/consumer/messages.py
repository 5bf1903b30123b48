"""What callers hand to consumer groups (KIP-848), and what they get back. Mostly plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeAlias

import msgspec

from dragoman.broker.groups.messages import State
from dragoman.broker.groups.records import StoredPartitions
from dragoman.errors import DragomanError
from dragoman.types import GroupId, MemberId, TopicName

#: A partition by the id of its topic: a topic made anew under an old name is another topic.
PartitionOf: TypeAlias = tuple[bytes, int]
Partitions: TypeAlias = frozenset[PartitionOf]

NOTHING: Partitions = frozenset()

#: Epochs by which a member says what it wants.
JOIN = 0
LEAVE = -1
#: Of a static member: it will be back before its session ends, and keeps its partitions.
LEAVE_FOR_NOW = -2


class MemberState(IntEnum):
    #: It has all that the target assignment of its epoch gives it.
    STABLE = 1
    #: It still has to say that it gave up partitions.
    UNREVOKED = 2
    #: It waits for partitions that other members still have.
    UNRELEASED = 3


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """None in any field after `epoch` says that it is as in the last heartbeat."""

    group_id: GroupId
    #: Chosen by the client; empty only with a join of a client that leaves it to the broker.
    member_id: MemberId
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[TopicName] | None = None
    #: RE2; must match whole names. Empty: none any more.
    pattern: str | None = None
    assignor: str | None = None
    #: What the member has and reads from right now.
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    owner: str = "kafka"

    @property
    def is_full(self) -> bool:
        """It tells everything, as a client does that cannot know what reached the broker."""
        return (
            self.rebalance_timeout_ms is not None
            and self.owned is not None
            and (self.topics is not None or self.pattern is not None)
        )

    @property
    def is_bare(self) -> bool:
        """It says no more than that the member is alive."""
        return (
            self.owned is None
            and self.topics is None
            and self.pattern is None
            and self.assignor is None
            and self.rebalance_timeout_ms is None
        )


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    epoch: int
    heartbeat_interval_ms: int
    #: All that the member may have now, or None: as it was told before.
    assignment: Partitions | None = None


Reply: TypeAlias = Callable[[HeartbeatReply | DragomanError], None]


class ConsumerMemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[TopicName, ...]
    pattern: str | None
    assigned: Partitions
    target: Partitions
    #: It speaks Kafka's first protocol.
    is_classic: bool


class ConsumerGroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    state: State
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]


def by_topic(partitions: Iterable[PartitionOf]) -> StoredPartitions:
    """Topic ids in order, each with its indexes in order: equal sets give equal bytes."""
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return tuple((topic_id, tuple(indexes)) for topic_id, indexes in found.items())


def flattened(stored: Iterable[tuple[bytes, Iterable[int]]]) -> Partitions:
    return frozenset((topic_id, index) for topic_id, indexes in stored for index in indexes)
