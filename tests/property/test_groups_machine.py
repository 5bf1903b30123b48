"""Goal: no interleaving of joins, syncs, leaves, lost connections, time-outs, slow or failed
records and restarts breaks a group. Method: a hypothesis state machine drives one group through the
public API with virtual time and a log that answers on command, and checks the promises after every
step.

The promises: every request is answered once, or not at all after its connection was lost; a
generation has one leader; generations only grow; a member is either parked or under a running
session; what a commit did is what the durable records say, and a refused commit did nothing; the
table is what a replay of the records gives; a group with members takes nothing from another
protocol.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    ForeignGroup,
    MemberIdRequired,
    RebalanceInProgress,
)
from dragoman.broker.groups import (
    Groups,
    GroupSettings,
    Joined,
    JoinRequest,
    LeavingMember,
    Parked,
    State,
    StateRecord,
    Synced,
    SyncRequest,
)
from dragoman.broker.groups.classic import ClassicGroup
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, Offsets
from dragoman.errors import BrokerError, DragomanError

GROUP = "g"
TOPIC = "t"
PRODUCER = 7
SESSION_MS = 10_000
REBALANCE_MS = 30_000
CLIENTS = st.integers(0, 4)


class VirtualTime:
    """The ports `Scheduler` and `Clock` in one; time moves when a test moves it."""

    class Entry:
        def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
            self.callback: Callable[..., object] | None = callback
            self.args = args

        def cancel(self) -> None:
            self.callback = None

    def __init__(self) -> None:
        self.now = 1000.0
        self._heap: list[tuple[float, int, VirtualTime.Entry]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)

    def call_soon(self, callback: Callable[..., object], *args: object) -> VirtualTime.Entry:
        return self.call_later(0, callback, *args)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> VirtualTime.Entry:
        entry = self.Entry(callback, args)
        heapq.heappush(self._heap, (self.now + delay, next(self._order), entry))
        return entry

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, entry = heapq.heappop(self._heap)
            if entry.callback is not None:
                entry.callback(*entry.args)
        self.now = end


class Request:
    """One call, and all that came back for it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: list[object] = []
        self.parked: Parked[Joined] | Parked[Synced] | None = None
        self.is_abandoned = False


class Client:
    def __init__(self, index: int, instance_id: str | None) -> None:
        self.index = index
        self.instance_id = instance_id
        #: Sends the next request from inside the reply to the last one.
        self.is_eager = index % 2 == 0
        #: Sends heartbeats instead of the sync it owes.
        self.is_lazy = False
        self.member_id = ""
        self.generation = -1
        self.has_synced = False
        self.protocols = ("x", "y")
        self.is_leader = False
        self.members: tuple[str, ...] = ()
        self.metadata = b"m"


