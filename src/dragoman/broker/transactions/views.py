"""What operators and metrics are shown of the coordinator's transactions."""

from __future__ import annotations

import msgspec

from dragoman.broker.transactions.state import (
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)


class TransactionDescription(msgspec.Struct, frozen=True):
    transactional_id: str
    state: TransactionState
    #: What is being written or waited for, if anything.
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
