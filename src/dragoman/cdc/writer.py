"""The writer commits whole database transactions, in Kafka transactions.

    add… ──► open ──commit──► complete ──► one Kafka transaction ──► confirmed
              │                   ▲
              └── too large: written before its end is known, in a transaction that stays open

While a Kafka transaction is being written, new database transactions are collected for the next
one. A database transaction is never split between two. Every Kafka transaction contains the
position. Memory is bounded: above the bound `room` waits and nothing is read from the database,
which is back-pressure up to the WAL.

A database transaction without events only advances the position, which is then written at intervals
instead of once per transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dragoman.cdc.events.records import EventRecord, build_event_batch
from dragoman.cdc.position import Position, encode_position
from dragoman.limits import (
    CAPTURE_HELD_BYTES_MAX,
    CAPTURE_IDLE_POSITION_S,
    CAPTURE_SPILL_BYTES,
    KAFKA_CLIENT_BATCH_BYTES,
    KAFKA_CLIENT_BATCH_RECORDS_MAX,
)
from dragoman.log.batch import Record
from dragoman.log.compression import Codec
from dragoman.protocols.kafka.client.transactions import Batch, TransactionalProducer
from dragoman.protocols.kafka.client.values import TopicPartition

#: Size in bytes above which positions are compressed.
_LARGE = 4096


class _Part:
    """Records for one partition, in order."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records: list[EventRecord] = []
        self.size = 0


