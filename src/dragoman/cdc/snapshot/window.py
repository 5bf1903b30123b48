"""The window determines which rows of a chunk are still valid at the mark of the chunk.

A chunk is read concurrently with the stream, in a database snapshot whose visible transactions are
known. A mark is then written to the WAL, and the chunk is sent when the stream reaches the mark:

    stream   … T1 … T2 … T3 … mark … T4 …
    chunk          shows T1 and T3

Every transaction that the chunk shows was committed before the mark was written, so it precedes the
mark in the stream. T2 precedes the mark, too, but the chunk does not show it: rows whose key T2 has
changed are dropped from the chunk, because the stream has already sent their newer state. T4
follows the mark, so its change is sent after the row. So at the mark each key has the state that
the stream would have given it.

An update in the WAL does not contain large values that it left unchanged (TOAST). If T2's change is
a partial row for this reason, the row of the chunk is sent with T2's change applied.

Commits do not become visible in WAL order: a transaction whose commit is in the WAL may wait for a
synchronous standby before it is visible. So the window compares transaction ids, instead of relying
on another mark before the chunk is read. It does not know the keys of transactions that preceded
the window, so all of these must be visible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from dragoman.limits import SNAPSHOT_KEYS_MAX, SNAPSHOT_RECENT_XIDS
from dragoman.protocols.postgres.messages import UNCHANGED, Row

#: The text of each key column.
Key: TypeAlias = tuple[bytes, ...]
_EPOCH = 1 << 32


class Visibility(msgspec.Struct, frozen=True):
    """The result of `pg_current_snapshot()`, `xmin:xmax:running,…`, in 64 bits. Transactions from
    `xmax` on are not visible, running or not.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str) -> Visibility:
        xmin, xmax, running = text.split(":")
        return Visibility(
            int(xmin), int(xmax), frozenset(int(each) for each in running.split(",") if each)
        )

    def shows(self, xid: int) -> bool:
        """Whether a committed transaction is visible; `xid` has 32 bits, as in the stream."""
        full = (self.xmax & -_EPOCH) + xid
        if full > self.xmax + _EPOCH // 2:
            full -= _EPOCH
        elif full < self.xmax - _EPOCH // 2:
            full += _EPOCH
        return full < self.xmin or (full < self.xmax and full not in self.running)


class Recent:
    """The most recent transactions of the stream, some of which may not be visible yet."""

    def __init__(self, count_max: int = SNAPSHOT_RECENT_XIDS) -> None:
        #: Pairs of the number of earlier transactions and the xid.
        self._order: deque[tuple[int, int]] = deque(maxlen=count_max)
        self.count = 0

    def add(self, xid: int) -> None:
        self._order.append((self.count, xid))
        self.count += 1

    def is_hidden(self, visibility: Visibility, before: int) -> bool:
        """Whether one of the first `before` transactions is not visible."""
        # A visible transaction stays visible, so its entry can be dropped.
        hidden = [each for each in self._order if not visibility.shows(each[1])]
        self._order.clear()
        self._order.extend(hidden)
        return bool(hidden) and hidden[0][0] < before


class Window:
    """Tracks a table from before a chunk is read until its mark. The stream reports the changes of
    the table; the reader reports the visible transactions and the rows.
    """

    def __init__(
        self,
        recent: Recent,
        decode: Callable[[bytes], Row] | None = None,
        keys_max: int = SNAPSHOT_KEYS_MAX,
    ) -> None:
        """`decode` splits a line into columns, in the format of the stream's rows."""
        self._recent = recent
        self._begin = recent.count
        self.decode = decode
        self._keys_max = keys_max
        self._visibility: Visibility | None = None
        #: Lines as read, or decoded rows where a change was applied.
        self._rows: dict[Key, bytes | Row] | None = None
        #: By transaction, its changes by key: a partial row, or None for a whole one. A TRUNCATE
        #: has None instead of a dictionary.
        self._touched: dict[int, dict[Key, Row | None] | None] = {}
        self._count = 0
        #: Whether the valid rows are no longer known, so that the chunk must be read again.
        self.is_spoiled = False

    # ---- the stream

    def changed(self, xid: int, keys: Iterable[Key], part: Row | None = None) -> None:
        """Record changed keys. `part` is the new row if it has `UNCHANGED` values."""
        if self._visibility is not None and self._visibility.shows(xid):
            return
        if self._rows is not None:
            for key in keys:
                self._apply(self._rows, key, part)
            return
        known = self._touched.setdefault(xid, {})
        if known is None:
            return
        before = len(known)
        for key in keys:
            # The stream has already sent a whole row, so the partial one needs no row of the chunk.
            if part is None or key not in known:
                known[key] = part
            elif (earlier := known[key]) is not None:
                known[key] = _joined(earlier, part)
        self._count += len(known) - before
        if self._count > self._keys_max:
            self.spoil()

    def emptied(self, xid: int) -> None:
        """Record a TRUNCATE, which removes all rows."""
        if self._visibility is not None and self._visibility.shows(xid):
            return
        if self._rows is not None:
            self._rows.clear()
        else:
            self._touched[xid] = None

    def spoil(self) -> None:
        self.is_spoiled = True
        self._touched.clear()
        self._count = 0

    # ---- the reader

    def saw(self, visibility: Visibility) -> bool:
        """Whether a chunk with this visibility can be used. If not, retry after a pause."""
        if self._recent.is_hidden(visibility, self._begin):
            return False
        self._visibility = visibility
        self._touched = {
            xid: keys for xid, keys in self._touched.items() if not visibility.shows(xid)
        }
        self._count = sum(len(keys or ()) for keys in self._touched.values())
        return True

    @property
    def has_hidden(self) -> bool:
        """Whether the chunk lacks a change of the stream. Called before its rows are filled in."""
        return bool(self._touched)

    def fill(self, rows: dict[Key, bytes | Row]) -> None:
        assert self._visibility is not None
        for keys in self._touched.values():
            if keys is None:
                rows.clear()
                continue
            for key, part in keys.items():
                self._apply(rows, key, part)
        self._touched.clear()
        self._rows = rows

    def _apply(self, rows: dict[Key, bytes | Row], key: Key, part: Row | None) -> None:
        if part is None:
            rows.pop(key, None)
        elif (row := rows.get(key)) is not None:
            assert self.decode is not None
            rows[key] = _joined(self.decode(row) if isinstance(row, bytes) else row, part)

    def close(self) -> list[bytes | Row] | None:
        """End the window. Returns the rows that are valid at the mark, in order; None if it is
        spoiled.
        """
        if self.is_spoiled or self._rows is None:
            return None
        return list(self._rows.values())


def _joined(row: Row, part: Row) -> Row:
    return [old if new is UNCHANGED else new for old, new in zip(row, part, strict=True)]
