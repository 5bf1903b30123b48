"""Why a partition refuses a producer's batch or a transaction marker."""

from __future__ import annotations

from dragoman.errors import LogError


class ProducerError(LogError):
    """Root of the refusals of this package. The batch was not appended and nothing changed."""

    code = "producer"


class OutOfOrderSequenceError(ProducerError):
    """The batch does not follow the producer's last one: something before it is missing."""

    code = "out_of_order_sequence"

    def __init__(self, producer_id: int, epoch: int, expected: int, received: int) -> None:
        super().__init__(
            f"producer {producer_id} epoch {epoch}: expected sequence {expected}, got {received}"
        )
        self.expected = expected
        self.received = received


class DuplicateSequenceError(ProducerError):
    """The batch was appended earlier, too long ago to say at which offset."""

    code = "duplicate_sequence"

    def __init__(self, producer_id: int, epoch: int, received: int, window_start: int) -> None:
        super().__init__(
            f"producer {producer_id} epoch {epoch}: sequence {received} was appended before; "
            f"offsets are remembered from sequence {window_start} on"
        )


class InvalidProducerEpochError(ProducerError):
    """A newer instance of the producer has written here."""

    code = "invalid_producer_epoch"

    def __init__(self, producer_id: int, expected: int, received: int) -> None:
        super().__init__(f"producer {producer_id}: epoch is {expected}, got {received}")
        self.expected = expected
        self.received = received


class TransactionExpectedError(ProducerError):
    """A plain batch from a producer whose transaction is open on this partition."""

    code = "transaction_expected"


class CoordinatorFencedError(ProducerError):
    """A marker from a transaction coordinator that has been replaced."""

    code = "coordinator_fenced"


class TooManyProducersError(ProducerError):
    """The table is full of producers with open transactions, which cannot be forgotten."""

    code = "too_many_producers"


class TooManyAbortedError(ProducerError):
    """The index of aborted transactions is full; retention makes room."""

    code = "too_many_aborted"
