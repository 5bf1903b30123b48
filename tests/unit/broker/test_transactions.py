"""The transaction coordinator, behaviour by behaviour.

Goal: every row of the state table, every refusal and both protocol generations, by example.
Method: a `World` holds the ports. They answer at once, or are held back to look at the moment in
between, or refuse. Crashes and arbitrary interleavings are left to the property test.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

import pytest

from dragoman.broker.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionalId,
    InvalidTransactionState,
    NotTransactionCoordinator,
    ProducerFenced,
    ProducerIdsUnavailable,
    TooManyTransactionalIds,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionCoordinatorLoading,
    TransactionError,
    TransactionNotPersisted,
    TransactionTimeoutInvalid,
)
from dragoman.broker.transactions import (
    Markers,
    ProducerIdentity,
    ProducerIds,
    StateRecord,
    Transaction,
    TransactionCoordinator,
    TransactionState,
)
from dragoman.broker.transactions import (
    coordinator as coordinator_module,
)
from dragoman.broker.transactions import (
    operations as operations_module,
)
from dragoman.broker.transactions.records import decode_value, to_record
from dragoman.errors import DiskFullError, DragomanError
from dragoman.outcome import Acknowledge, Outcome, failed, start, succeeded
from dragoman.types import Partition, TopicName

State = TransactionState
LAST_EPOCH = 32_766


def tp(topic: str, number: int = 0) -> tuple[TopicName, Partition]:
    return TopicName(topic), Partition(number)


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class World:
    """A coordinator and its ports. `hold_*` keeps what was asked until `release` or `refuse`."""

    def __init__(self, log: Sequence[StateRecord] = (), first_id: int = 1000) -> None:
        self.clock = FakeClock()
        self.log: list[StateRecord] = list(log)
        self.markers: list[Markers] = []
        self.hold_persist = self.hold_markers = False
        self.persists: list[tuple[Sequence[StateRecord], Acknowledge]] = []
        self.marker_calls: list[Acknowledge] = []
        self.next_block = first_id
        self.block_error: DragomanError | None = None
        self.coordinator = TransactionCoordinator(
            self.clock, self._persist, self._write_markers, ProducerIds(self._allocate)
        )
        for record in self.log:
            self.coordinator.load(record.key, record.value)
        self.coordinator.resume()

    def _persist(self, records: Sequence[StateRecord]) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        self.persists.append((records, outcome.acknowledge))
        if not self.hold_persist:
            self.release_persist()
        return outcome

    def release_persist(self) -> None:
        records, done = self.persists.pop(0)
        self.log.extend(records)
        done(None)

    def refuse_persist(self) -> None:
        self.persists.pop(0)[1](DiskFullError("no space"))

    def _write_markers(self, markers: Markers) -> Outcome[None]:
        outcome: Outcome[None] = Outcome()
        self.markers.append(markers)
        self.marker_calls.append(outcome.acknowledge)
        if not self.hold_markers:
            self.marker_calls.pop(0)(None)
        return outcome

    def _allocate(self) -> Outcome[range]:
        if self.block_error is not None:
            return failed(self.block_error)
        first, self.next_block = self.next_block, self.next_block + 10
        return succeeded(range(first, first + 10))

    # ---- requests that are answered at once

    def init(
        self, current: ProducerIdentity | None = None, timeout_ms: int = 60_000, name: str = "t"
    ) -> object:
        return ask(self.coordinator.init_producer_id(name, timeout_ms, current))

    def add(self, producer: object, *partitions: tuple[TopicName, Partition]) -> object:
        return ask(self.coordinator.add_partitions("t", known(producer), partitions))

    def add_group(self, producer: object, group: str) -> object:
        return ask(self.coordinator.add_offsets("t", known(producer), group))

    def enrol(self, producer: object, *partitions: tuple[TopicName, Partition]) -> object:
        return ask(self.coordinator.enrol_implicitly("t", known(producer), partitions, ()))

    def end(self, producer: object, commit: bool, per_transaction: bool = False) -> object:
        return ask(self.coordinator.end("t", known(producer), commit, per_transaction))

    def state(self) -> TransactionState:
        return self.coordinator.describe("t").state

    def begun(self) -> ProducerIdentity:
        producer = known(self.init())
        assert self.add(producer, tp("a")) is None
        return producer

    def stored(self) -> list[TransactionState]:
        return [
            decode_value(record.transactional_id, record.value).state
            for record in self.log
            if record.value is not None
        ]


def known(producer: object) -> ProducerIdentity:
    assert isinstance(producer, ProducerIdentity), producer
    return producer


def ask(request: Coroutine[object, None, object]) -> object:
    answers: list[object] = []
    start(request).then(answers.append)
    assert len(answers) == 1
    return answers[0]


def refused(answer: object, kind: type[TransactionError]) -> bool:
    return type(answer) is kind


# ---- initialisation


def test_without_transactional_id_every_call_gets_a_fresh_producer_id() -> None:
    coordinator = World().coordinator
    first, second = (
        ask(coordinator.init_producer_id(None, 0, ProducerIdentity(7, 7))) for _ in "ab"
    )
    assert (first, second) == (ProducerIdentity(1000, 0), ProducerIdentity(1001, 0))


def test_new_transactional_id_begins_with_epoch_zero() -> None:
    world = World()
    assert world.init() == ProducerIdentity(1000, 0)
    assert world.state() is State.EMPTY


def test_unknown_transactional_id_ignores_the_identity_a_client_claims() -> None:
    assert World().init(current=ProducerIdentity(0, 0)) == ProducerIdentity(1000, 0)


def test_initialising_again_raises_the_epoch() -> None:
    world = World()
    world.init()
    assert world.init() == ProducerIdentity(1000, 1)
    assert world.init() == ProducerIdentity(1000, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_initialising_after_a_completed_transaction_raises_the_epoch(commit: bool) -> None:
    world = World()
    world.end(world.begun(), commit)
    assert world.init() == ProducerIdentity(1000, 1)
    assert world.state() is State.EMPTY


def test_initialisation_takes_effect_when_its_record_is_durable() -> None:
    world = World()
    first = world.init()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    assert answers == []
    assert refused(world.add(first, tp("a")), ConcurrentTransactions)
    assert world.coordinator.describe("t").identity == first
    world.release_persist()
    assert answers == [ProducerIdentity(1000, 1)]


def test_refused_record_leaves_everything_as_it_was() -> None:
    world = World()
    first = world.init()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    world.refuse_persist()
    assert refused(answers[0], TransactionNotPersisted)
    assert isinstance(answers[0].__cause__, DiskFullError)
    world.hold_persist = False
    assert world.add(first, tp("a")) is None


def test_refused_first_record_leaves_the_id_unknown() -> None:
    world = World()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    waiting: list[object] = []
    claimed = ProducerIdentity(1000, 0)
    start(world.coordinator.enrol_implicitly("t", claimed, [tp("a")], [])).then(waiting.append)
    world.refuse_persist()
    assert refused(answers[0], TransactionNotPersisted)
    assert refused(waiting[0], InvalidProducerIdMapping)
    with pytest.raises(TransactionalIdNotFound):
        world.coordinator.describe("t")
    world.hold_persist = False
    assert world.init() == ProducerIdentity(1001, 0)


def test_concurrent_init_producer_id_is_retriable() -> None:
    world = World()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    assert refused(world.init(), ConcurrentTransactions)
    with pytest.raises(ConcurrentTransactions):
        world.coordinator.verify_partition("t", ProducerIdentity(1000, 0), tp("a"))
    world.release_persist()
    assert answers == [ProducerIdentity(1000, 0)]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_outside_its_bounds_is_refused(timeout_ms: int) -> None:
    world = World()
    assert refused(world.init(timeout_ms=timeout_ms), TransactionTimeoutInvalid)
    assert world.log == []


@pytest.mark.parametrize("name", ["", "x" * 1025, "ü" * 513])
def test_transactional_id_without_a_proper_length_is_refused(name: str) -> None:
    assert refused(World().init(name=name), InvalidTransactionalId)


def test_too_many_transactional_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "TRANSACTIONAL_IDS_MAX", 1)
    world = World()
    world.init()
    assert refused(world.init(name="other"), TooManyTransactionalIds)
    assert world.init() == ProducerIdentity(1000, 1)


def test_no_producer_ids_means_no_initialisation() -> None:
    world = World()
    world.block_error = DiskFullError("no space")
    assert refused(world.init(), ProducerIdsUnavailable)
    answer = ask(world.coordinator.init_producer_id(None, 0, None))
    assert refused(answer, ProducerIdsUnavailable)
    world.block_error = None
    assert world.init() == ProducerIdentity(1000, 0)


# ---- initialisation by the producer itself (KIP-360)


def test_producer_with_the_present_identity_gets_the_next() -> None:
    world = World()
    assert world.init(current=known(world.init())) == ProducerIdentity(1000, 1)


def test_repeated_initialisation_answers_the_same_identity() -> None:
    world = World()
    first = known(world.init())
    second = world.init(current=first)
    size = len(world.log)
    assert world.init(current=first) == second
    assert len(world.log) == size
    assert world.init(current=first, timeout_ms=1) == second
    assert world.coordinator.describe("t").timeout_ms == 1


def test_identity_that_another_instance_replaced_is_fenced() -> None:
    world = World()
    first = known(world.init())
    world.init()
    assert refused(world.init(current=first), ProducerFenced)


def test_identity_of_another_producer_is_fenced() -> None:
    world = World()
    world.init()
    assert refused(world.init(current=ProducerIdentity(5, 0)), ProducerFenced)


def test_repeat_is_stale_once_the_new_identity_was_used() -> None:
    world = World()
    first = known(world.init())
    second = world.init(current=first)
    world.add(second, tp("a"))
    assert refused(world.init(current=first), ProducerFenced)
    assert world.state() is State.ONGOING
    world.end(second, True)
    assert refused(world.init(current=first), ProducerFenced)


def test_producer_that_initialises_with_its_transaction_open_comes_back() -> None:
    world = World()
    producer = world.begun()
    assert refused(world.init(current=producer), ConcurrentTransactions)
    assert world.state() is State.COMPLETE_ABORT
    assert world.init(current=producer) == ProducerIdentity(1000, 1)


# ---- taking over


def test_takeover_aborts_the_open_transaction_first() -> None:
    world = World()
    old = world.begun()
    world.hold_persist = world.hold_markers = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    assert world.coordinator.describe("t").pending is State.PREPARE_EPOCH_FENCE
    assert answers == []
    world.release_persist()
    assert refused(answers[0], ConcurrentTransactions)
    assert world.markers == [Markers("t", 1000, 1, False, (tp("a"),), ())]
    assert refused(world.init(), ConcurrentTransactions)
    world.hold_persist = False
    world.marker_calls.pop()(None)
    assert world.init() == ProducerIdentity(1000, 2)
    assert refused(world.end(old, True), ProducerFenced)
    assert refused(world.end(old, False, per_transaction=True), ProducerFenced)
    assert refused(world.add(old, tp("a")), ProducerFenced)


def test_replaced_producer_is_fenced_before_its_successor_has_its_identity() -> None:
    world = World()
    old = world.begun()
    world.init()
    assert world.state() is State.COMPLETE_ABORT
    assert refused(world.end(old, False, per_transaction=True), ProducerFenced)
    assert refused(world.init(current=old), ProducerFenced)


def test_refused_takeover_leaves_the_transaction_open() -> None:
    world = World()
    old = world.begun()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.init_producer_id("t", 60_000, None)).then(answers.append)
    world.refuse_persist()
    assert refused(answers[0], TransactionNotPersisted)
    world.hold_persist = False
    assert world.end(old, True) == old


# ---- enrolling


def test_first_partition_begins_the_transaction() -> None:
    world = World()
    producer = world.init()
    assert world.add(producer, tp("a"), tp("b", 3)) is None
    shown = world.coordinator.describe("t")
    assert shown.state is State.ONGOING
    assert shown.partitions == (tp("a"), tp("b", 3))
    assert shown.started_ms == world.clock.wall_ms()


def test_enrolling_nothing_begins_the_transaction_too() -> None:
    world = World()
    producer = world.init()
    assert world.add(producer) is None
    assert world.state() is State.ONGOING
    assert world.end(producer, True) == producer


def test_more_partitions_and_groups_join_and_the_start_stays() -> None:
    world = World()
    producer = world.begun()
    started = world.coordinator.describe("t").started_ms
    world.clock.seconds += 5
    assert world.add(producer, tp("b")) is None
    assert world.add_group(producer, "g") is None
    shown = world.coordinator.describe("t")
    assert (shown.partitions, shown.groups) == ((tp("a"), tp("b")), ("g",))
    assert shown.started_ms == started


def test_what_is_enrolled_already_costs_no_record() -> None:
    world = World()
    producer = world.begun()
    world.add_group(producer, "g")
    size = len(world.log)
    assert world.add(producer, tp("a")) is None
    assert world.add_group(producer, "g") is None
    assert world.enrol(producer, tp("a")) is None
    assert len(world.log) == size


@pytest.mark.parametrize(
    ("producer", "kind"),
    [
        (ProducerIdentity(999, 1), InvalidProducerIdMapping),
        (ProducerIdentity(1000, 0), ProducerFenced),
        (ProducerIdentity(1000, 2), InvalidProducerEpoch),
    ],
)
def test_other_identities_are_refused_everywhere(
    producer: ProducerIdentity, kind: type[TransactionError]
) -> None:
    world = World()
    world.init()
    world.add(world.init(), tp("a"))
    assert refused(world.add(producer, tp("a")), kind)
    assert refused(world.add_group(producer, "g"), kind)
    assert refused(world.enrol(producer, tp("a")), kind)
    assert refused(world.end(producer, True), kind)
    assert refused(world.end(producer, True, per_transaction=True), kind)
    with pytest.raises(kind):
        world.coordinator.verify_partition("t", producer, tp("a"))
    with pytest.raises(kind):
        world.coordinator.verify_group("t", producer, "g")


def test_unknown_transactional_id_is_refused_everywhere() -> None:
    world = World()
    producer = ProducerIdentity(1000, 0)
    kind = InvalidProducerIdMapping
    assert refused(world.add(producer, tp("a")), kind)
    assert refused(world.enrol(producer, tp("a")), kind)
    assert refused(world.end(producer, True), kind)
    with pytest.raises(kind):
        world.coordinator.verify_partition("t", producer, tp("a"))


def test_too_many_partitions_are_refused_and_the_transaction_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations_module, "TRANSACTION_MEMBERS_MAX", 3)
    world = World()
    producer = world.begun()
    assert world.add_group(producer, "g") is None
    assert refused(world.add(producer, tp("b"), tp("c")), TransactionAbortable)
    assert world.add(producer, tp("b")) is None
    assert world.end(producer, True) == producer


def test_names_too_long_for_one_record_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_module, "TRANSACTION_RECORD_BYTES_MAX", 200)
    world = World()
    producer = world.begun()
    assert refused(world.add(producer, tp("x" * 200)), TransactionAbortable)
    assert world.end(producer, False) == producer


# ---- verifying


def test_enrolled_partitions_and_groups_are_verified() -> None:
    world = World()
    producer = world.begun()
    world.add_group(producer, "g")
    world.coordinator.verify_partition("t", producer, tp("a"))
    world.coordinator.verify_group("t", producer, "g")
    with pytest.raises(TransactionAbortable, match="a-1"):
        world.coordinator.verify_partition("t", producer, tp("a", 1))
    with pytest.raises(TransactionAbortable, match="group h"):
        world.coordinator.verify_group("t", producer, "h")


def test_nothing_is_verified_outside_a_transaction() -> None:
    world = World()
    producer = world.begun()
    world.end(producer, True)
    with pytest.raises(TransactionAbortable):
        world.coordinator.verify_partition("t", producer, tp("a"))


def test_nothing_is_verified_once_the_end_is_asked_for() -> None:
    world = World()
    producer = world.begun()
    world.hold_persist = True
    start(world.coordinator.end("t", producer, True, False)).then(lambda _: None)
    with pytest.raises(ConcurrentTransactions):
        world.coordinator.verify_partition("t", producer, tp("a"))


def test_enrolment_under_way_does_not_hinder_what_is_enrolled() -> None:
    world = World()
    producer = world.begun()
    world.hold_persist = True
    start(world.coordinator.add_partitions("t", producer, [tp("b")])).then(lambda _: None)
    world.coordinator.verify_partition("t", producer, tp("a"))
    with pytest.raises(TransactionAbortable):
        world.coordinator.verify_partition("t", producer, tp("b"))


# ---- implicit enrolment


def test_implicit_enrolments_wait_and_share_one_record() -> None:
    world = World()
    producer = known(world.init())
    world.hold_persist = True
    answers: list[object] = []
    enrol = world.coordinator.enrol_implicitly
    start(enrol("t", producer, [tp("a")], [])).then(answers.append)
    start(enrol("t", producer, [tp("b")], [])).then(answers.append)
    start(enrol("t", producer, [], ["g"])).then(answers.append)
    start(enrol("t", producer, [tp("b")], [])).then(answers.append)
    start(enrol("t", ProducerIdentity(1000, 9), [tp("c")], [])).then(answers.append)
    assert len(world.persists) == 1
    world.release_persist()
    assert answers[0] is None
    assert refused(answers[1], InvalidProducerEpoch)
    assert len(world.persists) == 1
    world.release_persist()
    assert answers[2:] == [None, None, None]
    shown = world.coordinator.describe("t")
    assert (shown.partitions, shown.groups) == ((tp("a"), tp("b")), ("g",))


def test_implicit_enrolment_waits_for_the_transaction_before_it() -> None:
    world = World()
    producer = world.begun()
    world.hold_markers = True
    following = known(world.end(producer, True, per_transaction=True))
    answers: list[object] = []
    start(world.coordinator.enrol_implicitly("t", following, [tp("b")], [])).then(answers.append)
    assert answers == []
    world.marker_calls.pop()(None)
    assert answers == [None]
    assert world.coordinator.describe("t").partitions == (tp("b"),)


def test_failed_markers_send_the_waiting_away() -> None:
    world = World()
    world.hold_markers = True
    following = known(world.end(world.begun(), True, per_transaction=True))
    answers: list[object] = []
    start(world.coordinator.enrol_implicitly("t", following, [tp("b")], [])).then(answers.append)
    world.marker_calls.pop()(DiskFullError("no space"))
    assert refused(answers[0], ConcurrentTransactions)


def test_waiting_enrolments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "TRANSACTION_ENROLMENTS_WAITING_MAX", 1)
    world = World()
    producer = known(world.init())
    world.hold_persist = True
    answers: list[object] = []
    for number in range(3):
        start(world.coordinator.enrol_implicitly("t", producer, [tp("a", number)], [])).then(
            answers.append
        )
    assert [type(each) for each in answers] == [ConcurrentTransactions]


def test_explicit_enrolment_does_not_wait() -> None:
    world = World()
    producer = known(world.init())
    world.hold_persist = True
    start(world.coordinator.add_partitions("t", producer, [tp("a")])).then(lambda _: None)
    assert refused(world.add(producer, tp("b")), ConcurrentTransactions)
    assert refused(world.add_group(producer, "g"), ConcurrentTransactions)


# ---- ending, one epoch for all transactions


@pytest.mark.parametrize("commit", [True, False])
def test_end_decides_marks_and_completes(commit: bool) -> None:
    world = World()
    producer = world.begun()
    world.add(producer, tp("b", 2))
    world.add_group(producer, "g")
    assert world.end(producer, commit) == producer
    assert world.markers == [Markers("t", 1000, 0, commit, (tp("a"), tp("b", 2)), ("g",))]
    prepare, complete = (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        if commit
        else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    )
    assert world.stored()[-2:] == [prepare, complete]
    shown = world.coordinator.describe("t")
    assert (shown.state, shown.pending) == (complete, None)
    assert (shown.partitions, shown.groups) == ((), ())
    assert shown.started_ms == world.clock.wall_ms()
    assert world.coordinator.list_transactions(open_longer_than_ms=-1) == []


def test_reply_comes_with_the_durable_decision_before_any_marker() -> None:
    world = World()
    producer = world.begun()
    world.hold_persist = world.hold_markers = True
    answers: list[object] = []
    start(world.coordinator.end("t", producer, True, False)).then(answers.append)
    assert (answers, world.markers) == ([], [])
    world.release_persist()
    assert answers == [producer]
    assert world.state() is State.PREPARE_COMMIT
    assert world.coordinator.describe("t").pending is State.COMPLETE_COMMIT


def test_requests_are_retriable_until_the_transaction_is_complete() -> None:
    world = World()
    producer = world.begun()
    world.hold_markers = True
    world.end(producer, True)
    for answer in (
        world.init(),
        world.add(producer, tp("a")),
        world.add_group(producer, "g"),
        world.end(producer, True),
        world.end(producer, False),
    ):
        assert refused(answer, ConcurrentTransactions)
    world.marker_calls.pop()(None)
    assert world.add(producer, tp("a")) is None


@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_succeeds_and_the_opposite_does_not(commit: bool) -> None:
    world = World()
    producer = world.begun()
    world.end(producer, commit)
    assert world.end(producer, commit) == producer
    assert refused(world.end(producer, not commit), InvalidTransactionState)
    assert len(world.markers) == 1


def test_identity_given_out_by_an_end_has_ended_nothing_itself() -> None:
    world = World()
    following = world.end(world.begun(), True, per_transaction=True)
    assert refused(world.end(following, True), InvalidTransactionState)


@pytest.mark.parametrize("commit", [True, False])
def test_nothing_to_end(commit: bool) -> None:
    world = World()
    assert refused(world.end(world.init(), commit), InvalidTransactionState)


def test_refused_decision_can_be_taken_the_other_way() -> None:
    world = World()
    producer = world.begun()
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.end("t", producer, True, False)).then(answers.append)
    world.refuse_persist()
    assert refused(answers[0], TransactionNotPersisted)
    assert world.markers == []
    world.hold_persist = False
    assert world.end(producer, False) == producer
    assert not world.markers[0].commit


# ---- ending, one epoch per transaction (KIP-890)


@pytest.mark.parametrize("commit", [True, False])
def test_every_transaction_gets_its_own_epoch(commit: bool) -> None:
    world = World()
    producer = known(world.init())
    for epoch in range(1, 4):
        assert world.enrol(producer, tp("a")) is None
        producer = known(world.end(producer, commit, per_transaction=True))
        assert producer == ProducerIdentity(1000, epoch)
        assert (world.markers[-1].epoch, world.markers[-1].commit) == (epoch, commit)


@pytest.mark.parametrize("commit", [True, False])
def test_repeated_end_with_the_epoch_before_answers_the_present_one(commit: bool) -> None:
    world = World()
    producer = world.begun()
    following = world.end(producer, commit, per_transaction=True)
    assert world.end(producer, commit, per_transaction=True) == following
    answer = world.end(producer, not commit, per_transaction=True)
    assert refused(answer, InvalidTransactionState)
    assert refused(world.end(producer, commit), ProducerFenced)
    assert len(world.markers) == 1


def test_repeated_end_is_stale_once_the_next_transaction_is_open() -> None:
    world = World()
    producer = world.begun()
    following = world.end(producer, True, per_transaction=True)
    world.enrol(following, tp("a"))
    assert refused(world.end(producer, True, per_transaction=True), ProducerFenced)
    assert world.state() is State.ONGOING


def test_repeated_end_is_stale_after_an_initialisation() -> None:
    world = World()
    producer = known(world.init())
    world.init(current=producer)
    assert refused(world.end(producer, False, per_transaction=True), ProducerFenced)


def test_aborting_nothing_only_raises_the_epoch() -> None:
    world = World()
    producer = world.init()
    for epoch in range(1, 4):
        producer = world.end(producer, False, per_transaction=True)
        assert producer == ProducerIdentity(1000, epoch)
    assert world.markers == []
    assert world.state() is State.COMPLETE_ABORT
    assert refused(world.end(producer, True, per_transaction=True), InvalidTransactionState)


def test_committing_nothing_is_refused() -> None:
    world = World()
    following = world.end(world.begun(), True, per_transaction=True)
    answer = world.end(following, True, per_transaction=True)
    assert refused(answer, InvalidTransactionState)


# ---- epochs run out


def at_epoch(epoch: int, state: TransactionState = State.EMPTY) -> World:
    open_ = state is State.ONGOING
    stored = Transaction(
        transactional_id="t",
        state=state,
        identity=ProducerIdentity(7, epoch),
        timeout_ms=60_000,
        partitions=frozenset([tp("a")]) if open_ else frozenset(),
        started_ms=FakeClock().wall_ms() if open_ else -1,
        updated_ms=FakeClock().wall_ms(),
    )
    return World([to_record(stored)])


def test_initialisation_at_the_last_epoch_gives_a_new_producer_id() -> None:
    assert at_epoch(LAST_EPOCH - 1).init() == ProducerIdentity(7, LAST_EPOCH)
    world = at_epoch(LAST_EPOCH)
    assert world.init() == ProducerIdentity(1000, 0)
    assert refused(world.init(current=ProducerIdentity(7, LAST_EPOCH)), ProducerFenced)


def test_producer_that_runs_out_itself_may_repeat_its_request() -> None:
    world = at_epoch(LAST_EPOCH)
    last = ProducerIdentity(7, LAST_EPOCH)
    assert world.init(current=last) == ProducerIdentity(1000, 0)
    assert world.init(current=last) == ProducerIdentity(1000, 0)


def test_end_at_the_last_epoch_marks_with_one_more_and_changes_the_producer_id() -> None:
    world = at_epoch(LAST_EPOCH, State.ONGOING)
    last = ProducerIdentity(7, LAST_EPOCH)
    world.hold_markers = True
    assert world.end(last, True, per_transaction=True) == ProducerIdentity(1000, 0)
    assert (world.markers[0].producer_id, world.markers[0].epoch) == (7, LAST_EPOCH + 1)
    world.marker_calls.pop()(None)
    assert world.coordinator.describe("t").identity == ProducerIdentity(1000, 0)
    assert world.end(last, True, per_transaction=True) == ProducerIdentity(1000, 0)
    assert refused(world.end(last, True), InvalidProducerIdMapping)
    assert world.enrol(ProducerIdentity(1000, 0), tp("a")) is None


def test_aborting_nothing_at_the_last_epoch_changes_the_producer_id() -> None:
    world = at_epoch(LAST_EPOCH)
    last = ProducerIdentity(7, LAST_EPOCH)
    assert world.end(last, False, per_transaction=True) == ProducerIdentity(1000, 0)
    assert world.end(last, False, per_transaction=True) == ProducerIdentity(1000, 0)


def test_takeover_at_the_last_epoch_changes_the_producer_id() -> None:
    world = at_epoch(LAST_EPOCH, State.ONGOING)
    assert refused(world.init(), ConcurrentTransactions)
    assert (world.markers[0].producer_id, world.markers[0].epoch) == (7, LAST_EPOCH + 1)
    assert world.init() == ProducerIdentity(1000, 1)
    last = ProducerIdentity(7, LAST_EPOCH)
    answer = world.end(last, False, per_transaction=True)
    assert refused(answer, InvalidProducerIdMapping)


def test_one_epoch_for_all_goes_on_at_the_last_epoch() -> None:
    world = at_epoch(LAST_EPOCH, State.ONGOING)
    last = ProducerIdentity(7, LAST_EPOCH)
    assert world.end(last, True) == last
    assert world.markers[0].epoch == LAST_EPOCH


def test_no_producer_id_for_the_change_leaves_the_transaction_open() -> None:
    world = at_epoch(LAST_EPOCH, State.ONGOING)
    world.block_error = DiskFullError("no space")
    last = ProducerIdentity(7, LAST_EPOCH)
    assert refused(world.end(last, True, per_transaction=True), ProducerIdsUnavailable)
    assert world.state() is State.ONGOING
    world.block_error = None
    assert world.end(last, True, per_transaction=True) == ProducerIdentity(1000, 0)


# ---- time


def test_transaction_past_its_time_limit_is_fenced_and_aborted() -> None:
    world = World()
    producer = known(world.init(timeout_ms=10_000))
    world.add(producer, tp("a"))
    world.clock.seconds += 9.9
    assert world.coordinator.abort_timed_out() == 0
    world.clock.seconds += 0.1
    assert world.coordinator.abort_timed_out() == 1
    assert world.markers == [Markers("t", 1000, 1, False, (tp("a"),), ())]
    assert world.state() is State.COMPLETE_ABORT
    assert refused(world.end(producer, True), ProducerFenced)
    assert refused(world.add(producer, tp("a")), ProducerFenced)
    assert world.coordinator.abort_timed_out() == 0


def test_more_partitions_do_not_extend_the_time_limit() -> None:
    world = World()
    producer = known(world.init(timeout_ms=10_000))
    world.add(producer, tp("a"))
    world.clock.seconds += 6
    world.add(producer, tp("b"))
    world.clock.seconds += 4
    assert world.coordinator.abort_timed_out() == 1


def test_producer_aborted_by_time_may_come_back() -> None:
    world = World()
    producer = world.begun()
    world.clock.seconds += 60
    world.coordinator.abort_timed_out()
    answer = world.end(producer, True, per_transaction=True)
    assert refused(answer, InvalidTransactionState)
    assert world.end(producer, False, per_transaction=True) == ProducerIdentity(1000, 1)
    assert world.init(current=producer) == ProducerIdentity(1000, 1)


def test_refused_abort_by_time_is_tried_again_by_the_next_scan() -> None:
    world = World()
    world.begun()
    world.clock.seconds += 60
    world.hold_persist = True
    assert world.coordinator.abort_timed_out() == 1
    assert world.coordinator.abort_timed_out() == 0
    world.refuse_persist()
    assert world.state() is State.ONGOING
    assert world.coordinator.abort_timed_out() == 1
    world.hold_persist = False
    world.release_persist()
    assert world.state() is State.COMPLETE_ABORT


def test_wall_clock_jump_does_not_abort() -> None:
    world = World()
    world.begun()
    world.clock.wall_ms = lambda: 1_900_000_000_000  # type: ignore[method-assign]
    assert world.coordinator.abort_timed_out() == 0


def test_idle_transactional_id_expires() -> None:
    world = World()
    world.init()
    world.clock.seconds += 604_799
    assert world.coordinator.expire_idle() == 0
    world.clock.seconds += 1
    assert world.coordinator.expire_idle() == 1
    assert world.log[-1].value is None
    with pytest.raises(TransactionalIdNotFound):
        world.coordinator.describe("t")
    assert world.coordinator.stats().transactional_ids == 0
    assert world.init() == ProducerIdentity(1001, 0)


def test_use_puts_expiry_off_and_open_transactions_never_expire() -> None:
    world = World()
    world.begun()
    world.clock.seconds += 700_000
    assert world.coordinator.expire_idle() == 0
    world.coordinator.abort_timed_out()
    world.clock.seconds += 604_000
    assert world.coordinator.expire_idle() == 0


def test_expiry_is_bounded_and_takes_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "TRANSACTION_EXPIRIES_PER_SCAN", 2)
    world = World()
    for name in ("x", "y", "z"):
        world.init(name=name)
        world.clock.seconds += 1
    world.init(name="x")
    world.clock.seconds += 604_800
    assert world.coordinator.expire_idle() == 2
    assert [each.transactional_id for each in world.coordinator.list_transactions()] == ["x"]
    assert world.coordinator.expire_idle() == 1


def test_refused_expiry_keeps_the_id() -> None:
    world = World()
    producer = world.init()
    world.clock.seconds += 604_800
    world.hold_persist = True
    world.coordinator.expire_idle()
    assert world.coordinator.describe("t").pending is State.DEAD
    assert refused(world.add(producer, tp("a")), ConcurrentTransactions)
    world.refuse_persist()
    world.hold_persist = False
    assert world.add(producer, tp("a")) is None


def test_enrolment_that_waited_for_an_expiry_finds_the_id_gone() -> None:
    world = World()
    producer = known(world.init())
    world.clock.seconds += 604_800
    world.hold_persist = True
    world.coordinator.expire_idle()
    answers: list[object] = []
    start(world.coordinator.enrol_implicitly("t", producer, [tp("a")], [])).then(answers.append)
    world.release_persist()
    assert refused(answers[0], InvalidProducerIdMapping)


# ---- failures after the decision


def test_failed_markers_are_written_again() -> None:
    world = World()
    world.hold_markers = True
    producer = world.begun()
    world.end(producer, True)
    world.marker_calls.pop()(DiskFullError("no space"))
    assert world.coordinator.stats().stalled == 1
    assert refused(world.end(producer, False), ConcurrentTransactions)
    world.hold_markers = False
    assert world.coordinator.retry_failed() == 1
    assert world.state() is State.COMPLETE_COMMIT
    assert world.markers[0] == world.markers[1]
    assert world.coordinator.retry_failed() == 0


def test_refused_completion_is_persisted_again_without_new_markers() -> None:
    world = World()
    producer = world.begun()
    world.hold_markers = True
    world.end(producer, True)
    world.hold_persist = True
    world.marker_calls.pop()(None)
    world.refuse_persist()
    assert world.coordinator.stats().stalled == 1
    world.hold_persist = False
    world.coordinator.retry_failed()
    assert world.state() is State.COMPLETE_COMMIT
    assert len(world.markers) == 1


# ---- waiting for the end


def test_waiting_request_completes_when_the_markers_are_written() -> None:
    world = World()
    told: list[object] = []
    start(world.coordinator.idle("unknown")).then(told.append)
    producer = world.begun()
    start(world.coordinator.idle("t")).then(told.append)
    assert told == [None, None], "nothing is under way"
    world.hold_markers = True
    world.end(producer, True)
    start(world.coordinator.idle("t")).then(lambda _: told.append(world.state()))
    assert len(told) == 2
    world.marker_calls.pop()(None)
    assert told[2:] == [State.COMPLETE_COMMIT]


def test_when_idle_calls_back_after_a_marker_failure_and_at_close() -> None:
    world = World()
    world.hold_markers = True
    world.end(world.begun(), True)
    told: list[object] = []
    start(world.coordinator.idle("t")).then(told.append)
    world.marker_calls.pop()(DiskFullError("no space"))
    start(world.coordinator.idle("t")).then(told.append)
    assert told == [None, None]
    world.coordinator.retry_failed()
    start(world.coordinator.idle("t")).then(told.append)
    world.coordinator.close()
    assert refused(told[2], NotTransactionCoordinator)


# ---- restart


@pytest.mark.parametrize("commit", [True, False])
def test_restart_drives_a_decided_transaction_on(commit: bool) -> None:
    world = World()
    producer = world.begun()
    world.add_group(producer, "g")
    world.hold_markers = True
    following = world.end(producer, commit, per_transaction=True)
    again = World(world.log, first_id=2000)
    assert again.markers == [Markers("t", 1000, 1, commit, (tp("a"),), ("g",))]
    assert again.coordinator.describe("t").identity == following
    assert again.end(producer, commit, per_transaction=True) == following


def test_restart_keeps_an_open_transaction_and_its_time_limit() -> None:
    world = World()
    producer = world.begun()
    again = World(world.log, first_id=2000)
    again.clock.seconds = world.clock.seconds + 59
    assert again.coordinator.abort_timed_out() == 0
    again.clock.seconds += 1
    assert again.coordinator.abort_timed_out() == 1
    assert refused(again.end(producer, True), ProducerFenced)


def test_restart_reads_the_last_record_of_each_id() -> None:
    world = World()
    world.init(name="gone")
    world.clock.seconds += 604_800
    world.coordinator.expire_idle()
    world.init()
    world.init()
    again = World(world.log, first_id=2000)
    listed = again.coordinator.list_transactions()
    assert [each.transactional_id for each in listed] == ["t"]
    assert again.init() == ProducerIdentity(1001, 2)


def test_restart_keeps_the_age_of_idle_ids() -> None:
    world = World()
    world.init(name="old")
    world.clock.seconds += 1000
    world.init(name="young")
    world.clock.seconds += 604_000
    log = world.log
    # A restarted machine counts its monotonic time from zero again.
    restarted = World()
    restarted.clock.seconds = 50.0
    wall = world.clock.wall_ms()
    restarted.clock.wall_ms = lambda: wall  # type: ignore[method-assign]
    coordinator = TransactionCoordinator(
        restarted.clock,
        restarted._persist,
        restarted._write_markers,
        ProducerIds(restarted._allocate),
    )
    for record in log:
        coordinator.load(record.key, record.value)
    coordinator.resume()
    assert coordinator.expire_idle() == 1
    assert [each.transactional_id for each in coordinator.list_transactions()] == ["young"]


def test_nothing_is_served_while_loading() -> None:
    world = World()
    loading = TransactionCoordinator(
        world.clock, world._persist, world._write_markers, ProducerIds(world._allocate)
    )
    producer = ProducerIdentity(1, 1)
    kind = TransactionCoordinatorLoading
    assert refused(ask(loading.init_producer_id("t", 1000, None)), kind)
    assert refused(ask(loading.add_partitions("t", producer, [])), kind)
    assert refused(ask(loading.enrol_implicitly("t", producer, [], [])), kind)
    assert refused(ask(loading.end("t", producer, True, False)), kind)
    with pytest.raises(kind):
        loading.describe("t")
    assert isinstance(ask(loading.init_producer_id(None, 0, None)), ProducerIdentity)


# ---- closing


def test_close_answers_everything_once_and_ignores_the_ports() -> None:
    world = World()
    producer = known(world.init())
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.enrol_implicitly("t", producer, [tp("a")], [])).then(answers.append)
    start(world.coordinator.enrol_implicitly("t", producer, [tp("b")], [])).then(answers.append)
    start(world.coordinator.init_producer_id("u", 1000, None)).then(answers.append)
    world.coordinator.close()
    assert [type(each) for each in answers] == [NotTransactionCoordinator] * 3
    world.release_persist()
    world.release_persist()
    assert len(answers) == 3
    assert refused(world.init(), NotTransactionCoordinator)
    assert refused(world.end(producer, True), NotTransactionCoordinator)
    assert world.coordinator.retry_failed() == 0
    assert world.coordinator.abort_timed_out() == 0
    assert world.coordinator.expire_idle() == 0


def test_close_in_the_answer_to_a_decision_leaves_the_markers_to_the_successor() -> None:
    world = World()
    producer = world.begun()
    answers: list[object] = []

    def close(answer: object) -> None:
        answers.append(answer)
        world.coordinator.close()

    world.hold_persist = True
    start(world.coordinator.end("t", producer, True, False)).then(close)
    world.release_persist()
    assert answers == [producer]
    assert world.markers == []
    assert World(world.log, first_id=2000).markers != []


def test_close_in_an_answer_answers_the_waiting_once() -> None:
    world = World()
    producer = known(world.init())
    world.hold_persist = True
    answers: list[object] = []
    start(world.coordinator.enrol_implicitly("t", producer, [tp("a")], [])).then(
        lambda _: world.coordinator.close()
    )
    start(world.coordinator.enrol_implicitly("t", producer, [tp("a")], [])).then(answers.append)
    world.release_persist()
    assert [type(each) for each in answers] == [NotTransactionCoordinator]


# ---- views


def test_list_filters_by_state_producer_age_and_name() -> None:
    world = World()
    world.init(name="idle")
    world.begun()
    world.clock.seconds += 10
    every = world.coordinator.list_transactions

    def names(**filters: object) -> list[str]:
        return [each.transactional_id for each in every(**filters)]  # type: ignore[arg-type]

    assert names() == ["idle", "t"]
    assert names(states={State.ONGOING}) == ["t"]
    assert names(producer_ids={1000}) == ["idle"]
    assert names(open_longer_than_ms=9_999) == ["t"]
    assert names(open_longer_than_ms=10_000) == []
    assert names(accepts_id=lambda name: name.startswith("i")) == ["idle"]
    assert names(states={State.ONGOING}, producer_ids={1000}) == []


def test_states_have_the_names_operators_know() -> None:
    assert [each.value for each in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
        "Dead",
    ]


def test_stats_count_what_is_going_on() -> None:
    world = World()
    world.init(name="idle")
    world.begun()
    world.hold_persist = True
    start(world.coordinator.end("t", ProducerIdentity(1001, 0), True, False)).then(lambda _: None)
    stats = world.coordinator.stats()
    assert (stats.transactional_ids, stats.ongoing, stats.in_operation) == (2, 1, 1)


def test_every_refusal_has_its_own_stable_code() -> None:
    kinds = [TransactionError, *TransactionError.__subclasses__()]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and " " not in code for code in codes)
