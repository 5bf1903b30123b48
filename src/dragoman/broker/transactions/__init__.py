"""The transaction coordinator: who may write under a transactional id, and how a transaction ends.

- `state`: one transactional id as a value, and the steps between values.
- `rules`: what a request may do in which state.
- `entries`: the table of transactional ids, each with its operation in progress.
- `operations`: the course of one operation: build, persist, apply, answer.
- `coordinator`: the machine: requests in, records and markers out, replies.
- `records`: bytes in `__transaction_state`.
- `producer_ids`: producer ids, from blocks that are reserved durably.
- `ports`: what comes from outside; `views`: what operators and metrics see.
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
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from dragoman.broker.transactions.views import (
    CoordinatorStats,
    TransactionDescription,
    TransactionListing,
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
