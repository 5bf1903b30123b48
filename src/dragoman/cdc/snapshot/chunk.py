"""A chunk of a table, or a whole table, from the read to the records.

`Reading` tracks a chunk from the database snapshot to its mark in the stream. Records are encoded
as the iterator advances. When the iterator raises `TopicNeeded`, it has not advanced, and the next
call returns the same record. A generator cannot do this, so the iterators are classes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from dragoman.cdc.events import CapturedTable, Encoder, EventRecord, Transaction
from dragoman.cdc.events.payloads import Outbox
from dragoman.cdc.snapshot.reader import RowChunk, Shape
from dragoman.cdc.snapshot.window import Key, Recent, Window
from dragoman.cdc.source.publication import SourceTable
from dragoman.cdc.stream import Change
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import decode_line
from dragoman.protocols.postgres.messages import UNCHANGED, Relation, Row

# ---- reading


class Reading:
    """A chunk, or a whole table, until the stream reaches its mark."""

    def __init__(self, table: SourceTable, recent: Recent, *, is_whole: bool) -> None:
        self.table = table
        self.is_whole = is_whole
        self.window = Window(recent)
        #: The number of the chunk's mark; 0 until it is written.
        self.mark = 0
        self.rows: RowEncoder | None = None
        self.source: AsyncIterator[list[bytes]] | None = None
        self.last: Key | None = None
        self.count = 0
        #: Maximum number of rows in the chunk.
        self.limit = 0
        self.size = 0
        self.is_last = False
        #: Whether the chunk was sent. A chunk that was not sent is read again.
        self.is_sent = False
        self.over = asyncio.Event()
        self.shape: Shape | None = None
        #: Column names of the rows in the stream.
        self.names: list[str] = []
        self._relation: m.Relation | None = None
        self._places: list[int] = []

    def changed(self, xid: int, relation: m.Relation, change: Change) -> None:
        if isinstance(change, m.Truncate):
            self.window.emptied(xid)
        elif self.is_whole:
            self.window.changed(xid, ())
        else:
            self._note(xid, relation, change)

    def _note(self, xid: int, relation: m.Relation, change: m.Insert | m.Update | m.Delete) -> None:
        """Record a change by key. A change without a known key invalidates the chunk."""
        if relation is not self._relation:
            names = [column.name for column in relation.columns]
            if not set(self.table.key) <= set(names):
                self.window.spoil()
                return
            self._relation = relation
            self.names = names
            self._places = [names.index(name) for name in self.table.key]
        old = None if isinstance(change, m.Insert) else change.old
        keys = [] if old is None else [self._key(old)]
        part = None
        if not isinstance(change, m.Delete):
            new = change.new
            if UNCHANGED in new:
                is_whole = isinstance(change, m.Update) and change.is_old_whole
                new = _filled(new, old, self._places, is_whole=is_whole)
                part = new if UNCHANGED in new else None
            keys.append(self._key(new))
        if None in keys or (part is not None and (keys[0] != keys[-1] or not self._fits())):
            self.window.spoil()
        else:
            self.window.changed(xid, set(keys), part)  # type: ignore[arg-type]

    def _fits(self) -> bool:
        """Whether the rows of the chunk have the same columns as those of the stream."""
        return self.shape is None or self.shape.names == self.names

    def _key(self, row: Row) -> Key | None:
        key = tuple(row[place] for place in self._places)
        return key if all(type(text) is bytes for text in key) else None  # type: ignore[return-value]

    def fill(self, chunk: RowChunk) -> None:
        assert self.shape is not None
        if self.names and not self._fits():
            self.window.spoil()
        self.window.decode = self.shape.divided
        self.window.fill(chunk.lines)


def _filled(new: Row, old: Row | None, places: list[int], *, is_whole: bool) -> Row:
    """The new row, with unchanged values filled in from the old row, which has at least the key
    columns.
    """
    if old is None:
        return new
    return [
        old[place] if value is UNCHANGED and (is_whole or place in places) else value
        for place, value in enumerate(new)
    ]


# ---- records


class RowEncoder:
    """Encodes rows of one table at one position of the stream."""

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
    """Records of the rows of a chunk."""

    def __init__(
        self,
        rows: RowEncoder,
        lines: Sequence[bytes | Row],
        transaction: Transaction,
        *,
        is_first: bool,
        rows_in_all: int,
    ) -> None:
        """`rows_in_all`: the number of rows of the table if this is its last chunk, else -1."""
        self._rows = rows
        self._lines = lines
        self._transaction = transaction
        #: Index of the next line. -1 is the mark before the first row; the number of lines is the
        #: mark after the last row.
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
    """Records of a table while it is being read, so the iterator waits for rows."""

    def __init__(
        self,
        rows: RowEncoder,
        source: AsyncIterator[list[bytes]],
        transaction: Transaction,
        *,
        over: Callable[[int, int], None],
    ) -> None:
        """`over` receives the number of rows and bytes, before the last record is returned."""
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
