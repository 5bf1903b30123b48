"""Values as Debezium writes them by default, with `decimal.handling.mode=string`.

Dates and times are numbers whose unit follows from the column's precision; JSON is a string.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import date
from typing import Final

from dragoman.errors import DecodeError
from dragoman.protocols.postgres.messages import Column
from dragoman.protocols.postgres.types import Kind
from dragoman.protocols.postgres.values import (
    STRING,
    Form,
    ToJson,
    array,
    form_of,
    string,
)

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_US: Final = 86_400_000_000
#: Precision up to which times are milliseconds; beyond, and by default, microseconds.
_MILLISECONDS_DIGITS: Final = 3
_DAYS_PER_MONTH: Final = 365.25 / 12
#: The largest and smallest that their types can hold.
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
    """None where it is as in the other envelopes."""
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
    """Since 1970, in the calendar that PostgreSQL counts back to year 1 BC and before."""
    found = _DATE.match(text)
    if found is None:
        raise DecodeError(f"{text[:40]!r} is not a date")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if text.endswith(b"BC"):
        year = 1 - year
    # Dates repeat every 400 years, also beyond those that Python has.
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
    """In UTC."""
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
    """Bytes, the last bits first."""
    if text.strip(b"01"):
        raise DecodeError(f"{text[:40]!r} is not a string of bits")
    value = int(text, 2) if text else 0
    return b'"%b"' % b64encode(value.to_bytes((len(text) + 7) // 8, "little"))
