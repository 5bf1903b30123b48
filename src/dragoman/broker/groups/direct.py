"""Groups whose members the broker assigns at once, without a barrier or a vote of the members.

The common part of minibroker's and Cursus's groups. Members join for one topic each; a join, a
leave or a missed heartbeat changes the assignments at once and raises the generation. Members get
changed assignments through `on_assigned`. After a restart members join again; a group that is bound
to a topic stores the binding and the generation, which survive.

Each protocol brings its rule of assignment, its session time-out and the texts of its refusals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from dragoman.broker.errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InvalidGroupRequest,
    UnknownMember,
)
from dragoman.broker.groups.messages import GroupDescription, MemberDescription, State
from dragoman.broker.groups.ports import GroupPorts
from dragoman.broker.groups.records import GroupKey, GroupValue, record
from dragoman.errors import BrokerError, DragomanError
from dragoman.limits import GROUP_MEMBERS_MAX, MEMBER_ID_BYTES_MAX
from dragoman.outcome import Outcome, acknowledged
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Handle

log = logging.getLogger("dragoman.coordination")
#: Assigns the partitions of a topic to its members, in the order in which they joined.
Share: TypeAlias = Callable[[Sequence[MemberId], int], Mapping[MemberId, tuple[int, ...]]]


def by_turns(members: Sequence[MemberId], count: int) -> Mapping[MemberId, tuple[int, ...]]:
    """Partition p goes to member p mod n, in order of joining."""
    step = len(members)
    return {member: tuple(range(index, count, step)) for index, member in enumerate(members)}


class DirectRules(NamedTuple):
    """The parameters of a protocol."""

    share: Share
    #: Session time-out of a member; 0 means none.
    session_timeout_s: float
    #: Interval of checks for silent members.
    sweep_interval_s: float
    #: Returns the partition count of a topic.
    partition_count: Callable[[TopicName], int]


class DirectMember:
    __slots__ = (
        "assigned",
        "client_host",
        "last_seen",
        "member_id",
        "on_assigned",
        "on_evicted",
        "on_moved",
        "topic",
    )

    def __init__(
        self,
        member_id: MemberId,
        topic: TopicName,
        *,
        client_host: str,
        on_assigned: Callable[[tuple[int, ...]], None],
        on_evicted: Callable[[], None],
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.member_id = member_id
        self.topic = topic
        self.client_host = client_host
        #: Called when the assignment has changed, except by the member's own join.
        self.on_assigned = on_assigned
        #: Called when the member was removed for its silence.
        self.on_evicted = on_evicted
        #: Called when another node coordinates the group; the member has to join there.
        self.on_moved = on_moved
        self.assigned: tuple[int, ...] = ()
        self.last_seen = 0.0


class DirectGroup:
    kind = "direct"

    def __init__(self, group_id: GroupId, owner: str, ports: GroupPorts, generation: int) -> None:
        self.group_id = group_id
        self.owner = owner
        self.generation = generation
        #: Given before the first member joins, by the protocol that the group belongs to.
        self.rules: DirectRules | None = None
        self._persist = ports.persist
        self._scheduler = ports.scheduler
        self._clock = ports.clock
        self._members: dict[MemberId, DirectMember] = {}
        #: Partition counts of the topics at the last assignment.
        self._counts: dict[TopicName, int] = {}
        self._since_ms = self.assigned_ms = ports.clock.wall_ms()
        self._sweeper: Handle | None = None
        #: The one topic of all members, in protocols that bind a group to a topic.
        self.bound_to: TopicName | None = None

    @classmethod
    def restore(cls, group_id: GroupId, value: GroupValue, ports: GroupPorts) -> DirectGroup:
        group = cls(group_id, value.owner, ports, value.generation)
        group.bound_to = TopicName(value.protocol)
        group._since_ms = value.since_ms
        return group

    def bind(self, topic: TopicName) -> None:
        """From now on all members read this topic."""
        self.bound_to = topic
        self.store().then(self._stored)

    def store(self) -> Outcome[None]:
        """Make durable what outlasts a restart. The group must be bound."""
        assert self.bound_to is not None
        value = GroupValue(
            kind=self.kind,
            owner=self.owner,
            generation=self.generation,
            protocol_type=self.owner,
            protocol=self.bound_to,
            leader=None,
            since_ms=self._since_ms,
            members=(),
        )
        records = [record(GroupKey(self.group_id), value)]
        return acknowledged(partial(self._persist, self.group_id, records))

    # ---- members

    @property
    def members(self) -> Mapping[MemberId, DirectMember]:
        return self._members

    def join(self, member: DirectMember) -> tuple[int, ...]:
        """The new member's partitions. Raises `GroupMaxSizeReached`."""
        if len(self._members) >= GROUP_MEMBERS_MAX:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {GROUP_MEMBERS_MAX} members")
        if len(member.member_id.encode()) > MEMBER_ID_BYTES_MAX:
            raise InvalidGroupRequest(f"a member id has at most {MEMBER_ID_BYTES_MAX} bytes")
        if not self._members:
            self._since_ms = self._clock.wall_ms()
        member.last_seen = self._clock.monotonic()
        self._members[member.member_id] = member
        self._assign(member.topic, member)
        self._watch()
        return member.assigned

    def leave(self, member_id: MemberId) -> None:
        """Raises `UnknownMember`."""
        member = self.require(member_id)
        del self._members[member_id]
        self._left(member)

    def require(self, member_id: MemberId) -> DirectMember:
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"group {self.group_id!r} has no member {member_id!r}")
        return member

    def heartbeat(self, member_id: MemberId) -> None:
        """Raises `UnknownMember`."""
        self.require(member_id).last_seen = self._clock.monotonic()

    def topics_changed(self) -> None:
        """A topic was created or extended: reassign its partitions."""
        assert self.rules is not None or not self._members
        for topic in dict.fromkeys(each.topic for each in self._members.values()):
            if self.rules and self.rules.partition_count(topic) != self._counts[topic]:
                self._assign(topic, None)

    def _left(self, member: DirectMember) -> None:
        self._assign(member.topic, None)
        if not self._members:
            self._since_ms = self._clock.wall_ms()
            if self._sweeper is not None:
                self._sweeper.cancel()
                self._sweeper = None

    def _assign(self, topic: TopicName, joined: DirectMember | None) -> None:
        assert self.rules is not None
        self.generation += 1
        if log.isEnabledFor(logging.DEBUG):
            fields = {"group": self.group_id, "generation": self.generation, "topic": topic}
            log.debug("group shares partitions anew", extra=fields)
        self.assigned_ms = self._clock.wall_ms()
        members = [each for each in self._members.values() if each.topic == topic]
        count = self._counts[topic] = self.rules.partition_count(topic)
        if not members:
            del self._counts[topic]
        shares = self.rules.share([each.member_id for each in members], count)
        changed = []
        for member in members:
            share = shares.get(member.member_id, ())
            if share != member.assigned:
                member.assigned = share
                changed.append(member)
        if self.bound_to is not None:
            self.store().then(self._stored)
        # Last of all, because a callback may remove members.
        for member in changed:
            if member is not joined:
                member.on_assigned(member.assigned)

    def _stored(self, error: DragomanError | None) -> None:
        if error is not None:
            log.warning(
                "generation %d of %r is not stored: %s", self.generation, self.group_id, error
            )

    # ---- liveness

    def _watch(self) -> None:
        assert self.rules is not None
        if self._sweeper is None and self.rules.session_timeout_s > 0:
            self._sweeper = self._scheduler.call_later(self.rules.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        assert self.rules is not None
        self._sweeper = None
        oldest = self._clock.monotonic() - self.rules.session_timeout_s
        silent = [each for each in self._members.values() if each.last_seen < oldest]
        for member in silent:
            if self._members.get(member.member_id) is member:
                del self._members[member.member_id]
                member.on_evicted()
                self._left(member)
        if self._members:
            self._watch()

    # ---- for the registry

    @property
    def state(self) -> State:
        return State.STABLE if self._members else State.EMPTY

    @property
    def since_ms(self) -> int:
        return self._since_ms

    @property
    def protocol_type(self) -> str:
        return self.owner

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._members))

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    @property
    def member_count(self) -> int:
        return len(self._members)

    @property
    def is_idle(self) -> bool:
        return not self._members

    @property
    def is_registered(self) -> bool:
        return self.bound_to is not None

    def describe(self) -> GroupDescription:
        return GroupDescription(
            group_id=self.group_id,
            kind=self.kind,
            owner=self.owner if self._members else None,
            state=self.state,
            generation=self.generation,
            protocol_type=self.owner,
            protocol="",
            leader=None,
            members=tuple(
                MemberDescription(
                    member_id=each.member_id,
                    instance_id=None,
                    client_id=each.member_id,
                    client_host=each.client_host,
                    metadata=b"",
                    assignment=b"",
                )
                for each in self._members.values()
            ),
        )

    def subscriptions(self) -> frozenset[TopicName] | None:
        return frozenset(each.topic for each in self._members.values())

    def check_commit(
        self,
        member_id: MemberId,
        generation: int,
        instance_id: str | None,  # noqa: ARG002
        *,
        is_transactional: bool,
    ) -> None:
        """A commit without member and generation is always valid: minibroker's have neither."""
        if is_transactional or (not member_id and generation < 0):
            return
        self.require(member_id)
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, got {generation}"
            )

    def resume(self) -> None:
        """Members are not stored: none is awaited."""

    def stop(self, error: BrokerError) -> None:  # noqa: ARG002
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        members, self._members = self._members, {}
        for member in members.values():
            member.on_moved()
