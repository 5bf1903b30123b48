"""Requests and results of groups. Values without behaviour of their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from dragoman.errors import DragomanError
from dragoman.types import GroupId, MemberId
from dragoman.world import Random

#: Name and opaque metadata, in the member's order of preference.
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class State(StrEnum):
    """States of a group; the words are those that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    #: The last change of a consumer group has no target assignment yet.
    ASSIGNING = "Assigning"
    #: Some members of a consumer group have not reached the target assignment.
    RECONCILING = "Reconciling"
    DEAD = "Dead"


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    #: Empty for a client that has none yet.
    member_id: MemberId = MemberId("")
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    #: Negative: the session time-out, for clients that have only one.
    rebalance_timeout_ms: int = -1
    #: Whether a new member without instance id has to join again with the assigned id (KIP-394).
    requires_known_member_id: bool = False
    #: The client understands `Joined.skip_assignment` (KIP-814).
    supports_skip_assignment: bool = False
    owner: str = "kafka"


class JoinedMember(msgspec.Struct, frozen=True):
    member_id: MemberId
    instance_id: str | None
    metadata: bytes


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    generation: int
    protocol_type: str
    protocol: str
    leader: MemberId
    #: Every member, for the leader; empty for the others.
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    member_id: MemberId
    generation: int
    instance_id: str | None = None
    #: Compared with the group's when given.
    protocol_type: str | None = None
    protocol: str | None = None
    #: From the leader: the assignments.
    assignments: tuple[tuple[MemberId, bytes], ...] = ()


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    protocol_type: str
    protocol: str
    assignment: bytes


class LeavingMember(msgspec.Struct, frozen=True, kw_only=True):
    """Named by its member id, or by its instance id alone, or by both."""

    member_id: MemberId = MemberId("")
    instance_id: str | None = None


class MemberDescription(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    #: Both empty unless the group is stable.
    metadata: bytes
    assignment: bytes


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    kind: str
    #: The protocol whose members live in the group, or None.
    owner: str | None
    state: State
    generation: int
    #: Empty for a group that only has offsets.
    protocol_type: str
    protocol: str
    leader: MemberId | None
    members: tuple[MemberDescription, ...]


class GroupListing(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    kind: str
    owner: str | None
    state: State
    protocol_type: str


JoinReply: TypeAlias = Callable[[Joined | DragomanError], None]
SyncReply: TypeAlias = Callable[[Synced | DragomanError], None]


def new_member_id(request: JoinRequest, random: Random) -> MemberId:
    name = request.client_id if request.instance_id is None else request.instance_id
    return MemberId(f"{name}-{uuid.UUID(int=random.getrandbits(128), version=4)}")


def rebalance_timeout_ms(request: JoinRequest) -> int:
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def request_bytes(request: JoinRequest) -> int:
    return member_bytes(request.client_id, request.client_host, request.protocols)


def member_bytes(client_id: str, client_host: str, protocols: Protocols) -> int:
    """An estimate of a member's memory: characters count as bytes."""
    size = len(client_id) + len(client_host)
    return size + sum(len(name) + len(metadata) for name, metadata in protocols)
