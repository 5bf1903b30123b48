"""What a request may do in which state. Pure: each function returns a verdict or raises.

The rules are Kafka's (KIP-98, KIP-360, KIP-890), with these sharper edges:

- An initialisation that names its present identity is compared in full, also while a transaction
  is open. A stale instance can therefore not abort its successor's work.
- A producer fenced by the time limit, or by its own initialisation, may come back under the
  identity it had: no other producer has the next one.
"""

from __future__ import annotations

from enum import Enum, auto

from dragoman.broker.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from dragoman.broker.transactions.state import (
    AT_REST,
    COMPLETE,
    PREPARED,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)


class InitVerdict(Enum):
    #: Hand out the next identity.
    BUMP = auto()
    #: A repeat of a completed request: answer the current identity.
    REPEAT = auto()
    #: Abort the open transaction first; the producer retries.
    FENCE = auto()


class EndVerdict(Enum):
    #: Decide the open transaction.
    PREPARE = auto()
    #: No transaction is open: only change the identity.
    ABORT_NOTHING = auto()
    #: Done already: answer the current identity.
    REPEAT = auto()


def judge_init(transaction: Transaction, current: ProducerIdentity | None) -> InitVerdict:
    """`current` is the identity that the producer reports (KIP-360), None for a new instance."""
    assert transaction.state not in PREPARED
    is_open = transaction.state is TransactionState.ONGOING
    if current is None or current == transaction.identity:
        return InitVerdict.FENCE if is_open else InitVerdict.BUMP
    if current == transaction.previous and not is_open:
        return InitVerdict.REPEAT
    raise ProducerFenced(
        f"{transaction.transactional_id}: {_shown(current)} was replaced by "
        f"{_shown(transaction.identity)}"
    )


def judge_end(
    transaction: Transaction,
    producer: ProducerIdentity,
    commit: bool,
    epoch_per_transaction: bool,
) -> EndVerdict:
    assert transaction.state not in PREPARED
    if epoch_per_transaction and producer == transaction.previous:
        return _judge_repeated_end(transaction, commit)
    check_producer(transaction, producer)
    if transaction.state is TransactionState.ONGOING:
        return EndVerdict.PREPARE
    if epoch_per_transaction and not commit:
        return EndVerdict.ABORT_NOTHING
    # With a previous identity, the current one came out of that end and has ended nothing itself.
    if (
        not epoch_per_transaction
        and transaction.previous is None
        and _ended_as(transaction, commit)
    ):
        return EndVerdict.REPEAT
    raise _wrong_state(transaction, commit)


def check_producer(transaction: Transaction, producer: ProducerIdentity) -> None:
    """Raise unless this is the current identity of the transactional id."""
    identity = transaction.identity
    if producer == identity:
        return
    if producer.producer_id != identity.producer_id:
        raise InvalidProducerIdMapping(
            f"{transaction.transactional_id} belongs to producer {identity.producer_id}, "
            f"not {producer.producer_id}"
        )
    if producer.epoch > identity.epoch:
        raise InvalidProducerEpoch(
            f"{transaction.transactional_id}: epoch {producer.epoch} was never handed out, "
            f"the present one is {identity.epoch}"
        )
    raise ProducerFenced(
        f"{transaction.transactional_id}: epoch {producer.epoch} was replaced by {identity.epoch}"
    )


def check_partition_enrolled(transaction: Transaction, partition: TopicPartition) -> None:
    if transaction.state is TransactionState.ONGOING and partition in transaction.partitions:
        return
    raise TransactionAbortable(
        f"{transaction.transactional_id}: partition {partition[0]}-{partition[1]} "
        "is not part of the transaction"
    )


def check_group_enrolled(transaction: Transaction, group: str) -> None:
    if transaction.state is TransactionState.ONGOING and group in transaction.groups:
        return
    raise TransactionAbortable(
        f"{transaction.transactional_id}: group {group} is not part of the transaction"
    )


def _judge_repeated_end(transaction: Transaction, commit: bool) -> EndVerdict:
    """The previous identity ends its transaction again, because the answer was lost."""
    if transaction.state not in COMPLETE:
        # Initialised since then: the producer knows its current identity, so this request is stale.
        raise ProducerFenced(
            f"{transaction.transactional_id}: replaced by {_shown(transaction.identity)}"
        )
    if _ended_as(transaction, commit):
        return EndVerdict.REPEAT
    raise _wrong_state(transaction, commit)


def _ended_as(transaction: Transaction, commit: bool) -> bool:
    wanted = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return transaction.state is wanted


def _wrong_state(transaction: Transaction, commit: bool) -> InvalidTransactionState:
    assert transaction.state in AT_REST
    return InvalidTransactionState(
        f"{transaction.transactional_id}: cannot {'commit' if commit else 'abort'} "
        f"in state {transaction.state.value}"
    )


def _shown(identity: ProducerIdentity) -> str:
    return f"producer {identity.producer_id} epoch {identity.epoch}"
