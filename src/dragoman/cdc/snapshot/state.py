"""The progress of table snapshots, in the position record and in reports."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from dragoman.captures.control import TableProgress
from dragoman.cdc.position import Progress
from dragoman.cdc.snapshot.window import Key
from dragoman.cdc.source.publication import SourceTable


class TableState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of one table. Older releases ignore unknown fields, so no field may change its
    meaning.
    """

    #: Distinguishes the table from a later one of the same name.
    oid: int = 0
    #: The columns that order the reads, and their text in the last row read. Each byte is a
    #: character, because the encoding of an SQL_ASCII database is unknown.
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
            # Dropped when done, because every later position would contain it.
            last=None if is_done else last,
            rows=self.rows + rows,
            bytes=self.bytes + size,
            is_done=is_done,
        )


def kept(states: Mapping[str, TableState]) -> Progress:
    """The states as they are stored in the position record."""
    return {"tables": msgspec.to_builtins(states)}


def states_of(progress: Progress) -> dict[str, TableState]:
    return msgspec.convert(progress.get("tables", {}), dict[str, TableState])


class Pace:
    """Measures the pace at which this process reads a table."""

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
