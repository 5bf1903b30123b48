"""How a group gets from one generation to the next: its states, its phases and their ends.

Theory of operation
===================

    Empty ---somebody joins--------------> PreparingRebalance
    PreparingRebalance ---all joined-----> CompletingRebalance   new generation, joins are answered
    PreparingRebalance ---all left-------> Empty                 new generation without members
    CompletingRebalance ---assignment is durable---> Stable      syncs are answered
    CompletingRebalance, Stable ---somebody comes, goes or changes---> PreparingRebalance
    any ---removed or moved away---> Dead

Waiting requests are `Parked` on their member. A member's session stands still while it is parked,
since a client cannot send heartbeats for a join it has no answer to; it starts anew with the
answer.

How long the phases last. The first rebalance of an empty group waits for
`group.initial.rebalance.delay.ms`, and again as long as new members keep coming, up to the
rebalance time-out. Any other waits until every member has joined again, and every client that was
promised a member id has used it; at the latest until the rebalance time-out, which drops the
dynamic members that did not come. Static members stay until their session ends (KIP-345). After its
join is answered a member has the rebalance time-out to sync, and a few seconds at least: with a
time-out of 0, which KafkaJS sends when its caller names none, the answer would come too late.

An assignment is handed out, and changes the group, only after the record that holds it is durable:
what a member was told survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from dragoman import limits
from dragoman.broker.errors import RebalanceInProgress, UnknownMember
from dragoman.broker.groups.messages import Joined, JoinedMember, State, Synced
from dragoman.broker.groups.parked import Outbox, Parked
from dragoman.broker.groups.ports import GroupPorts
from dragoman.broker.groups.promises import Promises
from dragoman.broker.groups.records import GroupKey, GroupValue, StoredMember, record
from dragoman.broker.groups.roster import Member, Roster
from dragoman.broker.groups.timer import DeadlineTimer, PhaseTimer
from dragoman.errors import BrokerError, DragomanError
from dragoman.types import GroupId, MemberId

KIND = "classic"

_TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class Rebalance:
    """One group's passage through its generations.

    Methods change the group and decide answers; whoever calls in from outside ends with
    `outbox.send()`.
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

    # ---- members come

    def member(self, stored: StoredMember, *, is_new: bool) -> Member:
        ended = partial(self._session_ended, stored.member_id)
        session = DeadlineTimer(self.ports.scheduler, ended)
        return Member(stored, is_new=is_new, session=session)

    def add(self, member: Member, parked: Parked[Joined]) -> None:
        self.roster.add(member)
        self._joined_during_delay = True
        self.await_generation(member, parked)

    def await_generation(self, member: Member, parked: Parked[Joined]) -> None:
        """The member takes part in a rebalance: the one that is going on, else a new one."""
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

    # ---- members go

    def drop(self, member: Member, error: DragomanError) -> None:
        """The caller says what follows, by `after_departure`."""
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
        """Somebody who was expected will not come: one less to wait for."""
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
            # It owns nothing, and its client may not even know its member id. Those who wait for
            # others still do: it was not one of these.
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
            # Only static members are left and all are away. Either their sessions end, or somebody
            # joins and need not wait for that.
            self._phase.begin(self.roster.rebalance_timeout, self._join_phase_over)

    def _become_empty(self) -> None:
        self.generation += 1
        self.protocol = ""
        self._enter(State.EMPTY)
        # If this record is lost, a restart finds members that nobody is, and their sessions end.
        self.store((), None, _ignore)

    def _start_generation(self) -> None:
        self.generation += 1
        self.protocol = self.roster.choose_protocol()
        self._enter(State.COMPLETING_REBALANCE)
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
        # Somebody may have come or gone while the record was written; then it is history.
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
        """Become what the record tells, with sessions that stand still."""
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
    """For records whose loss does no harm."""
