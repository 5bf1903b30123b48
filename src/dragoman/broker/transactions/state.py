"""One transactional id's state as an immutable value, and the steps from one value to the next.

The steps are pure functions; whether a step may be taken is decided in `rules`, and when it takes
effect (after its record is durable) in `coordinator`.

Identity: a producer is known by its producer id and epoch. `identity` is the one that may work now.
`previous` is the one it replaced, when the replacement was made for the same producer: that one may
still ask what became of its last request. It is forgotten as soon as the present identity is used
for a transaction, and never set when another producer took over.

    step             from                       to             identity
    created          -                          Empty          epoch 0
    reinitialised    Empty, CompleteX           Empty          epoch +1, or a new producer id at 0
    enrolled         Empty, CompleteX, Ongoing  Ongoing        as before
    prepared         Ongoing                    PrepareX       epoch +1 when asked for
    completed        PrepareX                   CompleteX      the new producer id, if one was due
    nothing_aborted  Empty, CompleteX           CompleteAbort  epoch +1, or a new producer id at 0
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from dragoman.limits import PRODUCER_EPOCH_MAX
from dragoman.types import Partition, TopicName

TopicPartition: TypeAlias = tuple[TopicName, Partition]

NO_PRODUCER_ID = -1
NO_TIME = -1


class TransactionState(Enum):
    """The values are the names that operators see.

    `PREPARE_EPOCH_FENCE` and `DEAD` are never stored: they name an operation in progress whose
    record fences a producer or removes an id.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
#: No transaction is open: the id may be taken over, used or forgotten.
AT_REST = COMPLETE | {TransactionState.EMPTY}


class ProducerIdentity(msgspec.Struct, frozen=True):
    producer_id: int
    epoch: int


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one transactional id. Times are wall-clock milliseconds."""

    transactional_id: str
    state: TransactionState
    identity: ProducerIdentity
    previous: ProducerIdentity | None = None
    #: In PrepareX: the producer id that replaces an exhausted one when the transaction completes.
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    #: When the first partition or group of the last transaction was enrolled, or `NO_TIME` when
    #: there was none since the producer began.
    started_ms: int = NO_TIME
    updated_ms: int


def is_exhausted(identity: ProducerIdentity) -> bool:
    """Whether the next epoch would be above the highest that a client may have."""
    return identity.epoch >= PRODUCER_EPOCH_MAX


def identity_after(transaction: Transaction) -> ProducerIdentity:
    """The identity after a prepared transaction is complete."""
    if transaction.next_producer_id == NO_PRODUCER_ID:
        return transaction.identity
    return ProducerIdentity(transaction.next_producer_id, 0)


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        state=TransactionState.EMPTY,
        identity=ProducerIdentity(producer_id, 0),
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def reinitialised(
    old: Transaction, new_producer_id: int, by_owner: bool, timeout_ms: int, now_ms: int
) -> Transaction:
    """A new identity for an id at rest. `new_producer_id` is given when the epochs are used up."""
    assert old.state in AT_REST
    return Transaction(
        transactional_id=old.transactional_id,
        state=TransactionState.EMPTY,
        identity=_following(old.identity, new_producer_id),
        previous=old.identity if by_owner else None,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
    )


def enrolled(
    old: Transaction,
    partitions: frozenset[TopicPartition],
    groups: frozenset[str],
    now_ms: int,
) -> Transaction:
    begins = old.state in AT_REST
    assert begins or old.state is TransactionState.ONGOING
    return msgspec.structs.replace(
        old,
        state=TransactionState.ONGOING,
        previous=None,
        partitions=old.partitions | partitions,
        groups=old.groups | groups,
        started_ms=now_ms if begins else old.started_ms,
        updated_ms=now_ms,
    )


def prepared(
    old: Transaction, commit: bool, bump: bool, new_producer_id: int, by_owner: bool, now_ms: int
) -> Transaction:
    """The decision. With `bump`, markers carry the next epoch and so fence what is in flight.

    The epoch may pass the highest a client can have: it is only seen in markers, and
    `new_producer_id` then takes over on completion.
    """
    assert old.state is TransactionState.ONGOING
    assert not bump or is_exhausted(old.identity) == (new_producer_id != NO_PRODUCER_ID)
    identity = old.identity
    if bump:
        identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
    return msgspec.structs.replace(
        old,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        identity=identity,
        previous=old.identity if bump and by_owner else None,
        next_producer_id=new_producer_id,
        updated_ms=now_ms,
    )


def completed(old: Transaction, now_ms: int) -> Transaction:
    return msgspec.structs.replace(
        old,
        state=complete_state(old.state),
        identity=identity_after(old),
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        groups=frozenset(),
        updated_ms=now_ms,
    )


def nothing_aborted(old: Transaction, new_producer_id: int, now_ms: int) -> Transaction:
    """An abort without participants: only the identity changes, so no marker is needed."""
    assert old.state in AT_REST
    return msgspec.structs.replace(
        old,
        state=TransactionState.COMPLETE_ABORT,
        identity=_following(old.identity, new_producer_id),
        previous=old.identity,
        updated_ms=now_ms,
    )


def complete_state(state: TransactionState) -> TransactionState:
    if state is TransactionState.PREPARE_COMMIT:
        return TransactionState.COMPLETE_COMMIT
    assert state is TransactionState.PREPARE_ABORT
    return TransactionState.COMPLETE_ABORT


def _following(identity: ProducerIdentity, new_producer_id: int) -> ProducerIdentity:
    assert is_exhausted(identity) == (new_producer_id != NO_PRODUCER_ID)
    if new_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(new_producer_id, 0)
    return ProducerIdentity(identity.producer_id, identity.epoch + 1)


def with_timeout(old: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    assert old.state in AT_REST
    return msgspec.structs.replace(old, timeout_ms=timeout_ms, updated_ms=now_ms)


# ---- views for operators and metrics


class TransactionDescription(msgspec.Struct, frozen=True):
    transactional_id: str
    state: TransactionState
    #: The operation in progress, if any.
    pending: TransactionState | None
    identity: ProducerIdentity
    timeout_ms: int
    #: Wall-clock milliseconds, or -1 when no transaction is open.
    started_ms: int
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]


class TransactionListing(msgspec.Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: TransactionState


class CoordinatorStats(msgspec.Struct, frozen=True):
    """Counts for metrics. `stalled`: decided, and waiting for `retry_failed`."""

    transactional_ids: int
    ongoing: int
    in_operation: int
    stalled: int


def described(transaction: Transaction, pending: TransactionState | None) -> TransactionDescription:
    return TransactionDescription(
        transaction.transactional_id,
        transaction.state,
        pending,
        transaction.identity,
        transaction.timeout_ms,
        transaction.started_ms,
        tuple(sorted(transaction.partitions)),
        tuple(sorted(transaction.groups)),
    )


def listed(transaction: Transaction) -> TransactionListing:
    return TransactionListing(
        transaction.transactional_id, transaction.identity.producer_id, transaction.state
    )
