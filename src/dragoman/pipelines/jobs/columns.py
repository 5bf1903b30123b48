"""Converts JSON values to typed columns, without loss.

A column has its declared type, or the narrowest type that fits the values seen: `boolean`,
`bigint`, `double`, `decimal(38,0)` for integers beyond 64 bits, and `string` for text, for JSON
within JSON (its original text) and for values without a common type. PostgreSQL's `numeric` arrives
as text and stays text unless a decimal is declared. A value that a type cannot represent exactly is
never rounded: the type is widened, or the value is refused.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
import pyarrow as pa

from dragoman.errors import ConfigError

#: A row: column → JSON text of its value.
RawRow: TypeAlias = Mapping[str, msgspec.Raw]

decode_row = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_NULL = b"null"
_INTEGERS = msgspec.json.Decoder(list[int | None])
_NUMBERS = msgspec.json.Decoder(list[float | None])
_TRUTHS = msgspec.json.Decoder(list[bool | None])
_TEXTS = msgspec.json.Decoder(list[str | None])
#: From this value on, a double cannot represent every integer.
_EXACT_MAX = 2**53
_INTEGER, _FLOAT, _TEXT = pa.int64(), pa.float64(), pa.string()
_WIDE_INTEGER = pa.decimal128(38, 0)
#: The first bytes of booleans and numbers.
_TRUTH = {b"t", b"f"}
_NUMBER = {b"-", *(b"%d" % digit for digit in range(10))}
#: PostgreSQL's floating-point values that JSON can only hold as text.
_NOT_FINITE = {b'"NaN"': b"NaN", b'"Infinity"': b"Infinity", b'"-Infinity"': b"-Infinity"}


class MisfitError(ConfigError):
    """A value that its column's type cannot hold."""


def names_in(rows: Iterable[RawRow]) -> list[str]:
    """The columns of rows, in order of first appearance."""
    found: dict[str, None] = {}
    for row in rows:
        if not row.keys() <= found.keys():
            found.update(dict.fromkeys(row))
    return list(found)


def raw_values(rows: Sequence[RawRow], name: str) -> list[bytes]:
    """JSON text of one column; null for a row without it."""
    return [bytes(row[name]) if name in row else _NULL for row in rows]


# ---- types


def fitting_type(raws: Sequence[bytes]) -> pa.DataType | None:
    """The narrowest type that holds all values; None when there are only nulls."""
    firsts = {raw[:1] for raw in raws if raw != _NULL}
    if not firsts:
        return None
    if firsts <= _TRUTH:
        return pa.bool_()
    if not firsts <= _NUMBER:
        return pa.string()
    kinds = {_kind(raw) for raw in raws if raw != _NULL}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return _WIDE_INTEGER if kinds == {pa.int64(), _WIDE_INTEGER} else pa.string()


def _kind(raw: bytes) -> pa.DataType:
    """The type of a number."""
    if b"." in raw or b"e" in raw or b"E" in raw:
        return _FLOAT
    digits = len(raw.lstrip(b"-"))
    if digits < 19 or -(2**63) <= int(raw) < 2**63:
        return _INTEGER
    return _WIDE_INTEGER if digits <= 38 else _TEXT


def widened(known: pa.DataType, seen: pa.DataType) -> list[pa.DataType]:
    """Types that may fit the values of both, narrowest first; the last one always does."""
    if {known, seen} == {pa.int64(), pa.float64()}:
        return [pa.float64(), pa.string()]
    if {known, seen} == {pa.int64(), _WIDE_INTEGER}:
        return [_WIDE_INTEGER, pa.string()]
    return [pa.string()]


def cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to a wider type. Raises `MisfitError`."""
    if pa.types.is_string(kind) and pa.types.is_boolean(column.type):
        return column.cast(kind)
    try:
        return column.cast(kind, safe=True)
    except pa.ArrowInvalid as error:
        raise MisfitError(str(error)) from None


# ---- values


def column_of(raws: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """A column of JSON texts. Raises `MisfitError` when a value does not fit exactly."""
    try:
        return _column_of(raws, kind)
    except (msgspec.DecodeError, pa.ArrowException, OverflowError, ValueError) as error:
        raise MisfitError(str(error)) from None


def first_misfit(raws: Sequence[bytes], kind: pa.DataType) -> int:
    """The index of the first value that does not fit."""
    low, high = 0, len(raws)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column_of(raws[low:middle], kind)
            low = middle
        except MisfitError:
            high = middle
    return low


def _column_of(raws: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return _texts(raws)
    if pa.types.is_integer(kind):
        return pa.array(_INTEGERS.decode(_listed(raws)), kind)
    if pa.types.is_floating(kind):
        return _floats(raws, kind)
    if pa.types.is_boolean(kind):
        return pa.array(_TRUTHS.decode(_listed(raws)), kind)
    if pa.types.is_binary(kind):
        texts = _TEXTS.decode(_listed(raws))
        return pa.array(
            [None if each is None else base64.b64decode(each, validate=True) for each in texts],
            kind,
        )
    if pa.types.is_decimal(kind):
        # Parsed from the digits of the JSON number, because an intermediate float would round it.
        texts = [None if raw == _NULL else raw.strip(b'"').decode() for raw in raws]
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_temporal(kind):
        return _times(_texts(raws), kind)
    built: pa.Array = pa.array(msgspec.json.decode(_listed(raws)), kind)
    return built


def _listed(raws: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(raws) + b"]"


def _texts(raws: Sequence[bytes]) -> pa.Array:
    """The content of strings, and the JSON text of everything else."""
    if all(raw[:1] == b'"' or raw == _NULL for raw in raws):
        return pa.array(_TEXTS.decode(_listed(raws)), pa.string())
    texts = [
        None
        if raw == _NULL
        else msgspec.json.decode(raw, type=str)
        if raw[:1] == b'"'
        else raw.decode()
        for raw in raws
    ]
    return pa.array(texts, pa.string())


def _floats(raws: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    if any(raw[:1] == b'"' for raw in raws):
        numbers = [
            None if raw == _NULL else float(_NOT_FINITE.get(raw, raw).decode()) for raw in raws
        ]
    else:
        numbers = _NUMBERS.decode(_listed(raws))
    for raw, number in zip(raws, numbers, strict=True):
        if number is not None and abs(number) >= _EXACT_MAX and _is_rounded(raw, number):
            raise MisfitError(f"{raw.decode()} is not exact as {kind}")
    return pa.array(numbers, kind)


def _is_rounded(raw: bytes, number: float) -> bool:
    """Whether an integer was rounded. Fractions are the printed form of a double, hence exact."""
    is_integer = raw[:1] in _NUMBER and _kind(raw) != _FLOAT
    return is_integer and (not math.isfinite(number) or int(number) != int(raw))


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is None:
        # Arrow accepts no time zone here, and none is sent for a timestamp without time zone.
        return texts.cast(pa.timestamp(kind.unit))
    return texts.cast(kind)
