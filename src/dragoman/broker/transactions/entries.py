"""The table of transactional ids: each with its durable state and the operation under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from dragoman.broker.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
)
from dragoman.broker.transactions.state import (
    AT_REST,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from dragoman.outcome import Outcome


class Enrolment(msgspec.Struct, frozen=True):
    """A request to make partitions and groups part of the producer's transaction."""

    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    groups: frozenset[str]
    outcome: Outcome[None]


class Entry:
    """One transactional id. `transaction` is None only while its first state is being written."""

    __slots__ = (
        "answers",
        "deadline",
        "idle_since",
        "is_gone",
        "pending",
        "transaction",
        "transactional_id",
        "waiting",
        "watchers",
    )

    def __init__(self, transactional_id: str, transaction: Transaction | None = None) -> None:
        self.transactional_id = transactional_id
        self.transaction = transaction
        #: Another node has it now: what the ports still report is ignored.
        self.is_gone = False
        #: The state the operation under way leads to.
        self.pending: TransactionState | None = None
        #: Requests that the operation under way answers.
        self.answers: list[Outcome[None]] | None = None
        #: Enrolments that come after the operation under way.
        self.waiting: list[Enrolment] | None = None
        #: Settled when the operation under way is over or has stalled.
        self.watchers: list[Outcome[None]] | None = None
        #: Monotonic seconds at which an open transaction has lasted too long.
        self.deadline = 0.0
        #: Monotonic seconds since which no transaction is open.
        self.idle_since = 0.0

    def durable(self) -> Transaction:
        """The state of an entry whose first record is durable."""
        assert self.transaction is not None
        return self.transaction

    def resume_watchers(self) -> None:
        watchers, self.watchers = self.watchers, None
        for each in watchers or ():
            each.succeed(None)

    def check_free(self) -> None:
        if self.pending is not None:
            raise self.concurrent()

    def concurrent(self) -> ConcurrentTransactions:
        assert self.pending is not None
        return concurrent(self.transactional_id, self.pending)


class EntryTable:
    def __init__(self, partition_of: Callable[[str], int]) -> None:
        """`partition_of` maps an id to a partition of the internal topic."""
        self._partition_of = partition_of
        self._entries: dict[str, Entry] = {}
        self._kept_in: dict[int, dict[str, Entry]] = {}
        #: Entries with an open transaction.
        self._ongoing: dict[str, Entry] = {}
        #: Entries at rest.
        self._idle: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, transactional_id: str) -> Entry | None:
        return self._entries.get(transactional_id)

    def find(self, transactional_id: str) -> Entry:
        entry = self._entries.get(transactional_id)
        if entry is None:
            raise unknown_id(transactional_id)
        return entry

    def add(self, entry: Entry) -> None:
        name = entry.transactional_id
        self._entries[name] = entry
        self._kept_in.setdefault(self._partition_of(name), {})[name] = entry

    def of_partition(self, partition: int) -> list[Entry]:
        return list(self._kept_in.get(partition, {}).values())

    def remove(self, transactional_id: str) -> None:
        if self._entries.pop(transactional_id, None) is not None:
            del self._kept_in[self._partition_of(transactional_id)][transactional_id]
        self._ongoing.pop(transactional_id, None)
        self._idle.pop(transactional_id, None)

    def holds(self, entry: Entry) -> bool:
        return self._entries.get(entry.transactional_id) is entry

    def file(self, entry: Entry, now: float) -> None:
        """Put the entry where its state belongs: what is open is scanned for time-outs, what rests
        for age.
        """
        transactional_id, state = entry.transactional_id, entry.durable().state
        self._idle.pop(transactional_id, None)
        if state is TransactionState.ONGOING:
            self._ongoing[transactional_id] = entry
            return
        self._ongoing.pop(transactional_id, None)
        if state in AT_REST:
            entry.idle_since = now
            self._idle[transactional_id] = entry

    def timed_out(self, now: float) -> list[Entry]:
        """Open transactions past their time limit, without an operation under way."""
        return [
            entry
            for entry in self._ongoing.values()
            if entry.deadline <= now and entry.pending is None
        ]

    def idle_since(self, oldest: float, count_max: int) -> list[Entry]:
        """Entries that have rested since before `oldest`, without an operation under way."""
        rested = (
            entry
            for entry in self._idle.values()
            if entry.idle_since <= oldest and entry.pending is None
        )
        return list(islice(rested, count_max))

    def ongoing_count(self) -> int:
        return len(self._ongoing)


def concurrent(transactional_id: str, pending: TransactionState) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"{transactional_id} is on its way to {pending.value}: repeat the request"
    )


def unknown_id(transactional_id: str) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(f"transactional id {transactional_id} is unknown")
