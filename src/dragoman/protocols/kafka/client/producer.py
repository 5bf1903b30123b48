"""Sends records in batches to brokers, in order, and exactly once if the producer is idempotent.

Theory of operation. Every partition has a queue of full batches and one open batch. One batch per
partition is in flight at a time while the next one fills, so there is no linger time: with nothing
in flight, a record is sent in the same loop turn. Retries cannot reorder records, and idempotence
is simple: the sequence number advances when a batch is known to be written. After a batch has
failed for good, the broker may or may not have counted it, so the next batch gets a new producer
id.

    send ──► open batch ──full──► sealed batches ──► in flight (retried) ──► written | failed

The queues together hold a bounded number of bytes; at the bound `send` waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from typing import Self

import msgspec

from dragoman.client_core.errors import ClientClosedError
from dragoman.errors import DragomanError, EncodeError
from dragoman.limits import (
    KAFKA_CLIENT_BATCH_BYTES,
    KAFKA_CLIENT_BATCH_RECORDS_MAX,
    KAFKA_CLIENT_BUFFER_BYTES_MAX,
)
from dragoman.log.batch import NO_PRODUCER, NO_SEQUENCE, Record, build_batch
from dragoman.log.compression import Codec
from dragoman.partitioner import partition_for_key
from dragoman.protocols.kafka.client.cluster import Cluster
from dragoman.protocols.kafka.client.errors import BatchTooLargeError, UnknownTopicError
from dragoman.protocols.kafka.client.produce import (
    ProduceOptions,
    new_producer_identity,
    produce,
)
from dragoman.protocols.kafka.client.values import (
    NO_OFFSET,
    Acks,
    NewRecord,
    ProducerIdentity,
    RecordPosition,
    TopicInfo,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.world import Clock, Random

_SEQUENCE_MASK = 0x7FFFFFFF
#: Upper bound of a record's overhead in a batch, and an estimate of its overhead in memory.
_RECORD_OVERHEAD_BYTES = 64
_NO_IDENTITY = ProducerIdentity(NO_PRODUCER, -1)


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    codec: Codec = Codec.NONE
    acks: Acks = -1
    #: Requires acks=-1. If false, ambiguous failures are not retried, because a retry may duplicate
    #: records.
    idempotent: bool = True
    batch_bytes: int = KAFKA_CLIENT_BATCH_BYTES
    buffer_bytes_max: int = KAFKA_CLIENT_BUFFER_BYTES_MAX
    timeout_ms: int = 30_000
    auto_create: bool = True

    def __post_init__(self) -> None:
        if self.idempotent and self.acks != -1:
            raise EncodeError("an idempotent producer needs acks=-1 (all)")
        if self.batch_bytes < 1 or self.buffer_bytes_max < 1:
            raise EncodeError("batch_bytes and buffer_bytes_max: expected at least 1")

    def for_produce(self) -> ProduceOptions:
        return ProduceOptions(
            acks=self.acks, timeout_ms=self.timeout_ms, auto_create=self.auto_create
        )


class _Batch:
    """Records of one batch, and their outcome."""

    __slots__ = ("begun_at", "done", "outcomes", "records", "size")

    def __init__(self, done: asyncio.Future[None], begun_at: float) -> None:
        #: From then on, its time counts: batches behind one that the broker refuses until its time
        #: is over fail with it, and not each after a time of its own.
        self.begun_at = begun_at
        self.records: list[Record] = []
        self.size = 0
        #: First index of a run of records, with its base offset or its error. There are several
        #: runs if the broker refused the batch as too large and it was split.
        self.outcomes: list[tuple[int, int | DragomanError]] = []
        self.done = done


class Delivery:
    """A sent record. Awaiting it returns the record's position or raises its error."""

    __slots__ = ("_batch", "_index", "_where")

    def __init__(self, batch: _Batch, index: int, where: TopicPartition) -> None:
        self._batch = batch
        self._index = index
        self._where = where

    def __await__(self) -> Generator[None, None, RecordPosition]:
        yield from asyncio.shield(self._batch.done).__await__()
        first, outcome = next(
            each for each in reversed(self._batch.outcomes) if each[0] <= self._index
        )
        if isinstance(outcome, DragomanError):
            raise outcome
        offset = NO_OFFSET if outcome == NO_OFFSET else outcome + self._index - first
        return RecordPosition(self._where.topic, self._where.partition, offset)


class _Queue:
    """The batches of one partition."""

    __slots__ = ("identity", "open", "sealed", "sequence", "task", "where")

    def __init__(self, where: TopicPartition) -> None:
        self.where = where
        self.open: _Batch | None = None
        self.sealed: deque[_Batch] = deque()
        self.task: asyncio.Task[None] | None = None
        self.identity = _NO_IDENTITY
        self.sequence = 0

    def take(self) -> _Batch | None:
        if self.sealed:
            return self.sealed.popleft()
        batch, self.open = self.open, None
        return batch


