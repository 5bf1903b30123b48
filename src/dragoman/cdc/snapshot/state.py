"""The progress of the snapshots of tables, in the position record and in reports."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from dragoman.captures.control import TableProgress
from dragoman.cdc.position import Progress
from dragoman.cdc.snapshot.window import Key
from dragoman.cdc.source.publication import SourceTable


class TableState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Older releases ignore fields that they do not know, so no field may change its meaning."""

    #: Tells a table from a later one of the same name.
    oid: int = 0
    #: The columns that the table is read by, and their text in the last row that was read. Each
    #: byte is a character, because an SQL_ASCII database does not know its encoding.
    key: tuple[str, ...] = ()
    last: tuple[str, ...] | None = None
    rows: int = 0
    bytes: int = 0
    is_done: bool = False
    #: Whether the table was captured before and is read again.
    is_again: bool = False

    @property
    def last_key(self) -> Key | None:
        return None if self.last is None else tuple(text.encode("latin-1") for text in self.last)

    def behind(self, key: Key | None, rows: int, size: int, *, is_done: bool) -> TableState:
        """The state after another chunk, which ends with `key`."""
        last = self.last if key is None else tuple(text.decode("latin-1") for text in key)
        return msgspec.structs.replace(
            self,
            # Not needed any more, and it would be in every later position.
            last=None if is_done else last,
            rows=self.rows + rows,
            bytes=self.bytes + size,
            is_done=is_done,
        )


def kept(states: Mapping[str, TableState]) -> Progress:
    """The states as the position record has them."""
    return {"tables": msgspec.to_builtins(states)}


def states_of(progress: Progress) -> dict[str, TableState]:
    return msgspec.convert(progress.get("tables", {}), dict[str, TableState])


class Pace:
    """The pace at which this process reads a table."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._since = time.monotonic()

    def seconds_left(self, rows: int, rows_expected: int) -> float:
        elapsed = time.monotonic() - self._since
        if rows <= self._rows or rows_expected < 0:
            return -1.0
        return round(max(0, rows_expected - rows) * elapsed / (rows - self._rows), 1)


def shown(table: SourceTable, state: TableState, pace: Pace | None) -> TableProgress:
    left = 0.0 if state.is_done else -1.0
    if pace is not None and not state.is_done:
        left = pace.seconds_left(state.rows, table.rows_expected)
    return TableProgress(
        table=table.label,
        rows=state.rows,
        bytes=state.bytes,
        rows_expected=table.rows_expected,
        is_done=state.is_done,
        seconds_left=left,
    )
