"""Envelopes: the formats of a record's value. Each table has its own envelope object.

    pgcdc      {"op":…,"table":…,"row":{…},"old":…}
    debezium   {"before":…,"after":…,"source":{…},"op":…,"ts_ms":…}
    flat       {columns…,"__op":…,"__table":…,…}

A row encoder is compiled together with the text before and after the row, so that a value takes one
join.

Column values in Debezium's envelope are formatted as by Debezium's defaults with
`decimal.handling.mode=string`: dates and times are numbers whose unit follows from the column's
precision, and JSON is a string.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import date
from typing import Final, Protocol

from dragoman import __version__
from dragoman.cdc.events.records import Transaction
from dragoman.cdc.events.tables import (
    EncodeRow,
    Field,
    Table,
    UnknownValueError,
    compiled,
    json_list,
    key_object,
    partial,
)
from dragoman.errors import DecodeError
from dragoman.protocols.postgres.messages import Column, Row
from dragoman.protocols.postgres.types import Kind
from dragoman.protocols.postgres.values import STRING, Form, ToJson, array, form_of, string

#: The value that Debezium writes for an unchanged TOAST column.
UNAVAILABLE: Final = b'"__debezium_unavailable_value"'


class Envelope(Protocol):
    """Builds the values of one table's events. `seq` numbers the events of a transaction. A partial
    old row has only the columns of the replica identity.
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
        """The end of a value, from `source` on. Within a transaction only `seq` differs."""
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
    """An encoder that leaves the row's JSON object open."""
    return compiled(fields, width, closing=b"," if fields else b"")


# ---- values in the form of Debezium


_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
#: Precision up to which times are in milliseconds; a higher or unspecified precision means
#: microseconds.
_MILLISECONDS_DIGITS: Final = 3
_DAYS_PER_MONTH: Final = 365.25 / 12
#: The values for infinity: the largest and smallest of the type.
_INFINITE_DAYS: Final = {b"infinity": b"2147483647", b"-infinity": b"-2147483648"}
_INFINITE_TIMES: Final = {
    b"infinity": b"9223372036825200000",
    b"-infinity": b"-9223372036832400000",
}
_DATE: Final = re.compile(rb"(\d{4,9})-(\d\d)-(\d\d)")
_TIME: Final = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE: Final = re.compile(rb"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?\Z")
_INTERVAL_UNIT: Final = re.compile(rb"([+-]?\d{1,12}) (year|mon|day)s?")
_INTERVAL_TIME: Final = re.compile(rb"([+-]?)(\d{1,12}):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z")


def debezium_form(kind: Kind, column: Column) -> Form:
    form = _single(kind.name, column.modifier)
    if form is None:
        return form_of(kind)
    return Form(array(form.to_json, kind.name)) if kind.is_array else form


def _single(name: str, modifier: int) -> Form | None:
    """Debezium's format of a single value; None if it is the same as in other envelopes."""
    in_ms = 0 <= modifier <= _MILLISECONDS_DIGITS
    match name:
        case "date":
            return Form(_date)
        case "time":
            return Form(_in_unit(_time_us, in_ms))
        case "timestamp":
            return Form(_in_unit(_timestamp_us, in_ms, _INFINITE_TIMES))
        case "timetz":
            return Form(_timetz)
        case "interval":
            return Form(_interval)
        case "json" | "jsonb":
            return STRING
        case "money":
            return Form(_money)
        case "bit" | "varbit":
            return Form(_single_bit) if modifier == 1 else Form(_bits)
        case _:
            return None


def _in_unit(
    to_us: Callable[[bytes], int], in_ms: bool, names: dict[bytes, bytes] | None = None
) -> ToJson:
    special = names or {}

    def to_json(text: bytes) -> bytes:
        if text in special:
            return special[text]
        value = to_us(text)
        return b"%d" % (value // 1000 if in_ms else value)

    return to_json


def _date(text: bytes) -> bytes:
    if text in _INFINITE_DAYS:
        return _INFINITE_DAYS[text]
    return b"%d" % _days(text)


def _days(text: bytes) -> int:
    """Days since 1970 in the proleptic Gregorian calendar of PostgreSQL."""
    found = _DATE.match(text)
    if found is None:
        raise DecodeError(f"{text[:40]!r} is not a date")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if text.endswith(b"BC"):
        year = 1 - year
    # The calendar repeats every 400 years, so years beyond Python's range are mapped to earlier
    # ones.
    eras, year = divmod(year - 1, 400)
    try:
        return date(year + 1, month, day).toordinal() - _EPOCH_DAY + eras * 146_097
    except ValueError:
        raise DecodeError(f"{text[:40]!r} is not a date") from None


def _time_us(text: bytes) -> int:
    found = _TIME.match(text)
    if found is None:
        raise DecodeError(f"{text[:40]!r} is not a time")
    seconds = (int(found[1]) * 60 + int(found[2])) * 60 + int(found[3])
    return seconds * 1_000_000 + int((found[4] or b"").ljust(6, b"0"))


def _timestamp_us(text: bytes) -> int:
    day, _, time = text.partition(b" ")
    era = b" BC" if text.endswith(b"BC") else b""
    return _days(day + era) * _DAY_US + _time_us(time)


def _timetz(text: bytes) -> bytes:
    """The time in UTC."""
    zone = _ZONE.search(text)
    if zone is None:
        raise DecodeError(f"{text[:40]!r} is not a time with a zone")
    sign, hours, minutes, seconds = zone.groups()
    offset = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    away = offset * (-1_000_000 if sign == b"+" else 1_000_000)
    whole, fraction = divmod((_time_us(text) + away) % _DAY_US, 1_000_000)
    clock = b"%02d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60)
    shown = (b".%06d" % fraction).rstrip(b"0") if fraction else b""
    return b'"%b%bZ"' % (clock, shown)


def _interval(text: bytes) -> bytes:
    """Microseconds, with 365.25 / 12 days to a month, as `interval.handling.mode=numeric` has."""
    amounts = {b"year": 0, b"mon": 0, b"day": 0}
    for amount, unit in _INTERVAL_UNIT.findall(text):
        amounts[unit] = int(amount)
    time = 0
    if (found := _INTERVAL_TIME.search(text)) is not None:
        seconds = (int(found[2]) * 60 + int(found[3])) * 60 + int(found[4])
        time = seconds * 1_000_000 + int((found[5] or b"").ljust(6, b"0"))
        time = -time if found[1] == b"-" else time
    months = amounts[b"year"] * 12 + amounts[b"mon"]
    return b"%d" % (int(months * _DAYS_PER_MONTH * _DAY_US) + amounts[b"day"] * _DAY_US + time)


def _money(text: bytes) -> bytes:
    return string(re.sub(rb"[^0-9.-]", b"", text))


def _single_bit(text: bytes) -> bytes:
    return b"true" if text == b"1" else b"false"


def _bits(text: bytes) -> bytes:
    """The bytes in base64, least significant first."""
    if text.strip(b"01"):
        raise DecodeError(f"{text[:40]!r} is not a string of bits")
    value = int(text, 2) if text else 0
    return b'"%b"' % b64encode(value.to_bytes((len(text) + 7) // 8, "little"))
