"""The course of an operation on one transactional id: build, persist, put in place, answer.

    begin --> [producer id, if one is due] --> persist --> durable state replaced --> answer, leave
                                                 |
                                                 +--> refused: nothing changed, answer the error

A decision (PrepareX) continues after its answer:

    PrepareX durable --> answer --> write markers --> persist CompleteX --> leave
                                      |                  |
                                      +------- stalled --+   until `retry_stalled`

Leaving starts the enrolments that waited. Results of ports for an entry that another node has by
now are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from dragoman.broker.errors import (
    ProducerIdsUnavailable,
    TransactionAbortable,
    TransactionError,
    TransactionNotPersisted,
)
from dragoman.broker.transactions import records, state
from dragoman.broker.transactions.entries import Enrolment, Entry, EntryTable, Outcome, unknown_id
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
from dragoman.world import Clock

#: Makes the next state from a new producer id, or from `NO_PRODUCER_ID` when none is due.
Build: TypeAlias = Callable[[int], Transaction]
_Step: TypeAlias = Callable[[Entry], None]
_Refuse: TypeAlias = Callable[[Entry, TransactionError], None]


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

    def create(self, entry: Entry, timeout_ms: int, outcome: Outcome) -> None:
        self._begin(entry, TransactionState.EMPTY, outcome)
        self._table.add(entry)

        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.created(entry.transactional_id, producer_id, timeout_ms, now_ms)

        self._write_with_producer_id(entry, build, self._finish)

    def reinitialise(self, entry: Entry, timeout_ms: int, by_owner: bool, outcome: Outcome) -> None:
        self._begin(entry, TransactionState.EMPTY, outcome)
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.reinitialised(old, producer_id, by_owner, timeout_ms, now_ms)

        self._write_next_identity(entry, build, self._finish)

    def change_timeout(self, entry: Entry, timeout_ms: int, outcome: Outcome) -> None:
        self._begin(entry, entry.durable().state, outcome)
        new = state.with_timeout(entry.durable(), timeout_ms, self._clock.wall_ms())
        self._write(entry, new, self._finish, self._refuse)

    def enrol(self, entry: Entry, enrolments: Sequence[Enrolment]) -> None:
        """Enrol all that may be, with one record. The others are answered at once."""
        answers: list[tuple[Outcome, TransactionError | None]] = []
        accepted: list[Outcome] = []
        transaction = entry.durable()
        partitions, groups = transaction.partitions, transaction.groups
        for each in enrolments:
            merged = partitions | each.partitions, groups | each.groups
            try:
                _check_enrolment(transaction, each.producer, *merged)
            except TransactionError as error:
                answers.append((each.reply, error))
                continue
            if _is_enrolled(transaction, each):
                answers.append((each.reply, None))
            else:
                partitions, groups = merged
                accepted.append(each.reply)
        if accepted:
            self._begin(entry, TransactionState.ONGOING, partial(_answer_all, accepted))
            new = state.enrolled(transaction, partitions, groups, self._clock.wall_ms())
            self._write(entry, new, self._finish, self._refuse)
        for reply, answer in answers:
            reply(answer)

    def end(self, entry: Entry, commit: bool, bump: bool, outcome: Outcome) -> None:
        target = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        self._begin(entry, target, outcome)
        self._write_decision(entry, commit, bump, by_owner=True)

    def fence(self, entry: Entry, by_owner: bool, outcome: Outcome | None) -> None:
        """Abort the open transaction under the next epoch."""
        self._begin(entry, TransactionState.PREPARE_EPOCH_FENCE, outcome)
        self._write_decision(entry, commit=False, bump=True, by_owner=by_owner)

    def abort_nothing(self, entry: Entry, outcome: Outcome) -> None:
        self._begin(entry, TransactionState.COMPLETE_ABORT, outcome)
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            return state.nothing_aborted(old, producer_id, self._clock.wall_ms())

        self._write_next_identity(entry, build, self._finish)

    def remove(self, entries: list[Entry]) -> None:
        """Remove ids from the log and then from the table."""
        for entry in entries:
            self._begin(entry, TransactionState.DEAD, None)
        tombstones = [records.tombstone(entry.transactional_id) for entry in entries]
        self._persist(tombstones, partial(self._removed, entries))

    def complete(self, entry: Entry) -> None:
        """Drive on a decision found in the log."""
        entry.pending = state.complete_state(entry.durable().state)
        self._write_all_markers(entry)

    def retry_stalled(self) -> int:
        stalled, self._stalled = self._stalled, {}
        for entry, step in stalled.values():
            step(entry)
        return len(stalled)

    def stalled_count(self) -> int:
        return len(self._stalled)

    def is_stalled(self, transactional_id: str) -> bool:
        return transactional_id in self._stalled

    def let_go(self, entries: Iterable[Entry]) -> list[Outcome]:
        """Another node has these ids; returns the replies to send."""
        open_: list[Outcome] = []
        for entry in entries:
            entry.is_gone = True
            self._stalled.pop(entry.transactional_id, None)
            if entry.outcome is not None:
                open_.append(entry.outcome)
            open_.extend(each.reply for each in entry.waiting or ())
            open_.extend(entry.watchers or ())
            entry.outcome, entry.waiting, entry.watchers = None, None, None
        return open_

    # ---- the decision and after

    def _write_decision(self, entry: Entry, commit: bool, bump: bool, by_owner: bool) -> None:
        old = entry.durable()

        def build(producer_id: int) -> Transaction:
            now_ms = self._clock.wall_ms()
            return state.prepared(old, commit, bump, producer_id, by_owner, now_ms)

        if bump:
            self._write_next_identity(entry, build, self._decided)
        else:
            self._write(entry, build(NO_PRODUCER_ID), self._decided, self._refuse)

    def _decided(self, entry: Entry) -> None:
        entry.pending = state.complete_state(entry.durable().state)
        outcome, entry.outcome = entry.outcome, None
        if outcome is not None:
            outcome(None)
        self._write_all_markers(entry)

    def _write_all_markers(self, entry: Entry) -> None:
        # Its answer may have closed the coordinator: a successor drives the transaction on then.
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
        self._write_markers(markers, partial(self._marked, entry))

    def _marked(self, entry: Entry, error: DragomanError | None) -> None:
        if entry.is_gone:
            return
        if error is None:
            self._write_completion(entry)
        else:
            self._stall(entry, self._write_all_markers)

    def _write_completion(self, entry: Entry) -> None:
        new = state.completed(entry.durable(), self._clock.wall_ms())
        self._write(entry, new, self._finish, self._completion_refused)

    def _completion_refused(self, entry: Entry, _: TransactionError) -> None:
        self._stall(entry, self._write_completion)

    def _stall(self, entry: Entry, step: _Step) -> None:
        self._stalled[entry.transactional_id] = entry, step
        # Waiting for the end of this transaction must not depend on an unavailable partition.
        waiting, entry.waiting = entry.waiting, None
        for enrolment in waiting or ():
            enrolment.reply(entry.concurrent())
        entry.tell_watchers()

    # ---- the course of every operation

    def _begin(self, entry: Entry, pending: TransactionState, outcome: Outcome | None) -> None:
        assert entry.pending is None
        assert entry.outcome is None
        entry.pending = pending
        entry.outcome = outcome

    def _write_next_identity(self, entry: Entry, build: Build, then: _Step) -> None:
        if state.is_exhausted(entry.durable().identity):
            self._write_with_producer_id(entry, build, then)
        else:
            self._write(entry, build(NO_PRODUCER_ID), then, self._refuse)

    def _write_with_producer_id(self, entry: Entry, build: Build, then: _Step) -> None:
        def receive(result: int | ProducerIdsUnavailable) -> None:
            if entry.is_gone:
                return
            if isinstance(result, ProducerIdsUnavailable):
                self._refuse(entry, result)
            else:
                self._write(entry, build(result), then, self._refuse)

        self._producer_ids.next(receive)

    def _write(self, entry: Entry, new: Transaction, then: _Step, refuse: _Refuse) -> None:
        if entry.is_gone:
            return
        record = records.to_record(new)
        assert record.value is not None
        if len(record.value) > TRANSACTION_RECORD_BYTES_MAX:
            refuse(entry, _too_large(new))
            return
        self._persist((record,), partial(self._written, entry, new, then, refuse))

    def _written(
        self,
        entry: Entry,
        new: Transaction,
        then: _Step,
        refuse: _Refuse,
        error: DragomanError | None,
    ) -> None:
        if entry.is_gone:
            return
        assert entry.pending is not None
        if error is not None:
            refuse(entry, _not_persisted(entry, error))
            return
        now = self._clock.monotonic()
        if new.state is TransactionState.ONGOING and entry.durable().state is not new.state:
            entry.deadline = now + new.timeout_ms / 1000
        entry.transaction = new
        self._table.file(entry, now)
        then(entry)

    def _removed(self, entries: list[Entry], error: DragomanError | None) -> None:
        left = [entry for entry in entries if not entry.is_gone]
        if error is None:
            for entry in left:
                self._table.remove(entry.transactional_id)
        for entry in left:
            self._leave(entry, None)

    def _finish(self, entry: Entry) -> None:
        self._leave(entry, None)

    def _refuse(self, entry: Entry, error: TransactionError) -> None:
        if entry.transaction is None:
            self._table.remove(entry.transactional_id)
        self._leave(entry, error)

    def _leave(self, entry: Entry, error: TransactionError | None) -> None:
        """End the operation: answer it, then start the enrolments that waited for it."""
        entry.pending = None
        outcome, entry.outcome = entry.outcome, None
        if outcome is not None:
            outcome(error)
        entry.tell_watchers()
        # They may have begun the next operation; the rest then waits for that one, too.
        if entry.pending is None and entry.waiting and not entry.is_gone:
            waiting, entry.waiting = entry.waiting, None
            self._admit(entry, waiting)

    def _admit(self, entry: Entry, waiting: list[Enrolment]) -> None:
        if self._table.holds(entry):
            self.enrol(entry, waiting)
            return
        for enrolment in waiting:
            enrolment.reply(unknown_id(entry.transactional_id))


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
    error = TransactionNotPersisted(
        f"{entry.transactional_id}: the log refused the record: {cause}"
    )
    error.__cause__ = cause
    return error


def _answer_all(replies: list[Outcome], error: TransactionError | None) -> None:
    for reply in replies:
        reply(error)
