"""Envelopes, the forms of a value. Each table has one object of its envelope.

    pgcdc      {"op":…,"table":…,"row":{…},"old":…}
    debezium   {"before":…,"after":…,"source":{…},"op":…,"ts_ms":…}
    flat       {columns…,"__op":…,"__table":…,…}

Encoders of rows are compiled with the text before and after the row, so that a value is joined
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from dragoman import __version__
from dragoman.cdc.events.rows import EncodeRow, Field, UnknownValueError, compiled, partial
from dragoman.cdc.events.tables import Table, json_list, key_object
from dragoman.cdc.events.transaction import Transaction
from dragoman.protocols.postgres.messages import Row
from dragoman.protocols.postgres.values import string

#: The value that Debezium writes for an unchanged TOAST column.
UNAVAILABLE: Final = b'"__debezium_unavailable_value"'


class Envelope(Protocol):
    """Values of the events of one table. `seq` numbers the events of a transaction. An old row that
    is not whole has only the columns of the replica identity.
    """

    def key(self, row: Row) -> bytes:
        """The key of a row, for a table with a key."""

    def insert(self, new: Row, transaction: Transaction, seq: int) -> bytes: ...

    def snapshot(self, new: Row, transaction: Transaction, seq: int) -> bytes: ...

    def update(
        self, new: Row, old: Row | None, is_whole: bool, transaction: Transaction, seq: int
    ) -> bytes: ...

    def delete(self, old: Row, is_whole: bool, transaction: Transaction, seq: int) -> bytes: ...

    def truncate(self, transaction: Transaction, seq: int) -> bytes: ...


# ---- pgcdc


class PgcdcEnvelope:
    def __init__(self, table: Table) -> None:
        self.key = table.key
        self._fields = table.fields
        self._table = string(table.name.encode())
        schema = b"" if table.schema == "public" else b',"schema":' + string(table.schema.encode())
        self._end = schema + b"}"
        closing = b'},"old":null' + self._end
        whole, width = table.fields, table.width
        self._insert = compiled(whole, width, self._opening(b"INSERT") + b"{", closing)
        self._snapshot = compiled(whole, width, self._opening(b"SNAPSHOT") + b"{", closing)
        self._update = compiled(whole, width, self._opening(b"UPDATE") + b"{", closing)
        opening = self._opening(b"DELETE") + b"{"
        self._delete = compiled(whole, width, opening, closing)
        self._delete_key = compiled(table.identity_fields, width, opening, closing)
        self._row = compiled(whole, width)
        self._identity = compiled(table.identity_fields, width)

    def _opening(self, operation: bytes) -> bytes:
        return b'{"op":"%b","table":%b,"row":' % (operation, self._table)

    def insert(self, new: Row, _: Transaction, __: int) -> bytes:
        try:
            return self._insert(new)
        except UnknownValueError:
            return self._partial(b"INSERT", new, b"null")

    def snapshot(self, new: Row, _: Transaction, __: int) -> bytes:
        return self._snapshot(new)

    def update(self, new: Row, old: Row | None, is_whole: bool, _: Transaction, __: int) -> bytes:
        try:
            if old is None:
                return self._update(new)
            row = self._row(new)
        except UnknownValueError:
            return self._partial(b"UPDATE", new, self._old(old, is_whole))
        before = self._old(old, is_whole)
        return b"".join((self._opening(b"UPDATE"), row, b',"old":', before, self._end))

    def delete(self, old: Row, is_whole: bool, _: Transaction, __: int) -> bytes:
        return self._delete(old) if is_whole else self._delete_key(old)

    def truncate(self, _: Transaction, __: int) -> bytes:
        return self._opening(b"TRUNCATE") + b'null,"old":null' + self._end

    def _old(self, old: Row | None, is_whole: bool) -> bytes:
        if old is None:
            return b"null"
        return self._row(old) if is_whole else self._identity(old)

    def _partial(self, operation: bytes, new: Row, old: bytes) -> bytes:
        row, missing = partial(self._fields, new)
        unchanged = b',"_unchanged_toast_columns":' + json_list(missing)
        opening = self._opening(operation)
        return b"".join((opening, row, b'},"old":', old, self._end[:-1], unchanged, b"}"))


# ---- debezium


class DebeziumEnvelope:
    def __init__(self, table: Table, capture: str, database: str) -> None:
        self.key = key_object(table.key_fields)
        self._fields = table.fields
        whole, width = table.fields, table.width
        self._insert = compiled(whole, width, b'{"before":null,"after":{', b'},"source":')
        self._delete = compiled(whole, width, b'{"before":{', b'},"after":null,"source":')
        self._delete_key = compiled(
            table.identity_fields, width, b'{"before":{', b'},"after":null,"source":'
        )
        self._row = compiled(whole, width)
        self._identity = compiled(table.identity_fields, width)
        name, db = string(capture.encode()), string(database.encode())
        version = string(__version__.encode())
        self._source = b'{"version":%b,"connector":"postgresql","name":%b,"ts_ms":' % (
            version,
            name,
        )
        self._database = b',"db":%b,"sequence":"[\\"' % db
        place = (string(table.schema.encode()), string(table.name.encode()))
        self._place = b'\\"]","schema":%b,"table":%b,"txId":' % place
        self._transaction: Transaction | None = None
        self._ends: dict[bytes, tuple[bytes, bytes]] = {}

    def insert(self, new: Row, transaction: Transaction, seq: int) -> bytes:
        return self._after(new, transaction, seq, b"c")

    def snapshot(self, new: Row, transaction: Transaction, seq: int) -> bytes:
        return self._insert(new) + self._end(transaction, seq, b"r")

    def update(
        self, new: Row, old: Row | None, is_whole: bool, transaction: Transaction, seq: int
    ) -> bytes:
        if old is None:
            return self._after(new, transaction, seq, b"u")
        before = self._row(old) if is_whole else self._identity(old)
        after, end = self._shown(new), self._end(transaction, seq, b"u")
        return b"".join((b'{"before":', before, b',"after":', after, b',"source":', end))

    def delete(self, old: Row, is_whole: bool, transaction: Transaction, seq: int) -> bytes:
        before = self._delete(old) if is_whole else self._delete_key(old)
        return before + self._end(transaction, seq, b"d")

    def truncate(self, transaction: Transaction, seq: int) -> bytes:
        return b'{"before":null,"after":null,"source":' + self._end(transaction, seq, b"t")

    def _after(self, new: Row, transaction: Transaction, seq: int, operation: bytes) -> bytes:
        end = self._end(transaction, seq, operation)
        try:
            return self._insert(new) + end
        except UnknownValueError:
            shown = partial(self._fields, new, UNAVAILABLE)[0]
            return b"".join((b'{"before":null,"after":', shown, b'},"source":', end))

    def _shown(self, row: Row) -> bytes:
        try:
            return self._row(row)
        except UnknownValueError:
            return partial(self._fields, row, UNAVAILABLE)[0] + b"}"

    def _end(self, transaction: Transaction, seq: int, operation: bytes) -> bytes:
        """The end of a value from the source on. Within a transaction only `seq` differs."""
        if transaction is not self._transaction:
            self._transaction = transaction
            self._ends.clear()
        around = self._ends.get(operation)
        if around is None:
            around = self._ends[operation] = self._around_seq(transaction, operation)
        return b"%b%d%b" % (around[0], seq, around[1])

    def _around_seq(self, transaction: Transaction, operation: bytes) -> tuple[bytes, bytes]:
        time, lsn = transaction.time_ms, transaction.lsn
        snapshot = b"true" if operation == b"r" else b"false"
        before = b'%b%d,"snapshot":"%b"%b%d\\",\\"' % (
            self._source,
            time,
            snapshot,
            self._database,
            lsn,
        )
        after = b'%b%d,"lsn":%d,"xmin":null},"op":"%b","ts_ms":%d,"transaction":null}' % (
            self._place,
            transaction.xid,
            lsn,
            operation,
            time,
        )
        return before, after


# ---- flat


class FlatEnvelope:
    def __init__(self, table: Table) -> None:
        self.key = table.key
        self._fields = table.fields
        self._table = b',"__table":' + string(table.label.encode()) + b',"__lsn":"'
        self._whole = _open(table.fields, table.width)
        self._identity = _open(table.identity_fields, table.width)

    def insert(self, new: Row, transaction: Transaction, seq: int) -> bytes:
        return self._shown(new, transaction, seq, b"INSERT")

    def snapshot(self, new: Row, transaction: Transaction, seq: int) -> bytes:
        return self._shown(new, transaction, seq, b"SNAPSHOT")

    def update(
        self, new: Row, _: Row | None, __: bool, transaction: Transaction, seq: int
    ) -> bytes:
        return self._shown(new, transaction, seq, b"UPDATE")

    def delete(self, old: Row, is_whole: bool, transaction: Transaction, seq: int) -> bytes:
        row = self._whole(old) if is_whole else self._identity(old)
        return row + self._end(transaction, seq, b"DELETE", b"true")

    def truncate(self, transaction: Transaction, seq: int) -> bytes:
        return b"{" + self._end(transaction, seq, b"TRUNCATE", b"true")

    def _shown(self, row: Row, transaction: Transaction, seq: int, operation: bytes) -> bytes:
        end = self._end(transaction, seq, operation, b"false")
        try:
            return self._whole(row) + end
        except UnknownValueError:
            known, missing = partial(self._fields, row)
            comma = b"," if len(known) > 1 else b""
            return b"".join((known, comma, end[:-1], b',"__unchanged":', json_list(missing), b"}"))

    def _end(self, transaction: Transaction, seq: int, operation: bytes, deleted: bytes) -> bytes:
        return b'"__op":"%b"%b%b","__seq":%d,"__ts_ms":%d,"__deleted":%b}' % (
            operation,
            self._table,
            transaction.lsn_text,
            seq,
            transaction.time_ms,
            deleted,
        )


def _open(fields: Sequence[Field], width: int) -> EncodeRow:
    """An encoder of rows whose object is left open."""
    return compiled(fields, width, closing=b"," if fields else b"")
