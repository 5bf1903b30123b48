"""The members of a group, and how it gets from one generation to the next: states and phases.

    Empty ---a member joins--------------> PreparingRebalance
    PreparingRebalance ---all joined-----> CompletingRebalance   new generation, joins are answered
    PreparingRebalance ---all left-------> Empty                 new generation without members
    CompletingRebalance ---assignment is durable---> Stable      syncs are answered
    CompletingRebalance, Stable ---a member comes, goes or changes---> PreparingRebalance
    any ---removed or moved away---> Dead

Waiting requests are `Parked` on their member. A member's session is stopped while it is parked,
since a client cannot send heartbeats before the answer to its join; it restarts with the answer.

How long the phases last. The first rebalance of an empty group waits for
`group.initial.rebalance.delay.ms`, and again as long as new members keep coming, up to the
rebalance time-out. Any other waits until every member has joined again, and every client that was
promised a member id has used it; at the latest until the rebalance time-out, which drops the
dynamic members that did not come. Static members stay until their session ends (KIP-345). After its
join is answered a member has the rebalance time-out to sync, and a few seconds at least: with a
time-out of 0, which KafkaJS sends when its caller names none, the answer would come too late.

An assignment is sent, and changes the group, only after its record is durable: assignments known to
members survive a restart.

The roster keeps the members in the order in which they joined, their instance ids, how many of them
know each protocol, and how many wait for the end of a join. It knows nothing of states or replies.
The cost of a request does not depend on the number of members.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from dragoman import limits
from dragoman.broker.errors import RebalanceInProgress, UnknownMember
from dragoman.broker.groups.messages import (
    Joined,
    JoinedMember,
    JoinRequest,
    Protocols,
    State,
    Synced,
    member_bytes,
    rebalance_timeout_ms,
    request_bytes,
)
from dragoman.broker.groups.ports import GroupPorts
from dragoman.broker.groups.records import GroupKey, GroupValue, StoredMember, record
from dragoman.broker.groups.waits import DeadlineTimer, Outbox, Parked, PhaseTimer, Promises
from dragoman.errors import BrokerError, DragomanError
from dragoman.types import GroupId, MemberId

log = logging.getLogger("dragoman.coordination")

# ---- members


class Member:
    __slots__ = (
        "assignment",
        "byte_count",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout",
        "sync",
    )

    def __init__(
        self,
        stored: StoredMember,
        *,
        is_new: bool,
        session: DeadlineTimer,
    ) -> None:
        self.member_id = stored.member_id
        self.instance_id = stored.instance_id
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.session_timeout = stored.session_timeout_ms / 1000
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.protocols = stored.protocols
        self.assignment = stored.assignment
        self.byte_count = member_bytes(stored.client_id, stored.client_host, stored.protocols)
        #: Whether the member has not been part of a generation yet.
        self.is_new = is_new
        self.session = session
        self.join: Parked[Joined] | None = None
        self.sync: Parked[Synced] | None = None

    @property
    def is_parked(self) -> bool:
        return self.join is not None or self.sync is not None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def touch(self) -> None:
        """The member is alive: restart its session, unless it is stopped while a join waits."""
        if self.join is None:
            self.session.arm(self.session_timeout)

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def stored(self, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=round(self.session_timeout * 1000),
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )


class Roster:
    __slots__ = ("_members", "_static", "_support", "awaiting_join", "byte_count", "get", "leader")

    def __init__(self) -> None:
        self._members: dict[MemberId, Member] = {}
        #: The dictionary's own method, which saves a call per heartbeat.
        self.get: Callable[[MemberId], Member | None] = self._members.get
        self._static: dict[str, Member] = {}
        self._support: Counter[str] = Counter()
        self.leader: MemberId | None = None
        #: Members whose join is parked.
        self.awaiting_join = 0
        self.byte_count = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._static.get(instance_id)

    def is_leader(self, member: Member) -> bool:
        return self.leader == member.member_id

    # ---- membership

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """The member must not be parked. The next leader is the longest-standing member."""
        assert not member.is_parked
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member, -1)
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """A new incarnation of a static member takes its place, and its lead."""
        assert old.instance_id == new.instance_id
        was_leader = self.is_leader(old)
        self.remove(old)
        self.add(new)
        if was_leader:
            self.leader = new.member_id

    def update(self, member: Member, request: JoinRequest) -> None:
        self._count(member, -1)
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.protocols = request.protocols
        member.session_timeout = request.session_timeout_ms / 1000
        member.rebalance_timeout_ms = rebalance_timeout_ms(request)
        member.byte_count = request_bytes(request)
        self._count(member, 1)

    def _count(self, member: Member, change: int) -> None:
        self.byte_count += change * member.byte_count
        for name in {name for name, _ in member.protocols}:
            self._support[name] += change
            if not self._support[name]:
                del self._support[name]

    # ---- waiting

    def park_join(self, member: Member, parked: Parked[Joined]) -> None:
        assert member.join is None
        member.join = parked
        self.awaiting_join += 1

    def take_join(self, member: Member) -> Parked[Joined] | None:
        parked = member.join
        if parked is not None:
            member.join = None
            self.awaiting_join -= 1
        return parked

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join == len(self._members)

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined; otherwise take the first joined member. False without
        any.
        """
        current = None if self.leader is None else self._members[self.leader]
        if current is None or current.join is None:
            current = next((member for member in self if member.join is not None), None)
            if current is None:
                return False
            self.leader = current.member_id
        return True

    # ---- agreement

    @property
    def rebalance_timeout(self) -> float:
        """Seconds; the longest time-out of any member."""
        return max((member.rebalance_timeout_ms for member in self), default=0) / 1000

    def supports(self, protocols: Protocols, instead_of: Member | None) -> bool:
        """Whether a common protocol would remain if a member with these joined."""
        if instead_of is None:
            return not self._members or any(
                self._support[name] == len(self._members) for name, _ in protocols
            )
        own = {name for name, _ in instead_of.protocols}
        others = len(self._members) - 1
        return any(self._support[name] - (name in own) == others for name, _ in protocols)

    def choose_protocol(self, instead_of: Member | None = None, by: Protocols = ()) -> str:
        """The vote: of the protocols all know, each member names its first; ties go by name.

        With `instead_of`, as if that member had the protocols `by`.
        """
        ballots = [by if member is instead_of else member.protocols for member in self]
        names = [[name for name, _ in ballot] for ballot in ballots]
        common = set(names[0]).intersection(*names[1:])
        assert common, "a join that leaves nothing in common is refused"
        if len(common) == 1:
            return next(iter(common))
        votes = Counter(next(name for name in ballot if name in common) for ballot in names)
        return min(votes, key=lambda name: (-votes[name], name))


