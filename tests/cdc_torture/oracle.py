"""What happened, according to a slot of its own that `pg_recvlogical` reads in one go at the end.

Its output is taken apart here, by nothing that the product uses: Begin, Commit, Relation, Insert,
Update and Delete of version 1, each followed by a line feed.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cdc_torture.source import Source

_SLOT, _PUBLICATION = "oracle", "oracle"


class Unchanged:
    """A large value that an update did not touch, and that is not sent."""


UNCHANGED = Unchanged()
Row = dict[str, str | Unchanged | None]


class Change(NamedTuple):
    lsn: int
    table: str
    #: I, U or D.
    kind: str
    row: Row
    #: Before: the key, if it was another one.
    old: Row | None


class Oracle:
    def __init__(self, source: Source, tables: list[str]) -> None:
        self._source = source
        source.execute(f"create publication {_PUBLICATION} for table {', '.join(tables)}")
        source.execute(f"select pg_create_logical_replication_slot('{_SLOT}', 'pgoutput')")

    def changes(self) -> list[Change]:
        ((end,),) = self._source.execute("select pg_current_wal_lsn()")
        path = self._source.server.root / "oracle.bin"
        self._source.server.run(
            "pg_recvlogical",
            *("--dbname=postgres", f"--slot={_SLOT}", "--start", f"--endpos={end}", "--no-loop"),
            *("-o", "proto_version=1", "-o", f"publication_names={_PUBLICATION}"),
            *("--file", str(path), "--fsync-interval=0"),
        )
        return _Walk(path.read_bytes()).changes()


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._relations: dict[int, tuple[str, list[str]]] = {}

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def _text(self) -> str:
        end = self._data.index(0, self._at)
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def changes(self) -> list[Change]:
        found: list[Change] = []
        lsn = 0
        while self._at < len(self._data):
            kind = chr(self._data[self._at])
            self._at += 1
            match kind:
                case "B":
                    lsn, _, _ = self._take(">QQI")
                case "C":
                    self._take(">BQQQ")
                case "R":
                    self._relation()
                case "Y":
                    self._take(">I")
                    self._text(), self._text()
                case "I" | "U" | "D":
                    found.append(self._change(kind, lsn))
                case _:
                    raise AssertionError(f"what is {kind!r} at {self._at - 1}")
            assert self._data[self._at : self._at + 1] == b"\n", (kind, self._at)
            self._at += 1
        return found

    def _relation(self) -> None:
        (number,) = self._take(">I")
        schema, table = self._text(), self._text()
        _, count = self._take(">BH")
        columns = []
        for _ in range(count):
            self._take(">B")
            columns.append(self._text())
            self._take(">Ii")
        self._relations[number] = (f"{schema}.{table}", columns)

    def _change(self, kind: str, lsn: int) -> Change:
        (number,) = self._take(">I")
        table, columns = self._relations[number]
        (mark,) = self._take(">c")
        old: Row | None = None
        if mark in (b"K", b"O"):
            old = self._row(columns)
            if kind == "D":
                return Change(lsn, table, kind, old, None)
            (mark,) = self._take(">c")
        assert mark == b"N", mark
        return Change(lsn, table, kind, self._row(columns), old)

    def _row(self, columns: list[str]) -> Row:
        (count,) = self._take(">H")
        assert count == len(columns)
        row: Row = {}
        for name in columns:
            (mark,) = self._take(">c")
            if mark == b"n":
                row[name] = None
            elif mark == b"u":
                row[name] = UNCHANGED
            else:
                (size,) = self._take(">I")
                row[name] = self._data[self._at : self._at + size].decode()
                self._at += size
        return row
