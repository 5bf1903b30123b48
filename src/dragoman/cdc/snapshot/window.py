"""Which rows of a chunk that was read beside the stream are still true at a place of the stream.

A chunk is read at some moment, of which the database says which transactions it shows (its
snapshot). Later a mark is written to the database's log, and the chunk is sent where the stream has
the mark:

    stream   … T1 … T2 … T3 … mark … T4 …
    chunk          shows T1 and T3

Every transaction the chunk shows was committed before the mark was written, so it comes before the
mark. The chunk does not show T2, although T2 comes before the mark: rows with a key that T2 has
touched are left out, because the stream has sent what T2 has made of them. What T4 makes of a row
is sent after the row. So at the mark each key is as the stream would have left it.

An update that did not touch a large value does not say it. Then what T2 says about the row does not
make it whole, and the row is not left out, but sent with what T2 has made of it.

The order of commits in the log is not the order in which they become visible: a transaction whose
commit is in the log waits, for a synchronous standby perhaps, before anybody sees it. That is why
transactions are told apart by their numbers and not by another mark before the reading. Of those
before the window's begin the keys are not known any more, so all of them have to be visible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from dragoman.limits import SNAPSHOT_KEYS_MAX, SNAPSHOT_RECENT_XIDS
from dragoman.protocols.postgres.messages import UNCHANGED, Row

#: Text of each column of a key.
Key: TypeAlias = tuple[bytes, ...]
_EPOCH = 1 << 32


class Visibility(msgspec.Struct, frozen=True):
    """What `pg_current_snapshot()` says: `xmin:xmax:running,…`, in 64 bits. From `xmax` on nothing
    is shown, whether it runs or not.
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
        """For a committed transaction; `xid` has the 32 bits that the stream has of it."""
        full = (self.xmax & -_EPOCH) + xid
        if full > self.xmax + _EPOCH // 2:
            full -= _EPOCH
        elif full < self.xmax - _EPOCH // 2:
            full += _EPOCH
        return full < self.xmin or (full < self.xmax and full not in self.running)


class Recent:
    """The last transactions of the stream, in case one of them is not visible yet."""

    def __init__(self, count_max: int = SNAPSHOT_RECENT_XIDS) -> None:
        #: How many there were before it, and its number.
        self._order: deque[tuple[int, int]] = deque(maxlen=count_max)
        self.count = 0

    def add(self, xid: int) -> None:
        self._order.append((self.count, xid))
        self.count += 1

    def is_hidden(self, visibility: Visibility, before: int) -> bool:
        """Whether one of the first `before` transactions is hidden."""
        # What is visible once stays so, and is of no interest any more.
        hidden = [each for each in self._order if not visibility.shows(each[1])]
        self._order.clear()
        self._order.extend(hidden)
        return bool(hidden) and hidden[0][0] < before


class Window:
    """From before a chunk is read until its mark comes. The stream tells it about the table's
    changes; whoever reads tells it what the database showed and which rows there were.
    """

    def __init__(
        self,
        recent: Recent,
        decode: Callable[[bytes], Row] | None = None,
        keys_max: int = SNAPSHOT_KEYS_MAX,
    ) -> None:
        """`decode` divides a line into columns, as the stream has them."""
        self._recent = recent
        self._begin = recent.count
        self.decode = decode
        self._keys_max = keys_max
        self._visibility: Visibility | None = None
        #: As they were read; or, where something is known better, divided.
        self._rows: dict[Key, bytes | Row] | None = None
        #: Transaction → what it has made of rows: a part of one, or `None`, which is all of it.
        #: `None` in place of that: of all rows there are.
        self._touched: dict[int, dict[Key, Row | None] | None] = {}
        self._count = 0
        #: Whether it cannot be told any more which rows are true: the chunk has to be read again.
        self.is_spoiled = False

    # ---- the stream

    def changed(self, xid: int, keys: Iterable[Key], part: Row | None = None) -> None:
        """What the stream says is all there is to know; or `part` of it, with `UNCHANGED` in it."""
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
            # Once all of it was said, a part adds nothing that readers lack.
            if part is None or key not in known:
                known[key] = part
            elif (earlier := known[key]) is not None:
                known[key] = _joined(earlier, part)
        self._count += len(known) - before
        if self._count > self._keys_max:
            self.spoil()

    def emptied(self, xid: int) -> None:
        """All rows, by TRUNCATE."""
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
        """Whether a chunk that shows this can be used; if not, look again a little later."""
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
        """Whether a change came that the chunk does not show, before its rows were filled in."""
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
        """At the mark: the rows that are true here, in their order; `None` when spoiled."""
        if self.is_spoiled or self._rows is None:
            return None
        return list(self._rows.values())


def _joined(row: Row, part: Row) -> Row:
    return [old if new is UNCHANGED else new for old, new in zip(row, part, strict=True)]
