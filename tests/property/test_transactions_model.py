"""The transaction coordinator under arbitrary interleavings, failures and crashes.

Goal, at every step of every run:
- a decided transaction is never decided otherwise, and is driven to its end, also after a crash
- markers go to exactly what was enrolled
- the epochs of a producer id never go back; producer ids are never used twice
- a producer that was replaced never succeeds; success of `end` means it was decided so
- what the coordinator shows is what is durable
- every request is answered exactly once
Method: clients send right, stale and invented requests; ports answer at once, later, or not;
records are refused, markers fail, and a crash keeps any prefix of the records in flight. The judge
is the durable log itself: it is checked record by record against a table of allowed steps. Epochs
run out after three, so that producer ids change often. Two drivers: hypothesis, which finds short
counter-examples, and long weighted walks from fixed seeds, which get deep into a life.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dragoman.broker.errors import NotTransactionCoordinator, TransactionError
from dragoman.broker.transactions import (
    Markers,
    ProducerIdentity,
    ProducerIds,
    StateRecord,
    Transaction,
    TransactionCoordinator,
    TransactionState,
)
from dragoman.broker.transactions import state as state_module
from dragoman.broker.transactions.records import decode_value
from dragoman.errors import DiskFullError
from dragoman.outcome import Acknowledge, Callback, Outcome, start
from dragoman.types import Partition, TopicName

State = TransactionState

EPOCH_MAX = 3
NAMES = ("x", "y")
REFUSED = DiskFullError("no space")

ALLOWED: dict[TransactionState | None, set[TransactionState | None]] = {
    None: {State.EMPTY},
    State.EMPTY: {State.EMPTY, State.ONGOING, State.COMPLETE_ABORT, None},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {
        State.COMPLETE_COMMIT,
        State.EMPTY,
        State.ONGOING,
        State.COMPLETE_ABORT,
        None,
    },
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.COMPLETE_ABORT, None},
}
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)

names = st.sampled_from(NAMES)
partitions = st.builds(
    lambda topic, number: (TopicName(topic), Partition(number)),
    st.sampled_from("ab"),
    st.integers(0, 1),
)
#: How a request's identity is chosen: the present one mostly, else an older or an invented one.
choices = st.sampled_from(["present"] * 5 + ["older", "oldest", "invented"])


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def wall_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class DurableLog:
    """The internal topic, and the judge of everything written to it."""

    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self.last: dict[str, Transaction] = {}
        #: Which transactional id, or none, a producer id was given to; it never changes.
        self.owners: dict[int, str | None] = {}
        #: Highest epoch of each producer id.
        self.epochs: dict[int, int] = {}
        #: Decisions whose markers were all written.
        self.marked: set[tuple[str, int, int, bool]] = set()
        #: The last decision of each id, as its Prepare record.
        self.decisions: dict[str, Transaction] = {}

    def append(self, records: Sequence[StateRecord]) -> None:
        for record in records:
            name = record.transactional_id
            old = self.last.pop(name, None)
            new = None if record.value is None else decode_value(name, record.value)
            assert (new and new.state) in ALLOWED[old and old.state]
            if new is not None:
                self._judge(name, old, new)
                self.last[name] = new
            self.records.append(record)

    def _judge(self, name: str, old: Transaction | None, new: Transaction) -> None:
        for producer_id in (new.identity.producer_id, new.next_producer_id):
            if producer_id >= 0:
                assert self.owners.setdefault(producer_id, name) == name
        producer_id, epoch = new.identity.producer_id, new.identity.epoch
        assert epoch >= self.epochs.get(producer_id, 0)
        self.epochs[producer_id] = epoch
        assert epoch <= EPOCH_MAX + (new.state in PREPARED)
        if old is not None and old.identity.producer_id != producer_id:
            assert epoch == 0
            assert producer_id > old.identity.producer_id
        if new.state in PREPARED:
            self.decisions[name] = new
        elif old is not None and old.state in PREPARED:
            assert decision_key(old) in self.marked


def decision_key(decided: Transaction) -> tuple[str, int, int, bool]:
    identity = decided.identity
    commit = decided.state is State.PREPARE_COMMIT
    return decided.transactional_id, identity.producer_id, identity.epoch, commit


class CoordinatorUnderFire(RuleBasedStateMachine):
    # ---- the ports

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.log = DurableLog()
        self.reserved = 0
        self.at_once = True
        self.asked = 0
        self.answered: Counter[int] = Counter()
        #: Requests without an answer, each with what it would enrol where.
        self.open: dict[int, tuple[str, set[object]]] = {}
        #: Every identity ever handed out per id, oldest first, and those that were replaced.
        self.handed_out: dict[str, list[ProducerIdentity]] = {name: [] for name in NAMES}
        self.replaced: dict[str, set[ProducerIdentity]] = {name: set() for name in NAMES}
        #: What was confirmed as enrolled in the open transaction, and what may be: the coordinator
        #: went away before it answered.
        self.confirmed: dict[str, set[object]] = {name: set() for name in NAMES}
        self.unclear: dict[str, set[object]] = {name: set() for name in NAMES}
        self._boot()
        for name in NAMES:
            self.take_over(name, 5_000)

    def _boot(self) -> None:
        self.persists: list[tuple[Sequence[StateRecord], Acknowledge]] = []
        self.marker_calls: list[tuple[Markers, Acknowledge]] = []
        self.block_calls: list[Callback[range]] = []
        self.coordinator = TransactionCoordinator(
            self.clock,
            self._persist,
            self._write_markers,
            ProducerIds(self._allocate),
            timeout_max_ms=20_000,
            expiration_ms=100_000,
        )
        for record in self.log.records:
            self.coordinator.load(record.key, record.value)
        decided = sorted(name for name, each in self.log.last.items() if each.state in PREPARED)
        before = len(self.marker_calls)
        at_once, self.at_once = self.at_once, False
        assert self.coordinator.resume() == len(decided)
        self.at_once = at_once
        resumed = sorted(markers.transactional_id for markers, _ in self.marker_calls[before:])
        assert resumed == decided

    def _persist(self, records: Sequence[StateRecord]) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        self.persists.append((records, outcome.acknowledge))
        if self.at_once and len(self.persists) == 1:
            self._make_durable()
        return outcome

    def _make_durable(self) -> None:
        records, done = self.persists.pop(0)
        self._append(records)
        done(None)

    def _append(self, records: Sequence[StateRecord]) -> None:
        self.log.append(records)
        for record in records:
            last = self.log.last.get(record.transactional_id)
            if last is not None and last.state in PREPARED:
                self._check_members(record.transactional_id, {*last.partitions, *last.groups})

    def _check_members(self, name: str, members: set[object]) -> None:
        """A transaction takes all that was confirmed and nothing that was not requested."""
        possible = self.confirmed[name] | self.unclear[name]
        for where, asked in self.open.values():
            if where == name:
                possible |= asked
        assert self.confirmed[name] <= members <= possible
        self.confirmed[name], self.unclear[name] = set(), set()

    def _write_markers(self, markers: Markers) -> Outcome[None]:
        decided = self.log.last[markers.transactional_id]
        assert decided.state is (State.PREPARE_COMMIT if markers.commit else State.PREPARE_ABORT)
        assert (markers.producer_id, markers.epoch) == (
            decided.identity.producer_id,
            decided.identity.epoch,
        )
        assert markers.partitions == tuple(sorted(decided.partitions))
        assert markers.groups == tuple(sorted(decided.groups))
        in_flight = [each.transactional_id for each, _ in self.marker_calls]
        assert markers.transactional_id not in in_flight
        outcome: Outcome[None] = Outcome()
        self.marker_calls.append((markers, outcome.acknowledge))
        if self.at_once:
            self._mark(len(self.marker_calls) - 1)
        return outcome

    def _mark(self, index: int) -> None:
        markers, done = self.marker_calls.pop(index)
        key = (markers.transactional_id, markers.producer_id, markers.epoch, markers.commit)
        self.log.marked.add(key)
        done(None)

    def _allocate(self) -> Outcome[range]:
        outcome: Outcome[range] = Outcome()
        self.block_calls.append(outcome.settle)
        if self.at_once:
            self._grant()
        return outcome

    def _grant(self) -> None:
        done = self.block_calls.pop(0)
        first, self.reserved = self.reserved, self.reserved + 2
        done(range(first, first + 2))

    # ---- requests

    def _request(
        self, judge: Callable[[object], None], name: str = "", enrols: set[object] | None = None
    ) -> Callable[[object], None]:
        """A reply that counts itself, and hands successes to `judge`."""
        number = self.asked
        self.asked += 1
        self.open[number] = name, enrols or set()

        def reply(answer: object) -> None:
            self.answered[number] += 1
            assert self.answered[number] == 1
            where, asked = self.open.pop(number)
            if isinstance(answer, NotTransactionCoordinator) and asked:
                self.unclear[where] |= asked
            if isinstance(answer, TransactionError):
                return
            judge(answer)

        return reply

    def _choose(self, name: str, choice: str) -> ProducerIdentity:
        history = self.handed_out[name]
        if choice == "invented" or not history:
            return ProducerIdentity(1_000_000, 0)
        if choice == "older":
            return history[max(0, len(history) - 2)]
        if choice == "oldest":
            return history[0]
        last = self.log.last.get(name)
        return history[-1] if last is None else last.identity

    def _not_replaced(self, name: str, producer: ProducerIdentity) -> None:
        assert producer not in self.replaced[name]

    def _learn(self, name: str, identity: object) -> None:
        assert isinstance(identity, ProducerIdentity)
        assert 0 <= identity.epoch <= EPOCH_MAX
        if identity not in self.handed_out[name]:
            self.handed_out[name].append(identity)

    @rule()
    def init_without_id(self) -> None:
        def judge(identity: object) -> None:
            assert isinstance(identity, ProducerIdentity)
            assert identity.producer_id not in self.log.owners
            self.log.owners[identity.producer_id] = None

        start(self.coordinator.init_producer_id(None, 0, None)).then(self._request(judge))

    @rule(name=names, timeout_ms=st.sampled_from([5_000, 20_000]))
    def take_over(self, name: str, timeout_ms: int) -> None:
        before = set(self.handed_out[name])

        def judge(identity: object) -> None:
            assert identity not in before
            assert self.log.last[name].identity == identity
            self.replaced[name] |= set(self.handed_out[name])
            self._learn(name, identity)

        start(self.coordinator.init_producer_id(name, timeout_ms, None)).then(self._request(judge))

    @rule(name=names, choice=choices)
    def initialise_again(self, name: str, choice: str) -> None:
        producer = self._choose(name, choice)
        was_unknown = name not in self.log.last

        def judge(identity: object) -> None:
            assert self.log.last[name].identity == identity
            if not was_unknown:
                self._not_replaced(name, producer)
            self._learn(name, identity)

        start(self.coordinator.init_producer_id(name, 5_000, producer)).then(self._request(judge))

    @rule(
        name=names,
        choice=choices,
        members=st.sets(partitions, min_size=1, max_size=2),
        group=st.booleans(),
        implicit=st.booleans(),
    )
    def enrol(
        self,
        name: str,
        choice: str,
        members: set[tuple[TopicName, Partition]],
        group: bool,
        implicit: bool,
    ) -> None:
        producer = self._choose(name, choice)
        asked: set[object] = {"g"} if group else set(members)
        if implicit and group:
            asked |= members

        def judge(answer: object) -> None:
            assert answer is None
            self._not_replaced(name, producer)
            last = self.log.last[name]
            assert last.state is State.ONGOING
            assert last.identity == producer
            assert asked <= {*last.partitions, *last.groups}
            self.confirmed[name] |= asked

        reply = self._request(judge, name, asked)
        if implicit:
            groups = ["g"] if group else []
            start(self.coordinator.enrol_implicitly(name, producer, members, groups)).then(reply)
        elif group:
            start(self.coordinator.add_offsets(name, producer, "g")).then(reply)
        else:
            start(self.coordinator.add_partitions(name, producer, members)).then(reply)

    @rule(name=names, choice=choices, commit=st.booleans(), per_transaction=st.booleans())
    def end(self, name: str, choice: str, commit: bool, per_transaction: bool) -> None:
        producer = self._choose(name, choice)

        def judge(identity: object) -> None:
            self._not_replaced(name, producer)
            self._learn(name, identity)
            last = self.log.last[name]
            done_as = (
                (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
                if commit
                else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
            )
            assert last.state in done_as
            if commit:
                decided = self.log.decisions[name]
                assert decided.state is State.PREPARE_COMMIT
                bumped = producer.epoch + 1 if per_transaction else producer.epoch
                assert decided.identity == ProducerIdentity(producer.producer_id, bumped)
            if per_transaction:
                assert identity != producer

        reply = self._request(judge)
        start(self.coordinator.end(name, producer, commit, per_transaction)).then(reply)

    @rule(name=names, choice=choices, partition=partitions)
    def verify(self, name: str, choice: str, partition: tuple[TopicName, Partition]) -> None:
        producer = self._choose(name, choice)
        try:
            self.coordinator.verify_partition(name, producer, partition)
        except TransactionError:
            return
        last = self.log.last[name]
        assert (last.state, last.identity) == (State.ONGOING, producer)
        assert partition in last.partitions

    # ---- the ports act

    @rule(at_once=st.booleans())
    def answer_at_once(self, at_once: bool) -> None:
        self.at_once = at_once and not self.persists

    @precondition(lambda self: self.persists)
    @rule(count=st.integers(1, 3))
    def persist_some(self, count: int) -> None:
        for _ in range(min(count, len(self.persists))):
            if self.persists:
                self._make_durable()

    @precondition(lambda self: self.persists)
    @rule()
    def refuse_record(self) -> None:
        self.persists.pop(0)[1](REFUSED)

    @precondition(lambda self: self.marker_calls)
    @rule(which=st.integers(0, 1), succeed=st.sampled_from([True, True, False]))
    def finish_markers(self, which: int, succeed: bool) -> None:
        index = which % len(self.marker_calls)
        if succeed:
            self._mark(index)
        else:
            self.marker_calls.pop(index)[1](REFUSED)

    @rule()
    def let_all_finish(self) -> None:
        for _ in range(100):
            if self.persists:
                self._make_durable()
            elif self.marker_calls:
                self._mark(0)
            elif self.block_calls:
                self._grant()
            elif not self.coordinator.retry_failed():
                return
        raise AssertionError("the ports never come to rest")

    @precondition(lambda self: self.block_calls)
    @rule(succeed=st.sampled_from([True, True, False]))
    def finish_block(self, succeed: bool) -> None:
        if succeed:
            self._grant()
        else:
            self.block_calls.pop(0)(REFUSED)

    # ---- time and trouble

    @rule(seconds=st.sampled_from([1.0, 6.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.seconds += seconds

    @rule()
    def abort_timed_out(self) -> None:
        self.coordinator.abort_timed_out()

    @rule()
    def retry_failed(self) -> None:
        self.coordinator.retry_failed()

    @rule(wait=st.booleans())
    def expire(self, wait: bool) -> None:
        self.clock.seconds += 100 if wait else 0
        self.coordinator.expire_idle()

    @rule(survivors=st.integers(0, 2), reserves=st.booleans(), graceful=st.booleans())
    def restart(self, survivors: int, reserves: bool, graceful: bool) -> None:
        """A prefix of the records in flight survives; a block in flight may have been reserved."""
        for records, _ in self.persists[:survivors]:
            self._append(records)
        if reserves:
            self.reserved += 2 * len(self.block_calls)
        late = [done for _, done in self.persists], [done for _, done in self.marker_calls]
        if graceful:
            self.coordinator.close()
            # Those without a transactional id wait for the node's source of ids, not for us.
            for done in self.block_calls:
                done(REFUSED)
            assert not self.open
            for done in (*late[0], *late[1]):
                done(None)
        for name, asked in self.open.values():
            if asked:
                self.unclear[name] |= asked
        self.open.clear()
        self._boot()

    # ---- what must hold at every step

    @invariant()
    def shows_what_is_durable(self) -> None:
        if not hasattr(self, "log"):
            return
        listed = {each.transactional_id: each for each in self.coordinator.list_transactions()}
        assert listed.keys() == self.log.last.keys()
        for name, last in self.log.last.items():
            shown = self.coordinator.describe(name)
            assert (shown.state, shown.identity) == (last.state, last.identity)
            assert shown.partitions == tuple(sorted(last.partitions))
            assert shown.groups == tuple(sorted(last.groups))
            assert (shown.started_ms, shown.timeout_ms) == (last.started_ms, last.timeout_ms)

    def teardown(self) -> None:
        """Let everything finish: every request is answered and every decision carried out."""
        if not hasattr(self, "log"):
            return
        self.let_all_finish()
        assert not self.open
        stats = self.coordinator.stats()
        assert (stats.in_operation, stats.stalled) == (0, 0)
        assert all(each.state not in PREPARED for each in self.log.last.values())
        self.coordinator.close()
        start(self.coordinator.end("x", ProducerIdentity(0, 0), True, True)).then(_expect_closed)


def _expect_closed(answer: object) -> None:
    assert isinstance(answer, NotTransactionCoordinator)


#: Actions of the walk with their weights; a walk is mostly ordinary life.
ACTIONS: list[tuple[int, Callable[[CoordinatorUnderFire, random.Random], None]]] = [
    (20, lambda m, r: m.enrol(_name(r), _choice(r), _members(r), r.random() < 0.2, _coin(r))),
    (14, lambda m, r: m.end(_name(r), _choice(r), r.random() < 0.7, _coin(r))),
    (4, lambda m, r: m.take_over(_name(r), 5_000)),
    (4, lambda m, r: m.initialise_again(_name(r), _choice(r))),
    (1, lambda m, _: m.init_without_id()),
    (4, lambda m, r: m.verify(_name(r), _choice(r), r.choice(sorted(_members(r))))),
    (3, lambda m, r: m.answer_at_once(_coin(r))),
    (25, lambda m, r: m.persist_some(r.randint(1, 3))),
    (3, lambda m, _: m.refuse_record() if m.persists else None),
    (
        12,
        lambda m, r: (
            m.finish_markers(r.randint(0, 1), r.random() < 0.7) if m.marker_calls else None
        ),
    ),
    (3, lambda m, r: m.finish_block(r.random() < 0.7) if m.block_calls else None),
    (4, lambda m, _: m.let_all_finish()),
    (4, lambda m, r: m.time_passes(r.choice([1.0, 6.0, 30.0]))),
    (3, lambda m, _: m.abort_timed_out()),
    (3, lambda m, _: m.retry_failed()),
    (1, lambda m, r: m.expire(r.random() < 0.3)),
    (4, lambda m, r: m.restart(r.randint(0, 3), _coin(r), _coin(r))),
]


def _coin(source: random.Random) -> bool:
    return source.random() < 0.5


def _name(source: random.Random) -> str:
    return source.choice(NAMES)


def _choice(source: random.Random) -> str:
    return source.choices(["present", "older", "oldest", "invented"], [14, 3, 2, 1])[0]


def _members(source: random.Random) -> set[tuple[TopicName, Partition]]:
    return {
        (TopicName(source.choice("ab")), Partition(source.randint(0, 1)))
        for _ in range(source.randint(1, 2))
    }


def _walk(seed: int, steps: int) -> CoordinatorUnderFire:
    source = random.Random(seed)
    machine = CoordinatorUnderFire()
    machine.begin()
    weights = [weight for weight, _ in ACTIONS]
    for _, action in source.choices(ACTIONS, weights, k=steps):
        action(machine, source)
        machine.shows_what_is_durable()
    machine.teardown()
    return machine


@pytest.fixture(autouse=True)
def _few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "PRODUCER_EPOCH_MAX", EPOCH_MAX)


def test_coordinator_keeps_its_promises_under_any_interleaving() -> None:
    run_state_machine_as_test(
        CoordinatorUnderFire,
        settings=settings(
            max_examples=100,
            stateful_step_count=50,
            derandomize=True,
            deadline=None,
            database=None,
        ),
    )


@pytest.mark.parametrize("seed", range(40))
def test_coordinator_keeps_its_promises_through_a_long_life(seed: int) -> None:
    machine = _walk(seed, steps=1_000)
    # A walk that decides nothing would prove nothing.
    states = Counter(
        decode_value(each.transactional_id, each.value).state
        for each in machine.log.records
        if each.value is not None
    )
    assert states[State.PREPARE_COMMIT] > 10
    assert states[State.PREPARE_ABORT] > 10
