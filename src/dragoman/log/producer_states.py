"""The producers of one partition: next sequences, duplicates, open and aborted transactions.

Theory of operation
-------------------
A producer numbers its records per partition, from 0, modulo 2^31. `check` compares a batch with the
state of its producer; `append` records the batch once it has an offset. Both happen when the batch
is *queued*, not when it is durable, so that pipelined batches are checked against each other.

    producer   epoch    batch                             verdict of `check`
    known      lower    any                               InvalidProducerEpochError
               higher   begins at sequence 0              ACCEPT
               higher   begins elsewhere                  OutOfOrderSequenceError
               same     is one of the last 5 batches      Duplicate(base_offset, timestamp)
               same     is older and surely in the log    DuplicateSequenceError
               same     follows the last one              ACCEPT
               same     anything else                     OutOfOrderSequenceError
    unknown    any      begins at sequence 0              ACCEPT
               any      elsewhere, state may be lost      ACCEPT
               any      elsewhere                         OutOfOrderSequenceError

"State may be lost": producers are forgotten when idle or when there are too many. Producer ids are
assigned in rising order, so unknown producers below the highest id ever forgotten may have had a
state. Only they may start in the middle of their sequence. A new producer may not: its first
batches are missing, and a retry would append them out of order.

A producer's state is an immutable value. A change puts a new value in the table and the old one,
with the offset of the change, on the undo list. `settle(high_watermark)` forgets undo entries that
no truncation can reach any more; `truncate(offset)` restores old values. When the undo list does
not reach that far, `truncate` returns False and changes nothing: the caller rebuilds the state.

Transactions: the first transactional batch of a producer opens one; its marker closes it. A marker
may have a higher epoch than the batches, which fences batches still in flight from before it.
Producers with an open transaction are never forgotten.

All empty `ProducerStates` share their containers.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import nsmallest
from operator import itemgetter
from typing import TypeAlias

from dragoman.limits import (
    ABORTED_PER_PARTITION_MAX,
    PRODUCER_UNDO_MAX,
    PRODUCERS_FORGOTTEN_SHARE,
    PRODUCERS_PER_PARTITION_MAX,
)
from dragoman.log.isolation import AbortedIndex, AbortedTransaction
from dragoman.log.producer import (
    ACCEPT,
    NO_OFFSET,
    OLDER_BATCHES_KEPT,
    SEQUENCE_MASK,
    Accept,
    CachedBatch,
    CoordinatorFencedError,
    Duplicate,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    Producer,
    ProducerDescription,
    TooManyAbortedError,
    TooManyProducersError,
    TransactionExpectedError,
    after_marker,
    check_known,
    described,
)

_Undo: TypeAlias = tuple[int, int, Producer | None]
_Completion: TypeAlias = tuple[int, int]

# Containers of all empty instances; they are replaced, never changed.
_NO_PRODUCERS: dict[int, Producer] = {}
_NO_UNDO: list[_Undo] = []
_NO_OPEN: dict[int, int] = {}
_NO_COMPLETIONS: list[_Completion] = []
_NO_ABORTED = AbortedIndex()

_offset_of = itemgetter(0)


class ProducerStates:
    __slots__ = (
        "_aborted",
        "_completions",
        "_first_open",
        "_forgotten_below",
        "_open",
        "_producers",
        "_undo",
        "_undo_from",
    )

    def __init__(self) -> None:
        self._producers = _NO_PRODUCERS
        self._undo = _NO_UNDO
        #: Lowest offset to which `truncate` is exact.
        self._undo_from = 0
        #: First offset of every open transaction, by producer id, in rising order of offset.
        self._open = _NO_OPEN
        self._first_open = NO_OFFSET
        #: (marker offset, first offset) of completed transactions whose marker is not settled.
        self._completions = _NO_COMPLETIONS
        self._aborted = _NO_ABORTED
        #: Producers with a lower id may have had a state that was forgotten.
        self._forgotten_below = 0

    # ---- batches

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        record_count: int,
        transactional: bool = False,
    ) -> Duplicate | Accept:
        """Check a batch before it is appended. Changes nothing. Raises a `ProducerError`."""
        producer = self._producers.get(producer_id)
        if (
            producer is not None
            and producer.next_sequence == base_sequence
            and producer.epoch == epoch
            and transactional == (producer.open_offset >= 0)
            and record_count > 0
        ):
            return ACCEPT
        return self._check_rare(
            producer, producer_id, epoch, base_sequence, record_count, transactional
        )

    def append(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        record_count: int,
        base_offset: int,
        timestamp: int,
        now_ms: int,
        transactional: bool = False,
    ) -> None:
        """Record a batch with its offset: one that `check` accepted, or one read from the log.

        `record_count` is the batch's last offset delta + 1, which compaction does not change.
        Offsets must rise.
        """
        old = self._producers.get(producer_id)
        batch = CachedBatch(base_sequence, record_count, base_offset, timestamp)
        open_offset = NO_OFFSET
        coordinator_epoch = -1
        history = record_count
        batches: tuple[CachedBatch, ...] = (batch,)
        if old is None:
            self._make_room(base_offset)
        else:
            open_offset = old.open_offset
            coordinator_epoch = old.coordinator_epoch
            if old.next_sequence == base_sequence and old.epoch == epoch:
                history += old.history_records
                batches = old.batches[-OLDER_BATCHES_KEPT:] + batches
        if transactional and open_offset < 0:
            open_offset = base_offset
            self._opened(producer_id, base_offset)
        self._producers[producer_id] = Producer(
            epoch,
            (base_sequence + record_count) & SEQUENCE_MASK,
            history,
            batches,
            open_offset,
            base_offset,
            now_ms,
            coordinator_epoch,
        )
        self._undo.append((base_offset, producer_id, old))
        if len(self._undo) > PRODUCER_UNDO_MAX:
            self._shed_undo()

    def _check_rare(
        self,
        producer: Producer | None,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        record_count: int,
        transactional: bool,
    ) -> Duplicate | Accept:
        if epoch < 0:
            raise InvalidProducerEpochError(
                producer_id, 0 if producer is None else producer.epoch, epoch
            )
        if base_sequence < 0 or record_count < 1:
            raise OutOfOrderSequenceError(producer_id, epoch, 0, base_sequence)
        if producer is None:
            self._check_unknown(producer_id, epoch, base_sequence)
        else:
            repeat = check_known(producer, producer_id, epoch, base_sequence, record_count)
            if repeat is not None:
                return Duplicate(repeat.base_offset, repeat.timestamp)
        self._check_transaction(producer, producer_id, transactional)
        return ACCEPT

    def _check_unknown(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        if base_sequence and producer_id >= self._forgotten_below:
            raise OutOfOrderSequenceError(producer_id, epoch, 0, base_sequence)
        if len(self._open) >= PRODUCERS_PER_PARTITION_MAX:
            raise TooManyProducersError(
                f"all {len(self._open)} known producers have open transactions"
            )

    def _check_transaction(
        self, producer: Producer | None, producer_id: int, transactional: bool
    ) -> None:
        is_open = producer is not None and producer.open_offset >= 0
        if is_open and not transactional:
            raise TransactionExpectedError(
                f"producer {producer_id} has an open transaction and sent a batch outside of it"
            )
        if transactional and not is_open and len(self._aborted) >= ABORTED_PER_PARTITION_MAX:
            raise TooManyAbortedError(f"{len(self._aborted)} aborted transactions are indexed")

    # ---- transactions

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int = 0) -> None:
        """Check a marker before it is appended. Raises when producer or coordinator is outdated."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise InvalidProducerEpochError(producer_id, producer.epoch, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFencedError(
                f"producer {producer_id}: coordinator epoch is {producer.coordinator_epoch}, "
                f"got {coordinator_epoch}"
            )

    def complete_transaction(
        self,
        producer_id: int,
        epoch: int,
        marker_offset: int,
        committed: bool,
        now_ms: int,
        coordinator_epoch: int = 0,
    ) -> AbortedTransaction | None:
        """Record a marker with its offset. Returns the index entry of an aborted transaction.

        A marker without an open transaction is normal (a partition enrolled but never written, a
        marker written twice); its epoch still applies.
        """
        old = self._producers.get(producer_id)
        if old is None:
            self._make_room(marker_offset)
        lost = producer_id < self._forgotten_below
        new = after_marker(old, lost, epoch, marker_offset, now_ms, coordinator_epoch)
        self._producers[producer_id] = new
        self._undo.append((marker_offset, producer_id, old))
        if len(self._undo) > PRODUCER_UNDO_MAX:
            self._shed_undo()
        if old is None or old.open_offset < 0:
            return None
        return self._closed_at(producer_id, old.open_offset, marker_offset, committed)

    def first_open_offset(self) -> int | None:
        """First record of the earliest open transaction."""
        return None if self._first_open < 0 else self._first_open

    def first_unstable_offset(self) -> int | None:
        """First record of the earliest transaction that is open, or whose marker is not settled.

        A marker above the high watermark may still be truncated. Until it is settled, the records
        of its transaction must not be read as committed.
        """
        if not self._completions:
            return self.first_open_offset()
        first = min(first for _, first in self._completions)
        return first if self._first_open < 0 else min(first, self._first_open)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer, at this epoch, already wrote here in its current transaction."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.open_offset >= 0 and producer.epoch == epoch

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap `[start, end)`, ordered by first offset."""
        return self._aborted.between(start, end)

    def aborted(self) -> list[AbortedTransaction]:
        """The whole index, in the order of the markers."""
        return list(self._aborted)

    # ---- the log's life

    def settle(self, offset: int) -> None:
        """Forget undo entries below `offset`, the high watermark, which is never truncated."""
        undo = self._undo
        if undo and undo[0][0] < offset:
            if undo[-1][0] < offset:
                undo.clear()
            else:
                del undo[: bisect_left(undo, offset, key=_offset_of)]
        self._reached(offset)

    def truncate(self, offset: int) -> bool:
        """Forget everything at or above `offset`, a batch boundary.

        False when the undo list does not reach that far: nothing was changed, and the caller must
        rebuild the state from a snapshot and the log.
        """
        if offset < self._undo_from:
            return False
        undo = self._undo
        if not undo or undo[-1][0] < offset:
            return True
        while undo and undo[-1][0] >= offset:
            _, producer_id, old = undo.pop()
            if old is None:
                del self._producers[producer_id]
            else:
                self._producers[producer_id] = old
        if self._completions:
            del self._completions[bisect_left(self._completions, offset, key=_offset_of) :]
        if len(self._aborted):
            self._aborted.truncate(offset)
        self._index_open()
        return True

    def drop_below(self, log_start_offset: int) -> None:
        """Forget aborted transactions that ended below the log's new start."""
        if len(self._aborted):
            self._aborted.drop_below(log_start_offset)

    def expire(self, now_ms: int, idle_max_ms: int) -> int:
        """Forget producers idle for longer than `idle_max_ms`; returns how many.

        Producers with an open transaction stay, and so do those that a truncation could change.
        """
        oldest = now_ms - idle_max_ms
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.active_ms < oldest
            and producer.open_offset < 0
            and producer.changed_at < self._undo_from
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        if idle:
            self._forgotten_below = max(self._forgotten_below, max(idle) + 1)
        return len(idle)

    def state_lost(self, producer_ids_below: int) -> None:
        """Note that unknown producers with lower ids may have written here.

        Called for a state rebuilt without the snapshot or the beginning of the log.
        """
        self._forgotten_below = max(self._forgotten_below, producer_ids_below)

    def describe(self) -> list[ProducerDescription]:
        return [described(producer_id, each) for producer_id, each in self._producers.items()]

    def __len__(self) -> int:
        return len(self._producers)

    # ---- for snapshots

    def producers(self) -> dict[int, Producer]:
        return self._producers

    def forgotten_below(self) -> int:
        return self._forgotten_below

    @classmethod
    def restored(
        cls,
        offset: int,
        forgotten_below: int,
        producers: dict[int, Producer],
        aborted: list[AbortedTransaction],
    ) -> ProducerStates:
        """The state of a log that ends at `offset`. It can undo changes down to there."""
        states = cls()
        states._undo_from = offset
        states._forgotten_below = forgotten_below
        if producers:
            states._own()
            states._producers = producers
            states._index_open()
        if aborted:
            states._aborted = AbortedIndex()
            for entry in aborted:
                states._aborted.append(entry)
        return states

    # ---- internals

    def _own(self) -> None:
        self._producers = {}
        self._undo = []

    def _make_room(self, offset: int) -> None:
        """Forget the longest idle producers when the table is full."""
        if self._producers is _NO_PRODUCERS:
            self._own()
        if len(self._producers) < PRODUCERS_PER_PARTITION_MAX:
            return
        closed = [entry for entry in self._producers.items() if entry[1].open_offset < 0]
        share = max(1, PRODUCERS_PER_PARTITION_MAX // PRODUCERS_FORGOTTEN_SHARE)
        for producer_id, producer in nsmallest(share, closed, key=_idleness):
            del self._producers[producer_id]
            self._undo.append((offset, producer_id, producer))
            self._forgotten_below = max(self._forgotten_below, producer_id + 1)

    def _opened(self, producer_id: int, offset: int) -> None:
        if self._open is _NO_OPEN:
            self._open = {}
        self._open[producer_id] = offset
        if self._first_open < 0:
            self._first_open = offset

    def _closed_at(
        self, producer_id: int, first_offset: int, marker_offset: int, committed: bool
    ) -> AbortedTransaction | None:
        del self._open[producer_id]
        if first_offset == self._first_open:
            self._first_open = next(iter(self._open.values()), NO_OFFSET)
        if self._completions is _NO_COMPLETIONS:
            self._completions = []
        self._completions.append((marker_offset, first_offset))
        if committed:
            return None
        stable = marker_offset + 1 if self._first_open < 0 else self._first_open
        entry = AbortedTransaction(producer_id, first_offset, marker_offset, stable)
        if self._aborted is _NO_ABORTED:
            self._aborted = AbortedIndex()
        self._aborted.append(entry)
        return entry

    def _index_open(self) -> None:
        opened = [
            (producer.open_offset, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.open_offset >= 0
        ]
        opened.sort()
        self._open = {producer_id: offset for offset, producer_id in opened} if opened else _NO_OPEN
        self._first_open = opened[0][0] if opened else NO_OFFSET

    def _shed_undo(self) -> None:
        # Half at once, so that the cost per batch stays small. The boundary is an offset, since a
        # cut between entries of one offset would make a rollback incomplete.
        boundary = self._undo[len(self._undo) // 2][0] + 1
        del self._undo[: bisect_left(self._undo, boundary, key=_offset_of)]
        self._reached(boundary)

    def _reached(self, offset: int) -> None:
        if offset > self._undo_from:
            self._undo_from = offset
        if self._completions and self._completions[0][0] < offset:
            del self._completions[: bisect_left(self._completions, offset, key=_offset_of)]


def _idleness(entry: tuple[int, Producer]) -> tuple[int, int]:
    return entry[1].active_ms, entry[1].changed_at