class _Gathered:
    """Records for all partitions."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int], _Part] = {}
        self.size = 0

    def take_in(self, more: _Gathered) -> None:
        for where, part in more.parts.items():
            known = self.parts.get(where)
            if known is None:
                self.parts[where] = part
            else:
                known.records += part.records
                known.size += part.size
        self.size += more.size


class LogWriter:
    """Owned by one event loop. `run` writes; the stream calls everything else."""

    def __init__(
        self,
        producer: TransactionalProducer,
        name: str,
        positions: TopicPartition,
        position: Position,
        *,
        confirm: Callable[[Position], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._producer = producer
        self._key = name.encode()
        self._positions = positions
        self._confirm = confirm
        self._now_ms = now_ms
        #: By existing topic, the largest batch that it accepts.
        self.batch_bytes: dict[str, int] = {}
        self._open = _Gathered()
        self._complete = _Gathered()
        #: The position after all added events.
        self._last = position
        #: Whether part of the open transaction is already written.
        self._is_spilled = False
        #: Positions to write: after the last complete transaction with events, and after the last
        #: one without.
        self._position: Position | None = None
        self._idle_position: Position | None = None
        self._held = 0
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        #: Whether a transaction is being written.
        self._is_writing = False

    # ---- events

    def add(self, records: Iterable[EventRecord]) -> None:
        """Add events of the open transaction."""
        gathered = self._open
        parts = gathered.parts
        for record in records:
            where = (record.topic, record.partition)
            part = parts.get(where)
            if part is None:
                part = parts[where] = _Part()
            size = record.size
            part.records.append(record)
            part.size += size
            gathered.size += size
            self._held += size
        if gathered.size >= CAPTURE_SPILL_BYTES:
            self._wake.set()

    def commit(self, position: Position) -> None:
        """End the open transaction."""
        if self._complete.parts:
            self._complete.take_in(self._open)
        else:
            self._complete = self._open
        self._open = _Gathered()
        self._is_spilled = False
        self._last = self._position = position
        self._idle_position = None
        self._wake.set()

    def advance(self, position: Position) -> None:
        """Advance the position when there are no events up to it and no transaction is open."""
        assert not self._open.parts
        self._last = position
        if self._position is not None:
            # The position is written with the pending transactions.
            self._position = position
        else:
            self._idle_position = position

    def insert(self, records: Iterable[EventRecord]) -> None:
        """Add events that belong to no transaction of the database."""
        if self._is_spilled:
            # Part of the open transaction is already written, so these events are written with it.
            self.add(records)
            return
        between, self._open = self._open, _Gathered()
        self.add(records)
        self.commit(self._last)
        self._open = between

    @property
    def is_idle(self) -> bool:
        """Whether all events are written."""
        return not (self._held or self._is_writing or self._position)

    async def idle(self) -> None:
        """Wait until all events and the position are written."""
        if self._idle_position is not None:
            self.commit(self._idle_position)
        while not self.is_idle:
            self._written.clear()
            await self._written.wait()

    async def write_alone(self, position: Position) -> None:
        """Write a position without events. `run` must not be running."""
        self._position = position
        await self._write_complete()

    async def room(self) -> None:
        """Wait until there is room for more events."""
        if self._held < CAPTURE_HELD_BYTES_MAX:
            return
        self._room.clear()
        await self._room.wait()

    # ---- writing

    async def run(self) -> None:
        """Write until cancelled. Raises the errors of the producer."""
        while True:
            if self._position is not None:
                await self._write_complete()
            elif self._open.size >= CAPTURE_SPILL_BYTES:
                await self._spill()
            else:
                self._wake.clear()
                await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(CAPTURE_IDLE_POSITION_S):
                await self._wake.wait()
        except TimeoutError:
            # An open Kafka transaction will contain the position.
            if self._idle_position is not None and not self._producer.is_open:
                self._position, self._idle_position = self._idle_position, None

    async def _write_complete(self) -> None:
        gathered, self._complete = self._complete, _Gathered()
        position, self._position = self._position, None
        assert position is not None
        self._is_writing = True
        last = self._batch_of(position)
        rounds = list(self._rounds(gathered))
        if not rounds:
            rounds.append({})
        rounds[-1][self._positions] = last
        for batches in rounds:
            await self._producer.write(batches)
        await self._producer.commit()
        self._is_writing = False
        self._release(gathered.size)
        self._written.set()
        self._confirm(position)

    async def _spill(self) -> None:
        gathered, self._open = self._open, _Gathered()
        self._is_writing = self._is_spilled = True
        for batches in self._rounds(gathered):
            await self._producer.write(batches)
        self._is_writing = False
        self._release(gathered.size)

    def _release(self, size: int) -> None:
        self._held -= size
        if self._held < CAPTURE_HELD_BYTES_MAX:
            self._room.set()

    def _batch_of(self, position: Position) -> Batch:
        value = encode_position(position)
        record = Record(key=self._key, value=value, timestamp=self._now_ms())
        # The progress of very many tables is repetitive text, so it compresses well.
        return self._producer.batch([record], Codec.ZSTD if len(value) > _LARGE else None)

    def _rounds(self, gathered: _Gathered) -> list[dict[TopicPartition, Batch]]:
        """The rounds of requests to send, each with a batch for every partition that still has
        records.
        """
        rounds: list[dict[TopicPartition, Batch]] = []
        for (topic, partition), part in gathered.parts.items():
            where = TopicPartition(topic, partition)
            allowed = self.batch_bytes.get(topic, KAFKA_CLIENT_BATCH_BYTES)
            bytes_max = min(allowed, KAFKA_CLIENT_BATCH_BYTES)
            for index, batch in enumerate(_cut(part, bytes_max)):
                if index == len(rounds):
                    rounds.append({})
                rounds[index][where] = batch
        return rounds


def _cut(part: _Part, bytes_max: int) -> Iterable[Batch]:
    """Batches no larger than the topic accepts; a larger record gets a batch of its own."""
    records = part.records
    if part.size <= bytes_max and len(records) <= KAFKA_CLIENT_BATCH_RECORDS_MAX:
        yield _batch(records)
        return
    start = size = 0
    for index, record in enumerate(records):
        more = record.size
        if index > start and (
            size + more > bytes_max or index - start >= KAFKA_CLIENT_BATCH_RECORDS_MAX
        ):
            yield _batch(records[start:index])
            start, size = index, 0
        size += more
    yield _batch(records[start:])


def _batch(records: list[EventRecord]) -> Batch:
    def build(producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
        return build_event_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    return Batch(len(records), build)