class GroupMachine(RuleBasedStateMachine):
    @initialize(is_slow=st.booleans(), delay_ms=st.sampled_from([0, 3000]), size=st.integers(2, 9))
    def start(self, is_slow: bool, delay_ms: int, size: int) -> None:
        self.time = VirtualTime()
        self.random = random.Random(5)
        self.is_slow = is_slow
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=delay_ms, group_max_size=size
        )
        self.log: list[StateRecord] = []
        self.appends: deque[
            tuple[Sequence[StateRecord], Callable[[DragomanError | None], None]]
        ] = deque()
        self.requests: list[Request] = []
        self.clients = [Client(i, f"i{i}" if i > 2 else None) for i in range(5)]
        self.leaders: dict[int, set[str]] = {}
        self.last_generation = 0
        self.commits = 0
        self.groups = self.new_groups()

    def new_groups(self) -> Groups:
        groups = Groups(
            scheduler=self.time,
            clock=self.time,
            random=self.random,
            persist=lambda _group, records, done: self.append(records, done),
            settings=self.settings,
        )
        self.offsets = Offsets(groups)
        return groups

    def append(
        self, records: Sequence[StateRecord], done: Callable[[DragomanError | None], None]
    ) -> None:
        self.appends.append((records, done))
        if not self.is_slow:
            self.finish_append(fails=False)

    def finish_append(self, fails: bool) -> None:
        records, done = self.appends.popleft()
        if fails:
            done(CoordinatorNotAvailable("the log refuses"))
        else:
            self.log.extend(records)
            done(None)

    def membership(self) -> ClassicGroup | None:
        group = self.groups.get(GROUP)
        return None if group is None else group.membership

    # ---- what clients do

    @rule(index=CLIENTS, eager=st.booleans(), lazy=st.sampled_from([False, False, True]))
    def set_temper(self, index: int, eager: bool, lazy: bool) -> None:
        self.clients[index].is_eager = eager and not lazy
        self.clients[index].is_lazy = lazy

    @rule(indexes=st.lists(CLIENTS, min_size=1, max_size=5, unique=True))
    def behave(self, indexes: list[int]) -> None:
        """What a good client does next."""
        for client in map(self.clients.__getitem__, indexes):
            is_waiting = any(
                request.client is client and request.parked and request.parked.is_waiting
                for request in self.requests
            )
            if is_waiting:
                continue
            if client.generation < 0:
                self.send_join(client)
            elif not client.has_synced and not client.is_lazy:
                self.send_sync(client, client.generation)
            else:
                self.send_heartbeat(client)

    @rule(
        wait=st.sampled_from([0.0, 3.0, 9.0]),
        fails=st.sampled_from([False, False, False, True]),
    )
    def everybody_behaves(self, wait: float, fails: bool) -> None:
        for _ in range(4):
            self.behave([client.index for client in self.clients])
            if self.appends:
                self.finish_append(fails)
            self.time.advance(wait)

    @rule(
        index=CLIENTS,
        knows_id=st.booleans(),
        changes=st.booleans(),
        protocols=st.sampled_from([("x",), ("x", "y"), ("y", "x"), ("y",)]),
    )
    def join(self, index: int, knows_id: bool, changes: bool, protocols: tuple[str, ...]) -> None:
        client = self.clients[index]
        client.protocols = protocols
        if changes:
            client.metadata += b"+"
        if not knows_id:
            client.member_id = ""
        self.send_join(client)

    @rule(index=st.integers(3, 4), twice=st.booleans())
    def restart_static_client(self, index: int, twice: bool) -> None:
        for _ in range(1 + twice):
            self.clients[index].member_id = ""
            self.send_join(self.clients[index])

    def send_join(self, client: Client) -> None:
        request = Request(client)
        self.requests.append(request)

        def reply(result: Joined | DragomanError) -> None:
            request.answers.append(result)
            if isinstance(result, Joined):
                self.note_joined(client, result)
                if client.is_eager:
                    self.send_sync(client, client.generation)
            elif isinstance(result, MemberIdRequired):
                client.member_id = result.member_id
                if client.is_eager:
                    self.send_join(client)
            else:
                self.note_error(client, result)

        request.parked = self.groups.join(
            JoinRequest(
                group_id=GROUP,
                member_id=client.member_id,
                instance_id=client.instance_id,
                client_id=f"c{client.index}",
                protocol_type="consumer",
                protocols=tuple((name, client.metadata) for name in client.protocols),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                requires_known_member_id=client.index == 1,
                supports_skip_assignment=client.index == 3,
            ),
            reply,
        )

    def note_error(self, client: Client, error: object) -> None:
        client.generation = -1
        if not isinstance(error, RebalanceInProgress):
            client.member_id = ""

    def note_joined(self, client: Client, joined: Joined) -> None:
        client.member_id = joined.member_id
        client.generation = joined.generation
        client.has_synced = False
        client.members = tuple(member.member_id for member in joined.members)
        client.is_leader = joined.leader == joined.member_id
        assert client.is_leader == bool(joined.members)
        if joined.members and not joined.skip_assignment:
            assert joined.member_id in client.members
            self.leaders.setdefault(joined.generation, set()).add(joined.member_id)

    @rule(index=CLIENTS, stale=st.booleans())
    def sync(self, index: int, stale: bool) -> None:
        client = self.clients[index]
        self.send_sync(client, client.generation - 1 if stale else client.generation)

    def send_sync(self, client: Client, generation: int) -> None:
        request = Request(client)
        self.requests.append(request)

        def reply(result: Synced | DragomanError) -> None:
            request.answers.append(result)
            if isinstance(result, Synced):
                client.has_synced = True
            else:
                self.note_error(client, result)

        request.parked = self.groups.sync(
            SyncRequest(
                group_id=GROUP,
                member_id=client.member_id,
                instance_id=client.instance_id,
                generation=generation,
                assignments=tuple(
                    (name, f"{name}@{generation}".encode()) for name in client.members
                ),
            ),
            reply,
        )

    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        self.send_heartbeat(self.clients[index])

    def send_heartbeat(self, client: Client) -> None:
        try:
            self.groups.heartbeat(GROUP, client.member_id, client.generation, client.instance_id)
        except BrokerError as error:
            self.note_error(client, error)
            return
        membership = self.membership()
        assert membership is not None
        assert membership.state in (State.STABLE, State.COMPLETING_REBALANCE)
        assert membership.generation == client.generation

    @rule(indexes=st.lists(CLIENTS, max_size=3), by_instance=st.booleans())
    def leave(self, indexes: list[int], by_instance: bool) -> None:
        leaving = []
        for client in map(self.clients.__getitem__, indexes):
            member_id = "" if by_instance and client.instance_id else client.member_id
            leaving.append(LeavingMember(member_id=member_id, instance_id=client.instance_id))
        results = self.groups.leave(GROUP, leaving)
        assert len(results) == len(leaving)
        left = {name.member_id for name, error in zip(leaving, results, strict=True) if not error}
        membership = self.membership()
        if membership is not None:
            assert not left & {member.member_id for member in membership.describe().members}

    @rule(choice=st.integers(0, 100))
    def lose_connection(self, choice: int) -> None:
        waiting = [each for each in self.requests if each.parked and not each.answers]
        if waiting:
            request = waiting[choice % len(waiting)]
            assert request.parked is not None
            request.is_abandoned = True
            request.parked.abandon()
            request.parked.abandon()

    # ---- offsets

    @rule(
        index=CLIENTS,
        stale=st.booleans(),
        simple=st.booleans(),
        transactional=st.booleans(),
        offset=st.integers(0, 50),
    )
    def commit(
        self, index: int, stale: bool, simple: bool, transactional: bool, offset: int
    ) -> None:
        client = self.clients[index]
        request = CommitRequest(
            group_id=GROUP,
            member_id="" if simple else client.member_id,
            generation=-1 if simple else client.generation - stale,
            instance_id=None if simple else client.instance_id,
            producer_id=PRODUCER if transactional else None,
            offsets=(OffsetCommit(topic=TOPIC, partition=index, offset=offset),),
        )
        may_commit = self.may_commit(request)
        try:
            prepared = self.offsets.prepare_commit(request)
        except BrokerError:
            assert not may_commit
            return
        assert may_commit
        self.append(prepared.records, lambda error: self.applied(prepared.records, error))

    def may_commit(self, request: CommitRequest) -> bool:
        """The rule, derived once more from the public description."""
        membership = self.membership()
        if membership is None:
            return request.generation < 0
        group = membership.describe()
        if not group.members and request.generation < 0:
            return True
        is_named = request.generation >= 0 or bool(request.member_id) or request.instance_id
        if not is_named:
            return request.producer_id is not None
        is_member = (request.member_id, request.instance_id) in {
            (member.member_id, member.instance_id if request.instance_id else None)
            for member in group.members
        }
        is_between = group.state is State.COMPLETING_REBALANCE and request.producer_id is None
        return is_member and request.generation == group.generation and not is_between

    def applied(self, records: Sequence[StateRecord], error: DragomanError | None) -> None:
        if error is None:
            self.groups.apply(records)

    @rule(is_commit=st.booleans())
    def end_transaction(self, is_commit: bool) -> None:
        # A coordinator ends a transaction after its offsets were acknowledged.
        self.finish_all_appends()
        records = self.offsets.prepare_transaction_end(GROUP, PRODUCER, is_commit=is_commit)
        self.append(records, lambda error: self.applied(records, error))
        self.finish_all_appends()
        assert not any(self.offsets.has_unstable(GROUP, TOPIC, index) for index in range(5))

    @rule()
    def foreign_commit_is_refused_while_members_live(self) -> None:
        request = CommitRequest(group_id=GROUP, owner="cursus", offsets=())
        membership = self.membership()
        if membership is not None and membership.has_members:
            with pytest.raises(ForeignGroup):
                self.offsets.prepare_commit(request)
        else:
            self.offsets.prepare_commit(request)

    @precondition(lambda self: self.groups.get(GROUP) and self.groups.get(GROUP).owner is None)
    @rule()
    def delete_group(self) -> None:
        membership = self.membership()
        try:
            records = self.groups.prepare_delete(GROUP)
        except BrokerError:
            assert membership is not None
            assert membership.has_members
            return
        self.append(records, lambda error: self.applied(records, error))
        if self.membership() is None:
            self.last_generation = 0
            self.leaders.clear()

    # ---- the world

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 5.0, 9.0, 11.0, 31.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.time.advance(seconds)

    @precondition(lambda self: self.appends)
    @rule(fails=st.booleans())
    def append_ends(self, fails: bool) -> None:
        self.finish_append(fails)

    def finish_all_appends(self) -> None:
        while self.appends:
            self.finish_append(fails=False)

    @rule()
    def restart(self) -> None:
        """The node dies: connections are lost, and what was not durable never happened."""
        self.appends.clear()
        self.time = VirtualTime()
        for request in self.requests:
            if not request.answers:
                request.is_abandoned = True
        self.groups = self.replay()
        self.groups.resume()
        membership = self.membership()
        # A generation whose assignment was never stored is forgotten, and its number used again.
        self.last_generation = 0 if membership is None else membership.generation
        self.leaders = {
            generation: names
            for generation, names in self.leaders.items()
            if generation <= self.last_generation
        }

    def replay(self) -> Groups:
        groups = self.new_groups()
        for each in self.log:
            groups.load(each.key, each.value)
        return groups

    # ---- the promises

    @invariant()
    def every_request_is_answered_at_most_once(self) -> None:
        for request in self.requests:
            assert len(request.answers) <= 1
            if request.is_abandoned:
                assert not request.answers
            elif request.parked is None:
                assert request.answers
            else:
                assert request.parked.is_waiting != bool(request.answers)

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        assert all(len(names) == 1 for names in self.leaders.values())

    @invariant()
    def generations_grow(self) -> None:
        membership = self.membership()
        if membership is None:
            self.last_generation = 0
            self.leaders.clear()
        else:
            assert membership.generation >= self.last_generation
            self.last_generation = membership.generation

    @invariant()
    def members_are_parked_or_in_session(self) -> None:
        membership = self.membership()
        if membership is None:
            return
        roster, state = membership._roster, membership.state
        for member in roster:
            assert member.is_parked or member.session.is_armed
            assert member.join is None or state is State.PREPARING_REBALANCE
            assert member.sync is None or state is State.COMPLETING_REBALANCE
        assert roster.awaiting_join == sum(member.join is not None for member in roster)
        if state in (State.STABLE, State.COMPLETING_REBALANCE):
            assert roster.leader in {member.member_id for member in roster}
        if state is State.EMPTY:
            assert not roster

    @invariant()
    def state_is_a_replay_of_the_records(self) -> None:
        if self.appends:
            return
        offsets = self.offsets
        group = self.groups.get(GROUP)
        again = self.replay().get(GROUP)
        self.offsets = offsets
        committed = {} if group is None else dict(group.ledger.committed)
        staged = {} if group is None else dict(group.ledger.staged(PRODUCER))
        assert committed == ({} if again is None else dict(again.ledger.committed))
        assert staged == ({} if again is None else dict(again.ledger.staged(PRODUCER)))
        if group and group.membership and group.membership.state is State.STABLE:
            assert again is not None
            assert again.membership is not None
            stored, current = again.membership.describe(), group.membership.describe()
            assert set(stored.members) == set(current.members)
            assert (stored.leader, stored.generation) == (current.leader, current.generation)

    def teardown(self) -> None:
        """Left alone, a group answers everybody and dies out."""
        if not hasattr(self, "groups"):
            return
        for client in self.clients:
            client.is_eager = False
        for _ in range(6):
            self.finish_all_appends()
            self.time.advance(2 * REBALANCE_MS / 1000 + 2 * SESSION_MS / 1000)
        self.finish_all_appends()
        for request in self.requests:
            assert len(request.answers) == (0 if request.is_abandoned else 1)
        membership = self.membership()
        assert membership is None or membership.is_idle
        self.state_is_a_replay_of_the_records()


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
