"""Rows of a snapshot as records, made when they are asked for.

What is asked for may turn out to need a topic first (`TopicNeeded`); then nothing has moved, and
the next record that is asked for is the same one. So these are no generators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from dragoman.cdc.events import Encoder, EventRecord, Transaction
from dragoman.cdc.events.encoder import CapturedTable
from dragoman.cdc.events.outbox import Outbox
from dragoman.protocols.postgres.copy_text import decode_line
from dragoman.protocols.postgres.messages import Relation, Row


class RowEncoder:
    """Rows of one table, at one place of the stream."""

    def __init__(self, encoder: Encoder, relation: Relation, primary_key: Sequence[str]) -> None:
        """Raises `ConfigError` when the capture's settings do not fit the table."""
        self._encoder = encoder
        self._outbox: Outbox | None = encoder.outbox(relation)
        self._table: CapturedTable | None = None
        if self._outbox is None:
            self._table = encoder.table(relation, primary_key)
        self._width = len(relation.columns)

    def row(self, line: bytes | Row, transaction: Transaction) -> list[EventRecord]:
        row = decode_line(line, self._width) if isinstance(line, bytes) else line
        if self._table is not None:
            return self._encoder.snapshot_row(self._table, row, transaction)
        assert self._outbox is not None
        return self._encoder.outbox_row(self._outbox, row, transaction)

    def started(self, transaction: Transaction) -> list[EventRecord]:
        if self._table is None:
            return []
        return self._encoder.snapshot_started(self._table, transaction)

    def completed(self, rows: int, transaction: Transaction) -> list[EventRecord]:
        if self._table is None:
            return []
        return self._encoder.snapshot_completed(self._table, rows, transaction)


class ChunkRecords:
    """Of rows that are there."""

    def __init__(
        self,
        rows: RowEncoder,
        lines: Sequence[bytes | Row],
        transaction: Transaction,
        *,
        is_first: bool,
        rows_in_all: int,
    ) -> None:
        """`rows_in_all`: of the table when this is the end of it, else -1."""
        self._rows = rows
        self._lines = lines
        self._transaction = transaction
        #: -1: the mark before the first row; as many as there are lines: the one after the last.
        self._at = -1 if is_first else 0
        self._rows_in_all = rows_in_all
        self._ready: deque[EventRecord] = deque()

    def __iter__(self) -> ChunkRecords:
        return self

    def __next__(self) -> EventRecord:
        while not self._ready:
            self._ready.extend(self._make())
            self._at += 1
        return self._ready.popleft()

    def _make(self) -> list[EventRecord]:
        if self._at < 0:
            return self._rows.started(self._transaction)
        if self._at < len(self._lines):
            return self._rows.row(self._lines[self._at], self._transaction)
        if self._at == len(self._lines) and self._rows_in_all >= 0:
            return self._rows.completed(self._rows_in_all, self._transaction)
        raise StopIteration


class WholeRecords:
    """Of rows that are still to come, while whoever asks waits."""

    def __init__(
        self,
        rows: RowEncoder,
        source: AsyncIterator[list[bytes]],
        transaction: Transaction,
        *,
        over: Callable[[int, int], None],
    ) -> None:
        """`over` is told how many rows and bytes there were, before the last record."""
        self._rows = rows
        self._source = source
        self._transaction = transaction
        self._over = over
        self._part = ChunkRecords(rows, [], transaction, is_first=True, rows_in_all=-1)
        self._count = Count()
        self._is_over = False

    def __aiter__(self) -> WholeRecords:
        return self

    async def __anext__(self) -> EventRecord:
        while True:
            try:
                return next(self._part)
            except StopIteration:
                await self._next_part()

    async def _next_part(self) -> None:
        if self._is_over:
            raise StopAsyncIteration
        lines = await anext(self._source, None)
        self._is_over = lines is None
        lines = lines or []
        self._count.rows += len(lines)
        self._count.bytes += sum(map(len, lines))
        rows_in_all = -1
        if self._is_over:
            rows_in_all = self._count.rows
            self._over(self._count.rows, self._count.bytes)
        self._part = ChunkRecords(
            self._rows, lines, self._transaction, is_first=False, rows_in_all=rows_in_all
        )


class Count(msgspec.Struct):
    rows: int = 0
    bytes: int = 0
