"""One producer's state on one partition, the rules that need nothing else, and the refusals.

`producer_states.py` keeps the table of these values and describes the theory of operation.
"""

from __future__ import annotations

import msgspec

from dragoman.errors import LogError
from dragoman.limits import PRODUCER_BATCHES_KEPT

SEQUENCE_MASK = (1 << 31) - 1
#: Half the sequence space. A sequence further back than this counts as ahead.
_SEQUENCE_HALF = 1 << 30
NO_OFFSET = -1
#: `next_sequence` of a producer known only from a marker: it may continue with any sequence.
ANY_SEQUENCE = -2
OLDER_BATCHES_KEPT = PRODUCER_BATCHES_KEPT - 1


class ProducerError(LogError):
    """A batch or marker is refused. Nothing was appended and the state has not changed."""

    code = "producer"


class OutOfOrderSequenceError(ProducerError):
    """The batch does not follow the producer's last one: an earlier batch is missing."""

    code = "out_of_order_sequence"

    def __init__(self, producer_id: int, epoch: int, expected: int, received: int) -> None:
        super().__init__(
            f"producer {producer_id} epoch {epoch}: expected sequence {expected}, got {received}"
        )
        self.expected = expected
        self.received = received


class DuplicateSequenceError(ProducerError):
    """The batch was appended so long ago that its offset is no longer remembered."""

    code = "duplicate_sequence"

    def __init__(self, producer_id: int, epoch: int, received: int, window_start: int) -> None:
        super().__init__(
            f"producer {producer_id} epoch {epoch}: sequence {received} was appended before; "
            f"offsets are remembered from sequence {window_start} on"
        )


class InvalidProducerEpochError(ProducerError):
    """A newer instance of the producer has written to the partition."""

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


class Accept(msgspec.Struct, frozen=True):
    """The batch is new and in order. There is one instance, `ACCEPT`."""


ACCEPT = Accept()


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The batch is in the log already, perhaps not durable yet. Acknowledge it like the first."""

    base_offset: int
    timestamp: int


class CachedBatch(msgspec.Struct, frozen=True, gc=False):
    base_sequence: int
    record_count: int
    base_offset: int
    timestamp: int


class Producer(msgspec.Struct, frozen=True, gc=False):
    """One producer's state on one partition."""

    epoch: int
    #: Sequence the next batch must start with, or `ANY_SEQUENCE`.
    next_sequence: int
    #: Records of this epoch known to be appended without a gap before `next_sequence`.
    history_records: int
    #: The last batches, oldest first, without a gap between them.
    batches: tuple[CachedBatch, ...]
    #: First record of the open transaction, or `NO_OFFSET`.
    open_offset: int
    #: Offset of the batch or marker that produced this value.
    changed_at: int
    active_ms: int
    #: Coordinator epoch of the last marker; -1 before the first.
    coordinator_epoch: int


class ProducerDescription(msgspec.Struct, frozen=True):
    """A producer for operators. `last_sequence`, `last_timestamp`, `open_offset`: -1 for none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    open_offset: int


def check_known(
    producer: Producer, producer_id: int, epoch: int, base_sequence: int, record_count: int
) -> CachedBatch | None:
    """The batch that this one duplicates, or None when it is next. Raises when it is neither."""
    if epoch < producer.epoch:
        raise InvalidProducerEpochError(producer_id, producer.epoch, epoch)
    if epoch > producer.epoch:
        if base_sequence:
            raise OutOfOrderSequenceError(producer_id, epoch, 0, base_sequence)
        return None
    for batch in producer.batches:
        if batch.base_sequence == base_sequence and batch.record_count == record_count:
            return batch
    if producer.next_sequence in (base_sequence, ANY_SEQUENCE):
        return None
    raise _misplaced(producer, producer_id, base_sequence, record_count)


def after_marker(
    old: Producer | None,
    is_lost: bool,
    epoch: int,
    marker_offset: int,
    now_ms: int,
    coordinator_epoch: int,
) -> Producer:
    """The state after a marker. A higher epoch begins a new sequence, as with batches.

    `is_lost`: an unknown producer may have had a state, so its sequence is unknown.
    """
    if old is not None and epoch <= old.epoch:
        return Producer(
            old.epoch,
            old.next_sequence,
            old.history_records,
            old.batches,
            NO_OFFSET,
            marker_offset,
            now_ms,
            max(coordinator_epoch, old.coordinator_epoch),
        )
    next_sequence = ANY_SEQUENCE if old is None and is_lost else 0
    if old is not None:
        coordinator_epoch = max(coordinator_epoch, old.coordinator_epoch)
    return Producer(
        epoch, next_sequence, 0, (), NO_OFFSET, marker_offset, now_ms, coordinator_epoch
    )


def described(producer_id: int, producer: Producer) -> ProducerDescription:
    last = producer.batches[-1] if producer.batches else None
    is_ended = last is None or producer.changed_at > last.base_offset
    return ProducerDescription(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=-1 if last is None else (producer.next_sequence - 1) & SEQUENCE_MASK,
        # A marker counts as activity of the producer, like a batch.
        last_timestamp=producer.active_ms if last is None or is_ended else last.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        open_offset=producer.open_offset,
    )


def _misplaced(
    producer: Producer, producer_id: int, base_sequence: int, record_count: int
) -> DuplicateSequenceError | OutOfOrderSequenceError:
    """The refusal of a batch that is neither next nor one of the remembered ones.

    It is a `DuplicateSequenceError` only when the records are known to be in the log, since clients
    treat that as success.
    """
    if producer.batches:
        window_start = producer.batches[0].base_sequence
        window_records = (producer.next_sequence - window_start) & SEQUENCE_MASK
        back = (producer.next_sequence - base_sequence) & SEQUENCE_MASK
        is_known = back <= min(producer.history_records, _SEQUENCE_HALF)
        if is_known and back - record_count >= window_records:
            return DuplicateSequenceError(producer_id, producer.epoch, base_sequence, window_start)
    return OutOfOrderSequenceError(
        producer_id, producer.epoch, producer.next_sequence, base_sequence
    )
