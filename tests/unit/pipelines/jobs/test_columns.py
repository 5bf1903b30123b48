"""Goal: no value changes on its way from JSON into a column.

Method: JSON texts with the type they need and the column they become.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from dragoman.pipelines.jobs.columns import (
    MisfitError,
    column_of,
    decode_row,
    first_misfit,
    fitting_type,
    names_in,
    raw_values,
    widened,
)

WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("raws", "kind", "values"),
    [
        ([b"1", b"null", b"-7"], pa.int64(), [1, None, -7]),
        ([b"9223372036854775807"], pa.int64(), [2**63 - 1]),
        ([b"9223372036854775808"], WIDE, [Decimal(2**63)]),
        ([b"1", b"1.5", b"2e3"], pa.float64(), [1.0, 1.5, 2000.0]),
        ([b"true", b"null"], pa.bool_(), [True, None]),
        ([b'"a"', b'"\\u00e4\\n"'], pa.string(), ["a", "ä\n"]),
        ([b'"12.50"'], pa.string(), ["12.50"]),
        ([b'{"a": 1.00}', b"[1, 2]"], pa.string(), ['{"a": 1.00}', "[1, 2]"]),
        ([b"1", b'"one"', b"true"], pa.string(), ["1", "one", "true"]),
        ([b"1" * 40], pa.string(), ["1" * 40]),
    ],
)
def test_type_fits_and_keeps_values(
    raws: list[bytes], kind: pa.DataType, values: list[object]
) -> None:
    assert fitting_type(raws) == kind
    assert column_of(raws, kind).to_pylist() == values


def test_nulls_alone_have_no_type() -> None:
    assert fitting_type([b"null", b"null"]) is None


@pytest.mark.parametrize(
    ("raws", "kind", "texts"),
    [
        ([b'"12.50"', b"3.1"], pa.decimal128(38, 10), ["12.5000000000", "3.1000000000"]),
        ([b'"2026-01-02"'], pa.date32(), ["2026-01-02"]),
        (
            [b'"2026-01-02T03:04:05.123456Z"', b'"2026-01-02 03:04:05+02:00"'],
            pa.timestamp("us", "UTC"),
            ["2026-01-02 03:04:05.123456+00:00", "2026-01-02 01:04:05+00:00"],
        ),
        ([b'"2026-01-02T03:04:05"'], pa.timestamp("us"), ["2026-01-02 03:04:05"]),
        ([b'"aGk="'], pa.binary(), ["b'hi'"]),
        ([b'"NaN"', b'"-Infinity"', b"1"], pa.float64(), ["nan", "-inf", "1.0"]),
        ([b"[1, null]"], pa.list_(pa.int64()), ["[1, None]"]),
        ([b"7"], pa.int16(), ["7"]),
    ],
)
def test_declared_types_are_read_exactly(
    raws: list[bytes], kind: pa.DataType, texts: list[str]
) -> None:
    assert [str(value) for value in column_of(raws, kind).to_pylist()] == texts


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'"1.55"', pa.decimal128(5, 1)),
        (b"9007199254740993", pa.float64()),
        (b"1" * 400, pa.float64()),
        (b"70000", pa.int16()),
        (b"1.5", pa.int64()),
        (b'"one"', pa.float64()),
        (b'"yes"', pa.bool_()),
        (b'"soon"', pa.timestamp("us", "UTC")),
        (b'"%%"', pa.binary()),
        (b"1" * 20, pa.int64()),
    ],
)
def test_value_that_would_change_is_refused(raw: bytes, kind: pa.DataType) -> None:
    with pytest.raises(MisfitError):
        column_of([b"null", raw], kind)
    assert first_misfit([b"null", raw, b"null"], kind) == 1


def test_integers_and_fractions_widen_to_double_or_text() -> None:
    assert widened(pa.int64(), pa.float64()) == [pa.float64(), pa.string()]
    assert widened(pa.int64(), WIDE) == [WIDE, pa.string()]
    assert widened(pa.bool_(), pa.int64()) == [pa.string()]


def test_missing_columns_are_null() -> None:
    rows = [decode_row(b'{"a": 1}'), decode_row(b'{"b": "x", "a": 2}'), {}]
    assert names_in(rows) == ["a", "b"]
    assert raw_values(rows, "b") == [b"null", b'"x"', b"null"]
