"""What a partition remembers of its producers: repeats, order, open and aborted transactions.

`states` owns the table and the theory, `producer` the rules for one, `aborted` the index of aborted
transactions, `snapshot` the bytes on disk, `errors` the refusals. Nothing here knows a protocol, a
file or the time.
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
