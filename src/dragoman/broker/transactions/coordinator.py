"""The state machine of the transaction coordinator.

It knows no log, no wire and no event loop. Records leave through `persist`, markers through
`write_markers`, producer ids come from `ProducerIds`.

Theory of operation
-------------------
Every transactional id has an entry: its last *durable* state and at most one operation under way,
named by the state it leads to. An operation builds the next state, persists it, and only then puts
it in place and replies; if the record is refused, nothing has changed. While an operation is under
way, other requests for the id are refused and have to be repeated (`ConcurrentTransactions`).

    Ongoing --end--> [persist PrepareX] --reply--> [write markers] --> [persist CompleteX] --> rest
                       ^ the decision: from here on only this outcome is possible

The reply to `end` comes with the decision; the operation ends with CompleteX. When markers or the
CompleteX record fail, the entry is *stalled* and `retry_failed` retries the step. Ids belong to
partitions of the internal topic. A new leader passes all records of its partition to `load`;
`resume` completes the prepared transactions and serves the partition's ids until `unload`.

Two things fence a producer: another instance initialises under its id, or its transaction exceeds
its time limit. Both write PrepareAbort with the next epoch, so that the markers fence late batches
on the partitions too.

Implicit enrolments (the first write to a partition in a transaction, KIP-890) come from the
middle of a produce, not from a client that retries. They wait for the operation in progress, and
those that waited together are persisted together.

Time limits and ages are measured on the monotonic clock; what is stored is wall-clock time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import assert_never

from dragoman.broker.directory import only_partition
from dragoman.broker.errors import (
    InvalidTransactionalId,
    NotTransactionCoordinator,
    TooManyTransactionalIds,
    TransactionalIdNotFound,
    TransactionCoordinatorLoading,
    TransactionTimeoutInvalid,
)
from dragoman.broker.transactions import records
from dragoman.broker.transactions.entries import Enrolment, Entry, EntryTable, concurrent
from dragoman.broker.transactions.operations import Operations
from dragoman.broker.transactions.ports import Persist, WriteMarkers
from dragoman.broker.transactions.producer_ids import ProducerIds
from dragoman.broker.transactions.rules import (
    EndVerdict,
    InitVerdict,
    check_group_enrolled,
    check_partition_enrolled,
    check_producer,
    judge_end,
    judge_init,
)
from dragoman.broker.transactions.state import (
    AT_REST,
    PREPARED,
    CoordinatorStats,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    described,
    identity_after,
    listed,
)
from dragoman.limits import (
    TRANSACTION_ENROLMENTS_WAITING_MAX,
    TRANSACTION_EXPIRIES_PER_SCAN,
    TRANSACTIONAL_ID_BYTES_MAX,
    TRANSACTIONAL_IDS_MAX,
)
from dragoman.outcome import Outcome, ignore, start
from dragoman.world import Clock


class TransactionCoordinator:
    """Coordinates the transactional ids that it has loaded or that requests name.

    Requests raise a `TransactionError`.
    """

    def __init__(
        self,
        clock: Clock,
        persist: Persist,
        write_markers: WriteMarkers,
        producer_ids: ProducerIds,
        *,
        timeout_max_ms: int = 900_000,
        expiration_ms: int = 604_800_000,
        partition_of: Callable[[str], int] = only_partition,
    ) -> None:
        self.timeout_max_ms = timeout_max_ms
        self.expiration_ms = expiration_ms
        self._clock = clock
        self._producer_ids = producer_ids
        self._partition_of = partition_of
        #: Partitions whose ids are served.
        self._served: set[int] = set()
        self._is_closed = False
        self._table = EntryTable(partition_of)
        self._operations = Operations(clock, persist, write_markers, producer_ids, self._table)

    # ---- requests

    async def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, current: ProducerIdentity | None
    ) -> ProducerIdentity:
        """Give a producer its identity, and fence the one that had the transactional id before.

        Without a transactional id every call gets a fresh producer id and the rest is ignored.
        `current` is an identity that the producer wants to replace (KIP-360). For an unknown
        transactional id it is ignored: some clients send zeros.
        """
        if transactional_id is None:
            return ProducerIdentity(await self._producer_ids.next(), 0)
        entry = self._entry_to_init(transactional_id, timeout_ms)
        known = entry.transaction
        verdict = None if known is None else judge_init(known, current)
        match verdict:
            case None:
                await self._operations.create(entry, timeout_ms)
            case InitVerdict.BUMP:
                await self._operations.reinitialise(entry, timeout_ms, current is not None)
            case InitVerdict.REPEAT:
                if entry.durable().timeout_ms == timeout_ms:
                    return entry.durable().identity
                await self._operations.change_timeout(entry, timeout_ms)
            case InitVerdict.FENCE:
                await self._operations.fence(entry, current is not None)
                # The abort of the old transaction is decided. The producer has to repeat its
                # request until the abort is complete.
                raise concurrent(transactional_id, TransactionState.COMPLETE_ABORT)
            case _:
                assert_never(verdict)
        return identity_after(entry.durable())

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Enrol partitions before they are written to; begins a transaction if none is open."""
        await self._add(transactional_id, _enrolment(producer, partitions, ()))

    async def add_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group: str
    ) -> None:
        """Enrol a group before offsets are committed in it; otherwise like `add_partitions`."""
        await self._add(transactional_id, _enrolment(producer, (), (group,)))

    async def enrol_implicitly(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        groups: Collection[str],
    ) -> None:
        """Enrol what a write is about to touch (KIP-890). Waits for the operation under way.

        The caller must write in the turn in which this returns: a later write may find the
        transaction ended.
        """
        enrolment = _enrolment(producer, partitions, groups)
        entry = self._find(transactional_id)
        if entry.pending is None:
            self._operations.enrol(entry, (enrolment,))
        else:
            if entry.waiting is None:
                entry.waiting = []
            if len(entry.waiting) >= TRANSACTION_ENROLMENTS_WAITING_MAX:
                raise entry.concurrent()
            entry.waiting.append(enrolment)
        await enrolment.outcome

    def verify_partition(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> None:
        """Raise unless the partition is enrolled in the producer's open transaction.

        The write must follow at once, before any other call of the coordinator.
        """
        check_partition_enrolled(self._writable(transactional_id, producer), partition)

    def verify_group(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        """Raise unless the group is enrolled in the producer's open transaction."""
        check_group_enrolled(self._writable(transactional_id, producer), group)

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        commit: bool,
        epoch_per_transaction: bool,
    ) -> ProducerIdentity:
        """Commit or abort. Returns when this is decided for ever; markers follow.

        With `epoch_per_transaction` (KIP-890) the identity that it returns replaces the present
        one; without, it is the present one.
        """
        entry = self._find(transactional_id)
        entry.check_free()
        verdict = judge_end(entry.durable(), producer, commit, epoch_per_transaction)
        match verdict:
            case EndVerdict.PREPARE:
                await self._operations.end(entry, commit, epoch_per_transaction)
            case EndVerdict.ABORT_NOTHING:
                await self._operations.abort_nothing(entry)
            case EndVerdict.REPEAT:
                return entry.durable().identity
            case _:
                assert_never(verdict)
        return identity_after(entry.durable())

    async def idle(self, transactional_id: str) -> None:
        """Wait until no operation on the id is under way, or the one that is has stalled: for a
        producer that ended a transaction and wants its markers, or has to repeat a request.
        """
        entry = self._table.get(transactional_id)
        if entry is None or entry.pending is None or self._operations.is_stalled(transactional_id):
            return
        outcome: Outcome[None] = Outcome()
        if entry.watchers is None:
            entry.watchers = []
        entry.watchers.append(outcome)
        await outcome

    # ---- periodic work

    def abort_timed_out(self) -> int:
        """Fence and abort every transaction past its time limit; returns how many."""
        begun = 0
        for entry in self._table.timed_out(self._clock.monotonic()):
            # The outcome for an earlier entry may have led to a request for this one.
            if entry.pending is None and not entry.is_gone:
                self._operations.fence(entry, by_owner=True).then(ignore)
                begun += 1
        return begun

    def retry_failed(self) -> int:
        """Retry the steps that failed after a decision; returns how many."""
        return self._operations.retry_stalled()

    def expire_idle(self) -> int:
        """Remove ids that were idle for too long; returns how many.

        One call removes a bounded number; call again while it returns any.
        """
        oldest = self._clock.monotonic() - self.expiration_ms / 1000
        expired = self._table.idle_since(oldest, TRANSACTION_EXPIRIES_PER_SCAN)
        by_partition: dict[int, list[Entry]] = {}
        for entry in expired:
            partition = self._partition_of(entry.transactional_id)
            by_partition.setdefault(partition, []).append(entry)
        for entries in by_partition.values():
            start(self._operations.remove(entries)).then(ignore)
        return len(expired)

    # ---- life

    def load(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the internal topic, in log order. Raises like `records`."""
        transactional_id = records.decode_key(key)
        assert self._partition_of(transactional_id) not in self._served, "loading precedes service"
        self._table.remove(transactional_id)
        if value is not None:
            transaction = records.decode_value(transactional_id, value)
            self._table.add(Entry(transactional_id, transaction))

    def resume(self, partition: int = 0) -> int:
        """A partition is loaded: serve it, and complete every decided transaction; returns how
        many.
        """
        assert partition not in self._served
        self._served.add(partition)
        monotonic_at_zero = self._clock.monotonic() - self._clock.wall_ms() / 1000
        decided = []
        for entry in sorted(self._table.of_partition(partition), key=_updated_ms):
            transaction = entry.durable()
            self._table.file(entry, monotonic_at_zero + transaction.updated_ms / 1000)
            deadline_ms = transaction.started_ms + transaction.timeout_ms
            entry.deadline = monotonic_at_zero + deadline_ms / 1000
            if transaction.state in PREPARED:
                decided.append(entry)
        for entry in decided:
            start(self._operations.complete(entry)).then(ignore)
        return len(decided)

    def unload(self, partition: int) -> None:
        """Another node has a partition: answer open requests, and ignore later results of the
        ports.
        """
        self._served.discard(partition)
        entries = self._table.of_partition(partition)
        unanswered = self._operations.abandon(entries)
        for entry in entries:
            self._table.remove(entry.transactional_id)
        for outcome in unanswered:
            outcome.fail(NotTransactionCoordinator("another node coordinates the transaction now"))

    def close(self) -> None:
        """Stop for good."""
        self._is_closed = True
        for partition in list(self._served):
            self.unload(partition)

    # ---- views

    def describe(self, transactional_id: str) -> TransactionDescription:
        self._check_served(transactional_id)
        entry = self._table.get(transactional_id)
        if entry is None or entry.transaction is None:
            raise TransactionalIdNotFound(f"transactional id {transactional_id} is unknown")
        return described(entry.transaction, entry.pending)

    def list_transactions(
        self,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        open_longer_than_ms: int | None = None,
        accepts_id: Callable[[str], bool] | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids that pass every filter given; all pass an empty filter."""
        started_before = self._clock.wall_ms() - (open_longer_than_ms or 0)
        return [
            listed(each)
            for entry in self._table
            if (each := entry.transaction) is not None
            and (not states or each.state in states)
            and (not producer_ids or each.identity.producer_id in producer_ids)
            and (
                open_longer_than_ms is None
                or (each.state not in AT_REST and each.started_ms < started_before)
            )
            and (accepts_id is None or accepts_id(each.transactional_id))
        ]

    def stats(self) -> CoordinatorStats:
        return CoordinatorStats(
            transactional_ids=len(self._table),
            ongoing=self._table.ongoing_count(),
            in_operation=sum(entry.pending is not None for entry in self._table),
            stalled=self._operations.stalled_count(),
        )

    # ---- inside

    def _check_served(self, transactional_id: str) -> None:
        if self._is_closed:
            raise NotTransactionCoordinator("the coordinator was closed")
        if self._partition_of(transactional_id) not in self._served:
            raise TransactionCoordinatorLoading("the transaction log is being read")

    def _find(self, transactional_id: str) -> Entry:
        self._check_served(transactional_id)
        return self._table.find(transactional_id)

    def _writable(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        entry = self._find(transactional_id)
        # An enrolment under way does not touch what is enrolled already; all else may end it.
        if entry.pending not in (None, TransactionState.ONGOING):
            raise entry.concurrent()
        check_producer(entry.durable(), producer)
        return entry.durable()

    def _entry_to_init(self, transactional_id: str, timeout_ms: int) -> Entry:
        self._check_served(transactional_id)
        size = len(transactional_id.encode())
        if not 0 < size <= TRANSACTIONAL_ID_BYTES_MAX:
            raise InvalidTransactionalId(
                f"a transactional id has 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes, not {size}"
            )
        if not 0 < timeout_ms <= self.timeout_max_ms:
            raise TransactionTimeoutInvalid(
                f"timeout must be 1 to {self.timeout_max_ms} ms, not {timeout_ms}"
            )
        entry = self._table.get(transactional_id)
        if entry is not None:
            entry.check_free()
            return entry
        if len(self._table) >= TRANSACTIONAL_IDS_MAX:
            raise TooManyTransactionalIds(f"{len(self._table)} transactional ids are known")
        return Entry(transactional_id)

    async def _add(self, transactional_id: str, enrolment: Enrolment) -> None:
        entry = self._find(transactional_id)
        entry.check_free()
        self._operations.enrol(entry, (enrolment,))
        await enrolment.outcome


def _enrolment(
    producer: ProducerIdentity, partitions: Collection[TopicPartition], groups: Collection[str]
) -> Enrolment:
    return Enrolment(producer, frozenset(partitions), frozenset(groups), Outcome())


def _updated_ms(entry: Entry) -> int:
    return entry.durable().updated_ms
