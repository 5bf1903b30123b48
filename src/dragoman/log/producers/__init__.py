"""Producer state of a partition: duplicates, order, open and aborted transactions.

- `states`: the table of producers, and the theory of operation.
- `producer`: the rules for one producer.
- `aborted`: the index of aborted transactions.
- `snapshot`: the bytes on disk.
- `errors`: the refusals.

Nothing here knows a protocol, a file or the time.
"""

from dragoman.log.producers.aborted import AbortedTransaction
from dragoman.log.producers.errors import (
    CoordinatorFencedError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    ProducerError,
    TooManyAbortedError,
    TooManyProducersError,
    TransactionExpectedError,
)
from dragoman.log.producers.producer import (
    ACCEPT,
    SEQUENCE_MASK,
    Accept,
    Duplicate,
    ProducerDescription,
)
from dragoman.log.producers.snapshot import load_snapshot, take_snapshot
from dragoman.log.producers.states import ProducerStates

__all__ = [
    "ACCEPT",
    "SEQUENCE_MASK",
    "AbortedTransaction",
    "Accept",
    "CoordinatorFencedError",
    "Duplicate",
    "DuplicateSequenceError",
    "InvalidProducerEpochError",
    "OutOfOrderSequenceError",
    "ProducerDescription",
    "ProducerError",
    "ProducerStates",
    "TooManyAbortedError",
    "TooManyProducersError",
    "TransactionExpectedError",
    "load_snapshot",
    "take_snapshot",
]