# ---- generations


KIND = "classic"

_TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Rebalance:
    """The states of one group over its generations.

    Methods change the group and decide answers; external callers end with `outbox.send()`.
    """

    def __init__(self, group_id: GroupId, owner: str, ports: GroupPorts, generation: int) -> None:
        self.group_id = group_id
        self.owner = owner
        self.ports = ports
        self.generation = generation
        self.state = State.EMPTY
        self.since_ms = ports.clock.wall_ms()
        self.protocol_type = ""
        self.protocol = ""
        self.roster = Roster()
        self.promises = Promises(ports.scheduler, self._promise_lapsed)
        self.outbox = Outbox()
        #: Members of this generation that were answered a join and have not synced since.
        self._awaiting_sync: set[MemberId] = set()
        #: The generation whose assignment is on its way to the log.
        self._storing_generation: int | None = None
        self._is_first = False
        self._joined_during_delay = False
        self._phase = PhaseTimer(ports.scheduler)

    # ---- members join

    def member(self, stored: StoredMember, *, is_new: bool) -> Member:
        ended = partial(self._session_ended, stored.member_id)
        session = DeadlineTimer(self.ports.scheduler, ended)
        return Member(stored, is_new=is_new, session=session)

    def add(self, member: Member, parked: Parked[Joined]) -> None:
        self.roster.add(member)
        self._joined_during_delay = True
        self.await_generation(member, parked)

    def await_generation(self, member: Member, parked: Parked[Joined]) -> None:
        """The member takes part in a rebalance: the one in progress, or a new one."""
        if member.join is not None:
            self.answer_join(member, RebalanceInProgress("a later join took its place"))
        self.roster.park_join(member, parked)
        parked.when_abandoned(partial(self._join_abandoned, member, parked))
        if member.is_new:
            member.session.arm(limits.NEW_MEMBER_JOIN_TIMEOUT_MS / 1000)
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined()
        else:
            self._prepare()

    # ---- members leave

    def drop(self, member: Member, error: DragomanError) -> None:
        """The caller decides what follows, by `after_departure`."""
        self.release(member, error)
        member.session.stop()
        self._awaiting_sync.discard(member.member_id)
        self.roster.remove(member)

    def release(self, member: Member, error: DragomanError) -> None:
        if member.join is not None:
            self.answer_join(member, error)
        if member.sync is not None:
            self.answer_sync(member, error)

    def after_departure(self) -> None:
        if self.state is State.PREPARING_REBALANCE:
            self._complete_if_all_joined()
        elif self.state is not State.EMPTY:
            self._prepare()
        elif not self.promises:
            self.ports.became_idle(self.group_id)

    def after_promise(self) -> None:
        """A member that was awaited will not come: the rebalance waits for one fewer."""
        if self.state in (State.EMPTY, State.PREPARING_REBALANCE):
            self.after_departure()

    def stop(self, error: BrokerError) -> None:
        self._phase.end()
        self.promises.clear()
        for member in list(self.roster):
            self.drop(member, error)
        self._enter(State.DEAD)

    def _session_ended(self, member_id: MemberId) -> None:
        member = self.roster.get(member_id)
        assert member is not None, "a member that goes takes its timer along"
        if member.is_parked and not member.is_new:
            return
        self.drop(member, UnknownMember("session has ended"))
        self.after_departure()
        self.outbox.send()

    def _promise_lapsed(self) -> None:
        self.after_promise()
        self.outbox.send()

    def _join_abandoned(self, member: Member, parked: Parked[Joined]) -> None:
        assert member.join is parked, "only a request that waits can be abandoned"
        self.roster.take_join(member)
        if member.is_new and not member.is_static:
            # The member owns nothing, and its client may not even know its member id. The rebalance
            # did not wait for it.
            self.drop(member, UnknownMember("connection lost"))
        else:
            member.touch()

    # ---- joins

    def _prepare(self) -> None:
        self._phase.end()
        self._awaiting_sync.clear()
        for member in self.roster:
            if member.sync is not None:
                self.answer_sync(member, RebalanceInProgress("join again"))
        self._is_first = self.state is State.EMPTY
        self._enter(State.PREPARING_REBALANCE)
        if self._is_first:
            delay = self.ports.settings.group_initial_rebalance_delay_ms / 1000
            self._await_first_members(delay, max(self.roster.rebalance_timeout - delay, 0.0))
        elif self._is_complete():
            self._complete()
        else:
            self._phase.begin(self.roster.rebalance_timeout, self._join_phase_over)

    def _await_first_members(self, delay: float, remaining: float) -> None:
        self._joined_during_delay = False
        self._phase.begin(delay, partial(self._first_delay_over, delay, remaining))

    def _first_delay_over(self, delay: float, remaining: float) -> None:
        more = min(delay, remaining)
        if self._joined_during_delay and more > 0:
            self._await_first_members(more, max(remaining - delay, 0.0))
        else:
            self._join_phase_over()

    def _join_phase_over(self) -> None:
        self._complete()
        self.outbox.send()

    def _is_complete(self) -> bool:
        return self.roster.all_joined and not self.promises

    def _complete_if_all_joined(self) -> None:
        if not self._is_first and self._is_complete():
            self._complete()

    def _complete(self) -> None:
        self._phase.end()
        for member in list(self.roster):
            if member.join is None and not member.is_static:
                self.drop(member, UnknownMember("did not join in time"))
        if not self.roster:
            self._become_empty()
        elif self.roster.elect_joined_leader():
            self._start_generation()
        else:
            # All remaining members are static and absent. Either their sessions end, or another
            # member joins and need not wait for that.
            self._phase.begin(self.roster.rebalance_timeout, self._join_phase_over)

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = ""
        self._enter(State.EMPTY)
        # If this record is lost, a restart finds members without clients, whose sessions end.
        self.store((), None, _ignore)

    def _start_generation(self) -> None:
        self.generation += 1
        self.protocol = self.roster.choose_protocol()
        self._enter(State.COMPLETING_REBALANCE)
        if log.isEnabledFor(logging.DEBUG):
            fields = {
                "group": self.group_id,
                "generation": self.generation,
                "members": len(self.roster),
            }
            log.debug("group has a new generation", extra=fields)
        for member in self.roster:
            if member.join is not None:
                member.is_new = False
                self._awaiting_sync.add(member.member_id)
                self.answer_join(member, self.joined(member))
        self._begin_sync_phase()

    # ---- syncs

    def _begin_sync_phase(self) -> None:
        shortest = limits.GROUP_SYNC_TIMEOUT_MS_MIN / 1000
        self._phase.begin(max(self.roster.rebalance_timeout, shortest), self._sync_phase_over)

    def await_assignment(
        self, member: Member, parked: Parked[Synced], assignments: dict[MemberId, bytes]
    ) -> None:
        """`assignments` count if the member leads; its first sync of a generation decides."""
        if member.sync is not None:
            self.answer_sync(member, RebalanceInProgress("a later sync took its place"))
        member.sync = parked
        parked.when_abandoned(partial(self._sync_abandoned, member, parked))
        self.note_synced(member)
        if self.roster.is_leader(member) and self._storing_generation != self.generation:
            self._storing_generation = self.generation
            members = (each.stored(assignments.get(each.member_id, b"")) for each in self.roster)
            done = partial(self._assignment_stored, self.generation, assignments)
            self.store(members, self.roster.leader, done)

    def note_synced(self, member: Member) -> None:
        self._awaiting_sync.discard(member.member_id)
        if not self._awaiting_sync:
            self._phase.end()

    def _assignment_stored(
        self, generation: int, assignments: dict[MemberId, bytes], error: DragomanError | None
    ) -> None:
        if self._storing_generation == generation:
            self._storing_generation = None
        # If members came or went while the record was written, it is obsolete.
        if self.state is not State.COMPLETING_REBALANCE or self.generation != generation:
            return
        if error is None:
            self._enter(State.STABLE)
        for member in self.roster:
            if error is None:
                member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                self.answer_sync(member, error or self.synced(member))
        if error is not None:
            self._prepare()
        self.outbox.send()

    def _sync_phase_over(self) -> None:
        assert self._awaiting_sync, "the phase ends with the last sync"
        for member_id in sorted(self._awaiting_sync):
            member = self.roster.get(member_id)
            assert member is not None
            self.drop(member, UnknownMember("did not sync in time"))
        self.after_departure()
        self.outbox.send()

    def _sync_abandoned(self, member: Member, parked: Parked[Synced]) -> None:
        assert member.sync is parked, "only a request that waits can be abandoned"
        member.sync = None
        member.touch()
        self._awaiting_sync.add(member.member_id)
        if not self._phase.is_running:
            self._begin_sync_phase()

    # ---- answers

    def joined(self, member: Member) -> Joined:
        leader = self.roster.leader
        assert leader is not None
        members: tuple[JoinedMember, ...] = ()
        if self.roster.is_leader(member):
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol))
                for each in self.roster
            )
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader,
            members=members,
        )

    def synced(self, member: Member) -> Synced:
        return Synced(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def answer_join(self, member: Member, result: Joined | DragomanError) -> None:
        parked = self.roster.take_join(member)
        assert parked is not None
        self.outbox.add(parked, result)
        member.touch()

    def answer_sync(self, member: Member, result: Synced | DragomanError) -> None:
        parked, member.sync = member.sync, None
        assert parked is not None
        self.outbox.add(parked, result)
        member.touch()

    # ---- state

    def _enter(self, state: State) -> None:
        assert state in _TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state
        self.since_ms = self.ports.clock.wall_ms()

    def store(
        self,
        members: Iterable[StoredMember],
        leader: MemberId | None,
        done: Callable[[DragomanError | None], None],
    ) -> None:
        """Must be the last step of its caller: `done` may be called before this returns."""
        value = self.value(members, leader)
        self.ports.persist(self.group_id, (record(GroupKey(self.group_id), value),), done)

    def value(self, members: Iterable[StoredMember], leader: MemberId | None) -> GroupValue:
        return GroupValue(
            kind=KIND,
            owner=self.owner,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader,
            since_ms=self.ports.clock.wall_ms(),
            members=tuple(members),
        )

    def restore(self, value: GroupValue) -> None:
        """Restore the state of the record, with stopped sessions."""
        assert self.state is State.EMPTY
        self.since_ms = value.since_ms
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        for stored in value.members:
            self.roster.add(self.member(stored, is_new=False))
        if value.members:
            self.state = State.STABLE
            self.roster.leader = value.leader


def _ignore(_error: DragomanError | None) -> None:
    """For records that may be lost."""
