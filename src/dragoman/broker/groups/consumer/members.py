"""The members of one consumer group: what each owns, and its transition to the target (KIP-848).

    STABLE ------- new target takes partitions away ---> UNREVOKED   keeps its epoch
    UNREVOKED ---- reports that it has revoked them ---> next step, from the epoch after its own
    any ---------- nothing to give up, all is free ----> STABLE      target epoch
    any ---------- nothing to give up, some is taken --> UNRELEASED  target epoch, the rest later

A member has to give up partitions before it gets any, and gets a partition only when it has no
owner: a member that has to give one up owns it until it reports otherwise. So no partition ever
has two owners. The epoch moves to that of the target as soon as nothing has to be given up, and
commits under the former epoch are refused from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from dragoman.broker.groups.consumer.messages import (
    JOIN,
    LEAVE_FOR_NOW,
    NOTHING,
    ConsumerMemberDescription,
    HeartbeatRequest,
    MemberState,
    PartitionOf,
    Partitions,
    by_topic,
    flattened,
)
from dragoman.broker.groups.messages import MemberDescription
from dragoman.broker.groups.records import ClassicFacts, StoredConsumerMember
from dragoman.broker.groups.waits import DeadlineTimer, PhaseTimer
from dragoman.security.access import Caller
from dragoman.types import MemberId, TopicName

# ---- reconciliation


class Position(msgspec.Struct, frozen=True):
    """The progress of a member's reconciliation."""

    epoch: int
    state: MemberState
    #: Partitions that the member may have.
    assigned: Partitions
    #: Partitions that the member had and has not reported as given up.
    revoking: Partitions


class Target(msgspec.Struct, frozen=True):
    epoch: int
    partitions: Partitions


def reconcile(
    now: Position,
    owned: Partitions | None,
    target: Target,
    is_free: Callable[[PartitionOf], bool],
) -> Position:
    """The next position; `owned` is what the member reports to have, None without a report."""
    if now.state is MemberState.STABLE and now.epoch == target.epoch:
        return now
    epoch = now.epoch
    if now.state is MemberState.UNREVOKED:
        if _still_has(owned, now.revoking):
            return now
        epoch = min(now.epoch + 1, target.epoch)
    kept = now.assigned & target.partitions
    revoking = now.assigned - kept
    if revoking and _still_has(owned, revoking):
        return Position(epoch, MemberState.UNREVOKED, kept, revoking)
    wanted = target.partitions - kept
    given = frozenset(filter(is_free, wanted))
    state = MemberState.STABLE if len(given) == len(wanted) else MemberState.UNRELEASED
    return Position(target.epoch, state, kept | given, NOTHING)


