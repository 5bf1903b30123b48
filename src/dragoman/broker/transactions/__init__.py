"""The transaction coordinator: who may write under a transactional id, and how a transaction ends.

- `service`: the transactions of a node, joined to the internal topic that keeps them.
- `participants`: who may write in a transaction, and how all nodes hear of its end.
- `state`: one transactional id as a value, the steps between values, and what operators see.
- `rules`: what a request may do in which state.
- `entries`: the table of transactional ids, each with its operation in progress.
- `operations`: the course of one operation: build, persist, apply, answer.
- `coordinator`: the machine: requests in, records and markers out, replies.
- `records`: bytes in `__transaction_state`.
- `producer_ids`: producer ids, from blocks that are reserved durably.
- `ports`: what comes from outside.
"""

from dragoman.broker.transactions.coordinator import TransactionCoordinator
from dragoman.broker.transactions.ports import (
    AllocateBlock,
    Markers,
    Persist,
    StateRecord,
    WriteMarkers,
)
from dragoman.broker.transactions.producer_ids import ProducerIds
from dragoman.broker.transactions.state import (
    CoordinatorStats,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

__all__ = [
    "AllocateBlock",
    "CoordinatorStats",
    "Markers",
    "Persist",
    "ProducerIdentity",
    "ProducerIds",
    "StateRecord",
    "TopicPartition",
    "Transaction",
    "TransactionCoordinator",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "WriteMarkers",
]
