"""Groups whose members the broker assigns at once: no barrier, no say of the members.

What minibroker and Cursus have in common. Members join for one topic each; a join, a leave or a
missed heartbeat gives new assignments at once and raises the generation. Members are told through
`on_assigned` when theirs changed. Nothing is written down but committed offsets: after a restart
members come anew.

Each protocol brings its rule for sharing partitions out, its session time-out and what it says in
refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from dragoman.broker.errors import GroupMaxSizeReached, IllegalGeneration, UnknownMember
from dragoman.broker.groups.messages import GroupDescription, MemberDescription, State
from dragoman.errors import BrokerError
from dragoman.limits import GROUP_MEMBERS_MAX
from dragoman.types import GroupId, MemberId, TopicName
from dragoman.world import Clock, Handle, Scheduler

#: Members of one topic, in order of their joining, and its partition count: who gets what.
Share: TypeAlias = Callable[[Sequence[MemberId], int], Mapping[MemberId, tuple[int, ...]]]


class DirectRules(NamedTuple):
    """What is a protocol's own."""

    share: Share
    #: How long a member may be silent; 0 means for ever.
    session_timeout_s: float
    #: Pause between looks for silent members.
    sweep_interval_s: float
    #: How many partitions there are to share, where members may join for more than a topic's name.
    partition_count: Callable[[TopicName], int] | None = None


class DirectMember:
    __slots__ = (
        "assigned",
        "client_host",
        "last_seen",
        "member_id",
        "on_assigned",
        "on_evicted",
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
    ) -> None:
        self.member_id = member_id
        self.topic = topic
        self.client_host = client_host
        #: Told when the assignment has changed, except by the member's own join.
        self.on_assigned = on_assigned
        #: Told when the member was silent for too long; it is out by then.
        self.on_evicted = on_evicted
        self.assigned: tuple[int, ...] = ()
        self.last_seen = 0.0


class DirectGroup:
    kind = "direct"

    def __init__(
        self,
        group_id: GroupId,
        owner: str,
        generation: int,
        rules: DirectRules,
        *,
        partition_count: Callable[[TopicName], int],
        scheduler: Scheduler,
        clock: Clock,
    ) -> None:
        self.group_id = group_id
        self.owner = owner
        self.generation = generation
        self._rules = rules
        self._partition_count = rules.partition_count or partition_count
        self._scheduler = scheduler
        self._clock = clock
        self._members: dict[MemberId, DirectMember] = {}
        self._since_ms = self.assigned_ms = clock.wall_ms()
        self._sweeper: Handle | None = None
        #: The one topic that all members read, in protocols where that is a group's own.
        self.bound_to: TopicName | None = None

    # ---- members

    @property
    def members(self) -> Mapping[MemberId, DirectMember]:
        return self._members

    def join(self, member: DirectMember) -> tuple[int, ...]:
        """The new member's partitions. Raises `GroupMaxSizeReached`."""
        if len(self._members) >= GROUP_MEMBERS_MAX:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {GROUP_MEMBERS_MAX} members")
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

    def partitions_added(self, topic: TopicName) -> None:
        """A topic grew: its members share out anew."""
        if any(each.topic == topic for each in self._members.values()):
            self._assign(topic, None)

    def _left(self, member: DirectMember) -> None:
        self._assign(member.topic, None)
        if not self._members:
            self._since_ms = self._clock.wall_ms()
            if self._sweeper is not None:
                self._sweeper.cancel()
                self._sweeper = None

    def _assign(self, topic: TopicName, joined: DirectMember | None) -> None:
        self.generation += 1
        self.assigned_ms = self._clock.wall_ms()
        members = [each for each in self._members.values() if each.topic == topic]
        shares = self._rules.share(
            [each.member_id for each in members], self._partition_count(topic)
        )
        changed = []
        for member in members:
            share = shares.get(member.member_id, ())
            if share != member.assigned:
                member.assigned = share
                changed.append(member)
        # Told when all is settled: who is told may leave.
        for member in changed:
            if member is not joined:
                member.on_assigned(member.assigned)

    # ---- liveness

    def _watch(self) -> None:
        if self._sweeper is None and self._rules.session_timeout_s > 0:
            self._sweeper = self._scheduler.call_later(self._rules.sweep_interval_s, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._clock.monotonic() - self._rules.session_timeout_s
        silent = [each for each in self._members.values() if each.last_seen < oldest]
        for member in silent:
            if self._members.get(member.member_id) is member:
                del self._members[member.member_id]
                member.on_evicted()
                self._left(member)
        if self._members:
            self._watch()

    # ---- what the registry asks

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
    def has_members(self) -> bool:
        return bool(self._members)

    @property
    def is_idle(self) -> bool:
        return not self._members

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
        """A commit without member and generation is anybody's: minibroker's have neither."""
        if is_transactional or (not member_id and generation < 0):
            return
        self.require(member_id)
        if generation != self.generation:
            raise IllegalGeneration(
                f"group {self.group_id!r} is in generation {self.generation}, got {generation}"
            )

    def resume(self) -> None:
        """Nothing is stored."""

    def stop(self, error: BrokerError) -> None:  # noqa: ARG002
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._members.clear()
