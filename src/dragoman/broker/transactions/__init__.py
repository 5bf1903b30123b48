"""The transaction coordinator: who may write under a transactional id, and how its work ends.

`state` is one transaction as a value and its steps, `rules` what a request may do in which state,
`records` the bytes in the log, `producer_ids` the source of producer ids, `ports` what comes from
outside, `views` what operators see, `coordinator` the machine.
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
