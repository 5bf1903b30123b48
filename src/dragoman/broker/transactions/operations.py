"""The course of an operation on one transactional id: build, persist, put in place, answer.

    begin --> [producer id, if one is due] --> persist --> durable state replaced --> answer, leave
                                                 |
                                                 +--> refused: nothing changed, answer the error

A decision (PrepareX) does not leave after its answer:

    PrepareX durable --> answer --> write markers --> persist CompleteX --> leave
                                      |                  |
                                      +------- stalled --+   until `retry_stalled`

Leaving starts the enrolments that waited. Results of ports for an entry that another node has by
now are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeAlias

from dragoman.broker.errors import (
    NotTransactionCoordinator,
    TransactionAbortable,
    TransactionError,
    TransactionNotPersisted,
)
from dragoman.broker.transactions import records, state
from dragoman.broker.transactions.entries import Enrolment, Entry, EntryTable, unknown_id
from dragoman.broker.transactions.ports import Markers, Persist, WriteMarkers
from dragoman.broker.transactions.producer_ids import ProducerIds
from dragoman.broker.transactions.rules import check_producer
from dragoman.broker.transactions.state import (
    NO_PRODUCER_ID,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from dragoman.errors import DragomanError
from dragoman.limits import TRANSACTION_MEMBERS_MAX, TRANSACTION_RECORD_BYTES_MAX
from dragoman.outcome import Outcome, attempt, ignore, start
from dragoman.world import Clock

#: Makes the next state from a new producer id, or from `NO_PRODUCER_ID` when none is due.
Build: TypeAlias = Callable[[int], Transaction]
#: A step of the way from a decision to its end, and all that follow.
_Step: TypeAlias = Callable[[Entry], Coroutine[object, None, None]]


class Operations:
    def __init__(
        self,
        clock: Clock,
        persist: Persist,
        write_markers: WriteMarkers,
        producer_ids: ProducerIds,
        table: EntryTable,
    ) -> None:
        self._clock = clock
        self._persist = persist
        self._write_markers = write_markers
        self._producer_ids = producer_ids
        self._table = table
        #: Decided transactions whose next step failed, with that step.
        self._stalled: dict[str, tuple[Entry, _Step]] = {}

    # ---- operations

    def create(self, entry: Entry, timeout_ms: int) -> Outcome[None]:
        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.created(entry.transactional_id, producer_id, timeout_ms, now_ms)

        answer = self._begin(entry, TransactionState.EMPTY)
        self._table.add(entry)
        start(self._change(entry, build, needs_id=True)).then(ignore)
        return answer

    def reinitialise(self, entry: Entry, timeout_ms: int, by_owner: bool) -> Outcome[None]:
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.reinitialised(old, producer_id, by_owner, timeout_ms, now_ms)

        answer = self._begin(entry, TransactionState.EMPTY)
        start(self._change(entry, build, needs_id=_is_exhausted(entry))).then(ignore)
        return answer

    def change_timeout(self, entry: Entry, timeout_ms: int) -> Outcome[None]:
        new = state.with_timeout(entry.durable(), timeout_ms, self._clock.wall_ms())
        answer = self._begin(entry, entry.durable().state)
        start(self._change(entry, lambda _: new)).then(ignore)
        return answer

    def enrol(self, entry: Entry, enrolments: Sequence[Enrolment]) -> None:
        """Enrol all that may be, with one record. The others are answered at once."""
        answers: list[tuple[Outcome[None], TransactionError | None]] = []
        accepted: list[Outcome[None]] = []
        transaction = entry.durable()
        partitions, groups = transaction.partitions, transaction.groups
        for each in enrolments:
            merged = partitions | each.partitions, groups | each.groups
            try:
                _check_enrolment(transaction, each.producer, *merged)
            except TransactionError as error:
                answers.append((each.outcome, error.with_traceback(None)))
                continue
            if _is_enrolled(transaction, each):
                answers.append((each.outcome, None))
            else:
                partitions, groups = merged
                accepted.append(each.outcome)
        if accepted:
            self._occupy(entry, TransactionState.ONGOING, accepted)
            new = state.enrolled(transaction, partitions, groups, self._clock.wall_ms())
            start(self._change(entry, lambda _: new)).then(ignore)
        for outcome, answer in answers:
            outcome.acknowledge(answer)

    def end(self, entry: Entry, commit: bool, bump: bool) -> Outcome[None]:
        target = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        answer = self._begin(entry, target)
        start(self._decide(entry, commit, bump, by_owner=True)).then(ignore)
        return answer

    def fence(self, entry: Entry, by_owner: bool) -> Outcome[None]:
        """Abort the open transaction under the next epoch."""
        answer = self._begin(entry, TransactionState.PREPARE_EPOCH_FENCE)
        start(self._decide(entry, commit=False, bump=True, by_owner=by_owner)).then(ignore)
        return answer

    def abort_nothing(self, entry: Entry) -> Outcome[None]:
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            return state.nothing_aborted(old, producer_id, self._clock.wall_ms())

        answer = self._begin(entry, TransactionState.COMPLETE_ABORT)
        start(self._change(entry, build, needs_id=_is_exhausted(entry))).then(ignore)
        return answer

    async def remove(self, entries: list[Entry]) -> None:
        """Remove ids from the log and then from the table."""
        for entry in entries:
            self._occupy(entry, TransactionState.DEAD, [])
        tombstones = [records.tombstone(entry.transactional_id) for entry in entries]
        error = await attempt(self._persist(tombstones))
        left = [entry for entry in entries if not entry.is_gone]
        if error is None:
            for entry in left:
                self._table.remove(entry.transactional_id)
        for entry in left:
            self._leave(entry, None)

    async def complete(self, entry: Entry) -> None:
        """Carry out a decision: write the markers and record the end."""
        entry.pending = state.complete_state(entry.durable().state)
        await self._mark(entry)

    def retry_stalled(self) -> int:
        stalled, self._stalled = self._stalled, {}
        for entry, step in stalled.values():
            start(step(entry)).then(ignore)
        return len(stalled)

    def stalled_count(self) -> int:
        return len(self._stalled)

    def is_stalled(self, transactional_id: str) -> bool:
        return transactional_id in self._stalled

    def abandon(self, entries: Iterable[Entry]) -> list[Outcome[None]]:
        """Another node has these from now on. Returns the requests that are left unanswered."""
        unanswered: list[Outcome[None]] = []
        for entry in entries:
            entry.is_gone = True
            self._stalled.pop(entry.transactional_id, None)
            unanswered.extend(entry.answers or ())
            unanswered.extend(each.outcome for each in entry.waiting or ())
            unanswered.extend(entry.watchers or ())
            entry.answers, entry.waiting, entry.watchers = None, None, None
        return unanswered

    # ---- the decision and after

    async def _decide(self, entry: Entry, commit: bool, bump: bool, by_owner: bool) -> None:
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.prepared(old, commit, bump, producer_id, by_owner, now_ms)

        try:
            await self._replace(entry, build, needs_id=bump and _is_exhausted(entry))
        except TransactionError as error:
            self._refuse(entry, error)
            return
        entry.pending = state.complete_state(entry.durable().state)
        self._answer(entry, None)
        await self._mark(entry)

    async def _mark(self, entry: Entry) -> None:
        # An answer may have closed the coordinator: a successor completes the transaction then.
        if entry.is_gone:
            return
        transaction = entry.durable()
        markers = Markers(
            transaction.transactional_id,
            transaction.identity.producer_id,
            transaction.identity.epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            tuple(sorted(transaction.partitions)),
            tuple(sorted(transaction.groups)),
        )
        try:
            await self._write_markers(markers)
        except DragomanError:
            self._stall(entry, self._mark)
        else:
            await self._record_end(entry)

    async def _record_end(self, entry: Entry) -> None:
        new = state.completed(entry.durable(), self._clock.wall_ms())
        try:
            await self._replace(entry, lambda _: new)
        except TransactionError:
            self._stall(entry, self._record_end)
        else:
            self._leave(entry, None)

    def _stall(self, entry: Entry, step: _Step) -> None:
        if entry.is_gone:
            return
        self._stalled[entry.transactional_id] = entry, step
        # Waiting for the end of this transaction must not depend on an unavailable partition.
        waiting, entry.waiting = entry.waiting, None
        for enrolment in waiting or ():
            enrolment.outcome.fail(entry.concurrent())
        entry.resume_watchers()

    # ---- the course of every operation

    def _begin(self, entry: Entry, pending: TransactionState) -> Outcome[None]:
        """Occupy the entry for an operation. Returns the answer to who requested it."""
        answer: Outcome[None] = Outcome()
        self._occupy(entry, pending, [answer])
        return answer

    def _occupy(
        self, entry: Entry, pending: TransactionState, answers: list[Outcome[None]]
    ) -> None:
        assert entry.pending is None
        assert entry.answers is None
        entry.pending = pending
        entry.answers = answers

    async def _change(self, entry: Entry, build: Build, *, needs_id: bool = False) -> None:
        """The course of an operation that is over with its one record."""
        try:
            await self._replace(entry, build, needs_id=needs_id)
        except TransactionError as error:
            self._refuse(entry, error)
        else:
            self._leave(entry, None)

    async def _replace(self, entry: Entry, build: Build, *, needs_id: bool = False) -> None:
        """Make the next state durable and put it in place. After an error nothing has changed."""
        producer_id = await self._producer_ids.next() if needs_id else NO_PRODUCER_ID
        _require_here(entry)
        new = build(producer_id)
        record = records.to_record(new)
        assert record.value is not None
        if len(record.value) > TRANSACTION_RECORD_BYTES_MAX:
            raise _too_large(new)
        try:
            await self._persist((record,))
        except DragomanError as cause:
            _require_here(entry)
            raise _not_persisted(entry, cause) from cause
        _require_here(entry)
        assert entry.pending is not None
        now = self._clock.monotonic()
        if new.state is TransactionState.ONGOING and entry.durable().state is not new.state:
            entry.deadline = now + new.timeout_ms / 1000
        entry.transaction = new
        self._table.file(entry, now)

    def _refuse(self, entry: Entry, error: TransactionError) -> None:
        if entry.is_gone:
            return
        if entry.transaction is None:
            self._table.remove(entry.transactional_id)
        self._leave(entry, error)

    def _leave(self, entry: Entry, error: TransactionError | None) -> None:
        """End the operation: answer it, then admit the enrolments that waited for it."""
        entry.pending = None
        self._answer(entry, error)
        entry.resume_watchers()
        # A watcher may have begun the next operation; then the enrolments wait for that one, too.
        if entry.pending is None and entry.waiting and not entry.is_gone:
            waiting, entry.waiting = entry.waiting, None
            self._admit(entry, waiting)

    def _answer(self, entry: Entry, error: TransactionError | None) -> None:
        answers, entry.answers = entry.answers, None
        for each in answers or ():
            each.acknowledge(error)

    def _admit(self, entry: Entry, waiting: list[Enrolment]) -> None:
        if self._table.holds(entry):
            self.enrol(entry, waiting)
            return
        for enrolment in waiting:
            enrolment.outcome.fail(unknown_id(entry.transactional_id))


def _require_here(entry: Entry) -> None:
    if entry.is_gone:
        raise NotTransactionCoordinator("another node coordinates the transaction now")


def _is_exhausted(entry: Entry) -> bool:
    return state.is_exhausted(entry.durable().identity)


def _check_enrolment(
    transaction: Transaction,
    producer: ProducerIdentity,
    partitions: frozenset[TopicPartition],
    groups: frozenset[str],
) -> None:
    check_producer(transaction, producer)
    if len(partitions) + len(groups) > TRANSACTION_MEMBERS_MAX:
        raise _too_large(transaction)


def _is_enrolled(transaction: Transaction, enrolment: Enrolment) -> bool:
    return (
        transaction.state is TransactionState.ONGOING
        and enrolment.partitions <= transaction.partitions
        and enrolment.groups <= transaction.groups
    )


def _too_large(transaction: Transaction) -> TransactionAbortable:
    return TransactionAbortable(
        f"{transaction.transactional_id}: a transaction takes at most {TRANSACTION_MEMBERS_MAX} "
        f"partitions and groups, whose names fit {TRANSACTION_RECORD_BYTES_MAX} bytes"
    )


def _not_persisted(entry: Entry, cause: DragomanError) -> TransactionNotPersisted:
    return TransactionNotPersisted(f"{entry.transactional_id}: the log refused the record: {cause}")