def _still_has(owned: Partitions | None, revoking: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(revoking)


# ---- one member, of either of Kafka's two protocols


class ConsumerMember:
    __slots__ = (
        "assignor",
        "caller",
        "classic",
        "client_host",
        "client_id",
        "instance_id",
        "last_sent",
        "member_id",
        "pattern",
        "phase",
        "position",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "session",
        "session_timeout",
        "target",
        "topics",
    )

    def __init__(
        self,
        member_id: MemberId,
        instance_id: str | None,
        session: DeadlineTimer,
        phase: PhaseTimer,
        session_timeout: float,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        #: The sender of the last heartbeat. None: none came since the member was restored, and its
        #: rights are unknown.
        self.caller: Caller | None = None
        self.rebalance_timeout_ms = 0
        self.topics: frozenset[TopicName] = frozenset()
        self.pattern: str | None = None
        self.assignor: str | None = None
        self.position = Position(JOIN, MemberState.STABLE, NOTHING, NOTHING)
        #: A client that missed the reply with its new epoch still uses this one.
        self.previous_epoch = JOIN
        self.target: Partitions = NOTHING
        #: The assignment last sent to it; None when that is unknown.
        self.last_sent: Partitions | None = None
        #: None for a member of the second protocol.
        self.classic: ClassicFacts | None = None
        self.session = session
        self.session_timeout = session_timeout
        #: Time-out for giving up partitions, for joining again, and for a sync.
        self.phase = phase

    def update(self, request: HeartbeatRequest) -> bool:
        """Apply the member's own data. Returns whether the target assignment has to change."""
        before = (self.topics, self.pattern, self.assignor)
        if request.topics is not None:
            self.topics = request.topics
        if request.pattern is not None:
            self.pattern = request.pattern or None
        if request.assignor is not None:
            self.assignor = request.assignor
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms is not None:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.epoch == JOIN:
            self.client_id = request.client_id
            self.client_host = request.client_host
        return before != (self.topics, self.pattern, self.assignor)

    def identify(self, caller: Caller) -> bool:
        """Note the sender of a heartbeat. Returns whether the topics of a pattern may be others for
        it.
        """
        if caller is self.caller or caller == self.caller:
            return False
        self.caller = caller
        return self.pattern is not None

    @property
    def has_unknown_rights(self) -> bool:
        """Whether it is unknown which topics the member's pattern may match."""
        return self.pattern is not None and self.caller is None

    def has_missed_reply(self, request: HeartbeatRequest) -> bool:
        """Whether the member still uses its previous epoch, because a reply was lost."""
        return (
            request.epoch == self.previous_epoch
            and request.epoch < self.epoch
            and request.owned is not None
            and request.owned <= self.position.assigned
        )

    def describe(self) -> ConsumerMemberDescription:
        return ConsumerMemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            epoch=self.epoch,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=tuple(sorted(self.topics)),
            pattern=self.pattern,
            assigned=self.position.assigned,
            target=self.target,
            is_classic=self.classic is not None,
        )

    def as_member_of_any_group(self) -> MemberDescription:
        """The member as groups of every protocol describe theirs."""
        return MemberDescription(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"",
            assignment=b"",
        )

    @property
    def epoch(self) -> int:
        return self.position.epoch

    @property
    def state(self) -> MemberState:
        return self.position.state

    @property
    def holds(self) -> Partitions:
        """Partitions that no other member may get."""
        return self.position.assigned | self.position.revoking

    @property
    def is_away(self) -> bool:
        return self.position.epoch == LEAVE_FOR_NOW

    @property
    def name(self) -> str:
        return self.member_id if self.instance_id is None else self.instance_id

    @property
    def byte_count(self) -> int:
        """An estimate of its memory: characters count as bytes, which is accurate enough for a
        bound.
        """
        size = len(self.client_id) + len(self.client_host) + len(self.pattern or "")
        size += sum(map(len, self.topics))
        if self.classic is not None:
            size += sum(len(name) + len(metadata) for name, metadata in self.classic.protocols)
        return size

    def touch(self) -> None:
        """The member is alive: restart its session."""
        self.session.arm(self.session_timeout)

    def is_settled(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def stop(self) -> None:
        self.session.stop()
        self.phase.end()

    # ---- records

    def stored(self, origin: int) -> StoredConsumerMember:
        return StoredConsumerMember(
            origin=origin,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topics=tuple(sorted(self.topics)),
            pattern=self.pattern,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=by_topic(self.position.assigned),
            revoking=by_topic(self.position.revoking),
            classic=self.classic,
        )

    def restore(self, stored: StoredConsumerMember) -> None:
        self.rack_id = stored.rack_id
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.topics = frozenset(stored.topics)
        self.pattern = stored.pattern
        self.assignor = stored.assignor
        self.previous_epoch = stored.previous_epoch
        self.position = Position(
            stored.epoch,
            MemberState(stored.state),
            flattened(stored.assigned),
            flattened(stored.revoking),
        )
        self.classic = stored.classic

    def take_over(self, old: ConsumerMember) -> None:
        """A static member returns under a new member id, with the state of the old one."""
        self.rack_id = old.rack_id
        self.rebalance_timeout_ms = old.rebalance_timeout_ms
        self.topics = old.topics
        self.pattern = old.pattern
        self.assignor = old.assignor
        self.position = Position(JOIN, MemberState.STABLE, old.position.assigned, NOTHING)
        self.target = old.target


# ---- all members


class ConsumerRoster:
    __slots__ = ("_holders", "_members", "_sizes", "_static", "byte_count", "get")

    def __init__(self) -> None:
        self._members: dict[MemberId, ConsumerMember] = {}
        #: The dictionary's own method, which saves a call per heartbeat.
        self.get = self._members.get
        self._static: dict[str, ConsumerMember] = {}
        self._holders: dict[PartitionOf, MemberId] = {}
        self._sizes: dict[MemberId, int] = {}
        #: An estimate of the memory of all members.
        self.byte_count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self._static.get(instance_id)

    def holder(self, partition: PartitionOf) -> MemberId | None:
        return self._holders.get(partition)

    def held(self, partitions: Partitions) -> Partitions:
        """The partitions among these that a member has.

        `&` with the keys of a dictionary would give a set, which can be changed and has no hash,
        whatever its left side is.
        """
        return frozenset(filter(self._holders.__contains__, partitions))

    def add(self, member: ConsumerMember) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member
        self.resize(member)
        self._hold(member)

    def add_restored(self, member: ConsumerMember) -> None:
        """Restore a member from its record; called in the order of the records.

        After a failed write the log may assign one partition to two members: the later record
        builds on a release that was not written. Its member never got the partition, which still
        belongs to the other. Of two members with one instance id the later counts.
        """
        rival = self._static.get(member.instance_id or "")
        if rival is not None:
            self.remove(rival)
        taken = self.held(member.holds)
        if taken:
            now = member.position
            revoking = now.revoking - taken
            state = MemberState.UNREVOKED if revoking else MemberState.UNRELEASED
            member.position = Position(now.epoch, state, now.assigned - taken, revoking)
        self.add(member)

    def resize(self, member: ConsumerMember) -> None:
        """Call when the member's own data has changed."""
        size = member.byte_count
        self.byte_count += size - self._sizes.get(member.member_id, 0)
        self._sizes[member.member_id] = size

    def remove(self, member: ConsumerMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self.byte_count -= self._sizes.pop(member.member_id)
        self._release(member)

    def move(self, member: ConsumerMember, position: Position) -> None:
        """Move the member to `position`, which must not conflict with any other member."""
        self._release(member)
        if position.epoch != member.epoch:
            member.previous_epoch = member.epoch
        member.position = position
        self._hold(member)

    def _hold(self, member: ConsumerMember) -> None:
        for partition in member.holds:
            assert partition not in self._holders, f"{partition} is owned already"
            self._holders[partition] = member.member_id

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.holds:
            del self._holders[partition]

    # ---- the members of Kafka's first protocol among them

    @property
    def is_all_classic(self) -> bool:
        return all(member.classic is not None for member in self)

    def supports(self, names: set[str], instead_of: ConsumerMember | None) -> bool:
        """Whether all members of the first protocol have one in common with these."""
        support: Counter[str] = Counter()
        count = 0
        for member in self:
            if member.classic is not None and member is not instead_of:
                count += 1
                support.update({name for name, _ in member.classic.protocols})
        return any(support[name] == count for name in names)
