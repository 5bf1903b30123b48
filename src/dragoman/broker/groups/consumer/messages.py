"""Requests and results of consumer groups (KIP-848), mostly plain values.

Also the checks of a heartbeat that need no group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TypeAlias

import msgspec

from dragoman import limits
from dragoman.broker.errors import (
    GroupRequestTooLarge,
    InvalidGroupRequest,
    UnsupportedAssignor,
)
from dragoman.broker.groups.messages import State
from dragoman.broker.groups.records import StoredPartitions
from dragoman.errors import DragomanError
from dragoman.security.access import Caller
from dragoman.types import GroupId, MemberId, TopicName

#: A partition by the id of its topic: a topic that is deleted and created again is another topic.
PartitionOf: TypeAlias = tuple[bytes, int]
Partitions: TypeAlias = frozenset[PartitionOf]

NOTHING: Partitions = frozenset()

#: Special epochs, which state what a member wants.
JOIN = 0
LEAVE = -1
#: A static member leaves temporarily: it returns before its session ends, and keeps its partitions.
LEAVE_FOR_NOW = -2


class MemberState(IntEnum):
    #: The member has everything that the target assignment of its epoch gives it.
    STABLE = 1
    #: The member has not reported yet that it gave up partitions.
    UNREVOKED = 2
    #: The member waits for partitions that other members still have.
    UNRELEASED = 3


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """None in any field after `epoch` means no change since the last heartbeat."""

    group_id: GroupId
    #: Chosen by the client; empty only in a join that leaves the choice to the broker.
    member_id: MemberId
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[TopicName] | None = None
    #: An RE2 pattern, which must match whole names. Empty: none any more.
    pattern: str | None = None
    assignor: str | None = None
    #: Partitions that the member owns and reads now.
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    owner: str = "kafka"
    #: Patterns match the topics that this caller may describe.
    caller: Caller = Caller()

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as by a client that cannot know what reached the broker."""
        return (
            self.rebalance_timeout_ms is not None
            and self.owned is not None
            and (self.topics is not None or self.pattern is not None)
        )

    @property
    def is_bare(self) -> bool:
        """Whether the heartbeat only shows that the member is alive."""
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
    #: All partitions that the member may have now, or None: as in the last answer.
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
    #: Whether the member uses Kafka's first protocol.
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


def check_heartbeat(request: HeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raises for a heartbeat that every group would refuse."""
    if not request.group_id:
        raise InvalidGroupRequest("a group with members needs a name")
    if request.instance_id == "":
        raise InvalidGroupRequest("an instance id is not empty")
    if request.rack_id == "":
        raise InvalidGroupRequest("a rack id is not empty")
    if request.epoch < LEAVE_FOR_NOW:
        raise InvalidGroupRequest(f"epoch {request.epoch} is invalid")
    if request.epoch == LEAVE_FOR_NOW and request.instance_id is None:
        raise InvalidGroupRequest("only static members may leave temporarily")
    if not request.member_id and request.epoch != JOIN:
        raise InvalidGroupRequest("a heartbeat needs a member id")
    if request.epoch == JOIN:
        _check_join(request)
    _check_size(request)
    if request.assignor is not None and request.assignor not in assignors:
        raise UnsupportedAssignor(f"{request.assignor!r} is not one of: {', '.join(assignors)}")


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms is None or request.rebalance_timeout_ms < 0:
        raise InvalidGroupRequest("a join needs a rebalance time-out")
    if request.topics is None and request.pattern is None:
        raise InvalidGroupRequest("a join needs topics, or a pattern for them")
    if request.owned is None or request.owned:
        raise InvalidGroupRequest("a join must name no owned partitions")


def _check_size(request: HeartbeatRequest) -> None:
    if len(request.member_id.encode()) > limits.MEMBER_ID_BYTES_MAX:
        raise InvalidGroupRequest(f"a member id has at most {limits.MEMBER_ID_BYTES_MAX} bytes")
    if len((request.instance_id or "").encode()) > limits.INSTANCE_ID_BYTES_MAX:
        raise InvalidGroupRequest(
            f"an instance id has at most {limits.INSTANCE_ID_BYTES_MAX} bytes"
        )
    size = member_bytes(request)
    if size > limits.MEMBER_BYTES_MAX:
        raise GroupRequestTooLarge(f"{size} bytes of member metadata")
    if request.owned is not None and len(request.owned) > limits.MEMBER_OWNED_PARTITIONS_MAX:
        raise GroupRequestTooLarge(f"{len(request.owned)} partitions in one heartbeat")


def member_bytes(request: HeartbeatRequest) -> int:
    """An estimate of the memory of this member; characters count as bytes."""
    size = len(request.member_id) + len(request.instance_id or "") + len(request.rack_id or "")
    return size + len(request.client_id) + sum(map(len, request.topics or ()))
