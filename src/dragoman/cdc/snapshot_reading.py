"""One chunk of a table, or a whole one, on its way from the first look to its mark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dragoman.cdc.hooks import Change
from dragoman.cdc.snapshot_reader import Chunk, Shape
from dragoman.cdc.snapshot_records import RowEncoder
from dragoman.cdc.snapshot_window import Key, Recent, Window
from dragoman.cdc.tables import SourceTable
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.messages import UNCHANGED, Row


class Reading:
    """A chunk, or a whole table, from the first look to its mark."""

    def __init__(self, table: SourceTable, recent: Recent, *, is_whole: bool) -> None:
        self.table = table
        self.is_whole = is_whole
        self.window = Window(recent)
        #: Of its mark; 0: not written yet.
        self.mark = 0
        self.rows: RowEncoder | None = None
        self.source: AsyncIterator[list[bytes]] | None = None
        self.last: Key | None = None
        self.count = 0
        #: Rows that were asked for.
        self.limit = 0
        self.size = 0
        self.is_last = False
        #: Whether it was sent; false: do it again.
        self.is_sent = False
        self.over = asyncio.Event()
        self.shape: Shape | None = None
        #: Of the stream's rows.
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
        """Rows by key; the chunk is of no use when it cannot be told which they are."""
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
        """Whether rows of the chunk have the columns that those of the stream have."""
        return self.shape is None or self.shape.names == self.names

    def _key(self, row: Row) -> Key | None:
        key = tuple(row[place] for place in self._places)
        return key if all(type(text) is bytes for text in key) else None  # type: ignore[return-value]

    def fill(self, chunk: Chunk) -> None:
        assert self.shape is not None
        if self.names and not self._fits():
            self.window.spoil()
        self.window.decode = self.shape.divided
        self.window.fill(chunk.lines)


def _filled(new: Row, old: Row | None, places: list[int], *, is_whole: bool) -> Row:
    """With what the old row says about values that were not changed; it has the key at least."""
    if old is None:
        return new
    return [
        old[place] if value is UNCHANGED and (is_whole or place in places) else value
        for place, value in enumerate(new)
    ]
