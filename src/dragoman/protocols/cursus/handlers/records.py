"""Converts Cursus's messages to records of the log, and back.

Key and payload are the record's key and value. The other fields of a message are stored in headers
with a reserved prefix, except fields with their default values:

    cursus.producer           producerId:epoch:seqNum
    cursus.eventType          text
    cursus.schemaVersion      decimal
    cursus.aggregateVersion   decimal
    cursus.metadata           text

An empty key means no key. Headers of other protocols are not shown to Cursus clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dragoman.broker.produce import place
from dragoman.errors import DragomanError
from dragoman.limits import GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import NO_PRODUCER, NO_SEQUENCE, Record, build_batch, read_header
from dragoman.log.producer import SEQUENCE_MASK
from dragoman.protocols.cursus.messages import Batch, Message
from dragoman.replication.replica import Replica

PREFIX: Final = "cursus."
_PRODUCER: Final = "cursus.producer"
_EVENT_TYPE: Final = "cursus.eventType"
_SCHEMA_VERSION: Final = "cursus.schemaVersion"
_AGGREGATE_VERSION: Final = "cursus.aggregateVersion"
_METADATA: Final = "cursus.metadata"
_U32: Final = (0, (1 << 32) - 1)
_U64: Final = (0, (1 << 64) - 1)
_I64: Final = (-(1 << 63), (1 << 63) - 1)
#: Estimated overhead of a record besides key, value and headers, for splitting batches.
_OVERHEAD_BYTES: Final = 64


def producer_header(
    producer_id: str, epoch: int, seq_num: int
) -> tuple[tuple[str, bytes | None], ...]:
    return ((_PRODUCER, f"{producer_id}:{epoch}:{seq_num}".encode()),)


def record_of(message: Message, now_ms: int) -> Record:
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if message.producer_id or message.epoch or message.seq_num:
        headers = producer_header(message.producer_id, message.epoch, message.seq_num)
    if message.aggregate_version or message.event_type or message.schema_version:
        headers += _event_headers(message)
    if message.metadata:
        headers += ((_METADATA, message.metadata.encode()),)
    return Record(key=message.key or None, value=message.payload, headers=headers, timestamp=now_ms)


def _event_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    fields = (
        (_EVENT_TYPE, message.event_type),
        (_SCHEMA_VERSION, message.schema_version),
        (_AGGREGATE_VERSION, message.aggregate_version),
    )
    return tuple((name, str(value).encode()) for name, value in fields if value)


def message_of(record: Record) -> Message:
    """A record as Cursus clients see it. Invalid reserved headers are ignored."""
    if not record.headers:
        return Message(offset=record.offset, key=record.key or b"", payload=record.value or b"")
    found = {name: value or b"" for name, value in record.headers if name.startswith(PREFIX)}
    producer_id, epoch, seq_num = "", 0, 0
    parts = found.get(_PRODUCER, b"").rsplit(b":", 2)
    if len(parts) == 3:
        producer_id = parts[0].decode("utf-8", "replace")
        epoch, seq_num = _number(parts[1], *_I64), _number(parts[2], *_U64)
    return Message(
        offset=record.offset,
        seq_num=seq_num,
        producer_id=producer_id,
        key=record.key or b"",
        epoch=epoch,
        payload=record.value or b"",
        event_type=found.get(_EVENT_TYPE, b"").decode("utf-8", "replace"),
        schema_version=_number(found.get(_SCHEMA_VERSION, b""), *_U32),
        aggregate_version=_number(found.get(_AGGREGATE_VERSION, b""), *_U64),
        metadata=found.get(_METADATA, b"").decode("utf-8", "replace"),
    )


def _number(text: bytes, low: int, high: int) -> int:
    """A number from `low` to `high`; 0 for any other text."""
    if not text.removeprefix(b"-").isdigit() or len(text) > 20:
        return 0
    value = int(text)
    return value if low <= value <= high else 0


def aggregate_version(record: Record) -> int:
    """The version of the event in a record; 0 when it is not an event."""
    for name, value in record.headers:
        if name == _AGGREGATE_VERSION:
            return _number(value or b"", *_U64)
    return 0


def sent_batch(topic: str, partition: int, records: Iterable[Record]) -> Batch:
    """Records as a batch for a client, with sequence numbers as in the original."""
    messages = [message_of(each) for each in records]
    return Batch(
        topic=topic,
        partition=partition,
        messages=messages,
        seq_start=messages[0].seq_num if messages else 0,
        seq_end=messages[-1].seq_num if messages else 0,
    )


class Appended:
    """The progress of an append of several records, which the log takes in batches."""

    __slots__ = ("count", "error", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.count = 0
        self.next_offset = next_offset
        self.error: DragomanError | None = None


def append_records(
    replica: Replica,
    records: Sequence[Record],
    now_ms: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    sequence: int = NO_SEQUENCE,
) -> Appended:
    """Append records in order, in as few batches as the bound allows. They become durable later."""
    done = Appended(replica.log.log_end_offset)
    for piece in _pieces(records):
        batch = memoryview(
            build_batch(
                piece,
                attributes=attributes,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
            )
        )
        try:
            done.next_offset = place(replica, batch, read_header(batch), now_ms).next_offset
        except DragomanError as error:
            done.error = error.with_traceback(None)
            break
        done.count += len(piece)
        if producer_id != NO_PRODUCER:
            sequence = (sequence + len(piece)) & SEQUENCE_MASK
    return done


def _pieces(records: Sequence[Record]) -> Iterable[Sequence[Record]]:
    bound = GATHERED_BATCH_BYTES_MAX - (16 << 10)
    start = size = 0
    for index, each in enumerate(records):
        more = len(each.key or b"") + len(each.value or b"") + _OVERHEAD_BYTES
        for name, value in each.headers:
            more += len(name) + len(value or b"")
        if size + more > bound and index > start:
            yield records[start:index]
            start, size = index, 0
        size += more
    yield records[start:]