class Producer:
    """Made by `KafkaClient.producer`. Owned by one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        clock: Clock,
        random: Random,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._produce_options = options.for_produce()
        self._clock = clock
        self._random = random
        self._queues: dict[TopicPartition, _Queue] = {}
        #: By topic, the partition of records without a key; changes with every full batch.
        self._sticky: dict[str, int] = {}
        self._identity: ProducerIdentity | None = None
        self._identifying = asyncio.Lock()
        self._held_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._first_error: DragomanError | None = None
        self._is_closed = False
        #: Records that brokers have acknowledged; with acks=0, records that were sent.
        self.written_records = 0

    # ---- calls

    async def send(self, topic: str, record: NewRecord) -> Delivery:
        """Add a record to its batch; waits only while the producer's buffer is full.

        Raises `UnknownTopicError` if the topic or the partition does not exist.
        """
        while not self._room.is_set():
            await self._room.wait()
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        info = self._cluster.known_topic(topic) or await self._learn(topic)
        partition = self._partition(info, record)
        return self._enqueue(TopicPartition(topic, partition), record)

    async def _learn(self, topic: str) -> TopicInfo:
        async def attempt() -> TopicInfo:
            return await self._cluster.topic(topic, auto_create=self._options.auto_create)

        return await self._cluster.retry.call(attempt)

    async def send_many(self, topic: str, records: Iterable[NewRecord]) -> list[Delivery]:
        return [await self.send(topic, record) for record in records]

    async def flush(self) -> None:
        """Wait until no record is in flight. Raises the first failure since the last flush."""
        while True:
            tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
            if not tasks:
                break
            await asyncio.wait(tasks)
        error, self._first_error = self._first_error, None
        if error is not None:
            raise error

    @property
    def has_failed(self) -> bool:
        """Whether the next flush will raise."""
        return self._first_error is not None

    async def close(self) -> None:
        """Flush, then refuse further records."""
        self._is_closed = True
        self._room.set()
        try:
            await self.flush()
        finally:
            tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- batches

    def _partition(self, info: TopicInfo, record: NewRecord) -> int:
        if record.partition is not None:
            if record.partition not in info.partitions:
                raise UnknownTopicError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no such partition; the topic has {len(info.partitions)}",
                    topic=info.name,
                    partition=record.partition,
                    retriable=False,
                )
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, len(info.partitions))
        sticky = self._sticky.get(info.name)
        if sticky is None or sticky not in info.partitions:
            led = [each.partition for each in info.partitions.values() if each.leader_id >= 0]
            sticky = self._sticky[info.name] = self._random.choice(led or sorted(info.partitions))
        return sticky

    def _enqueue(self, where: TopicPartition, record: NewRecord) -> Delivery:
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = _Queue(where)
        size = _size(record)
        batch = queue.open
        if batch is not None and self._is_full(batch, size):
            queue.sealed.append(batch)
            self._sticky.pop(where.topic, None)
            batch = None
        if batch is None:
            loop = asyncio.get_running_loop()
            batch = queue.open = _Batch(loop.create_future(), loop.time())
        batch.records.append(self._record(record))
        batch.size += size
        self._held_bytes += size
        if self._held_bytes >= self._options.buffer_bytes_max:
            self._room.clear()
        if queue.task is None:
            queue.task = asyncio.create_task(self._drain(queue), name=f"produce {where}")
        return Delivery(batch, len(batch.records) - 1, where)

    def _is_full(self, batch: _Batch, size: int) -> bool:
        return (
            batch.size + size > self._options.batch_bytes
            or len(batch.records) >= KAFKA_CLIENT_BATCH_RECORDS_MAX
        )

    def _record(self, record: NewRecord) -> Record:
        timestamp = self._clock.wall_ms() if record.timestamp is None else record.timestamp
        return Record(
            key=record.key, value=record.value, headers=record.headers, timestamp=timestamp
        )

    # ---- delivery

    async def _drain(self, queue: _Queue) -> None:
        batch: _Batch | None = None
        try:
            while (batch := queue.take()) is not None:
                await self._deliver(queue, batch, 0, len(batch.records))
                self._settle(batch)
        except asyncio.CancelledError:
            self._abandon(queue, batch)
            raise
        finally:
            queue.task = None

    def _settle(self, batch: _Batch) -> None:
        if not batch.done.done():
            batch.done.set_result(None)
        self._held_bytes -= batch.size
        if self._held_bytes < self._options.buffer_bytes_max:
            self._room.set()

    def _abandon(self, queue: _Queue, batch: _Batch | None) -> None:
        while batch is not None:
            batch.outcomes.append((0, ClientClosedError("the producer was closed")))
            self._settle(batch)
            batch = queue.take()

    async def _deliver(self, queue: _Queue, batch: _Batch, start: int, end: int) -> None:
        """Send a run of the batch's records and record its outcome."""
        try:
            offset = await self._produce(queue, batch.records[start:end], batch.begun_at)
        except BatchTooLargeError as error:
            if end - start == 1:
                self._note_failure(batch, start, error)
                return
            middle = (start + end) // 2
            await self._deliver(queue, batch, start, middle)
            await self._deliver(queue, batch, middle, end)
        except DragomanError as error:
            self._note_failure(batch, start, error)
        else:
            batch.outcomes.append((start, offset))

    def _note_failure(self, batch: _Batch, start: int, error: DragomanError) -> None:
        batch.outcomes.append((start, error))
        self._first_error = self._first_error or error
        self._identity = None

    async def _produce(self, queue: _Queue, records: list[Record], since: float) -> int:
        identity = await self._current_identity()
        if identity != queue.identity:
            queue.identity = identity
            queue.sequence = 0
        data = build_batch(
            records,
            codec=self._options.codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=queue.sequence if self._options.idempotent else NO_SEQUENCE,
        )
        produced = await produce(self._cluster, queue.where, data, self._produce_options, since)
        queue.sequence = (queue.sequence + len(records)) & _SEQUENCE_MASK
        self.written_records += len(records)
        return produced.base_offset

    async def _current_identity(self) -> ProducerIdentity:
        if not self._options.idempotent:
            return _NO_IDENTITY
        async with self._identifying:
            if self._identity is None:
                self._identity = await new_producer_identity(self._cluster)
            return self._identity


def _size(record: NewRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
    for name, content in record.headers:
        # A character of a header's name may take four bytes, and each part has a length prefix.
        size += 4 * len(name) + len(content or b"") + 10
    return size
