"""Goal: schemas from users are what a format can give, and no null goes where Spark wants none.

Method: types and columns by hand.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from dragoman.errors import ConfigError
from dragoman.spark.values.decoded import check_fits, forbidden_nulls


def _struct(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


_INNER = _struct(x=IntegerType(), y=StringType())
_FOUND = _struct(
    n=IntegerType(),
    items=ArrayType(_INNER, containsNull=False),
    by_name=MapType(StringType(), _INNER),
)


def test_fields_may_be_left_out_at_any_depth() -> None:
    fewer = _struct(y=StringType())
    check_fits(_FOUND, _FOUND)
    check_fits(_FOUND, _struct(items=ArrayType(fewer), n=IntegerType()))
    check_fits(_FOUND, _struct(by_name=MapType(StringType(), fewer)))
    check_fits(StringType(), StringType())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (StringType(), r"value is struct<.*>, the schema has string"),
        (_struct(m=IntegerType()), "value has no field 'm'; its fields are n, items, by_name"),
        (_struct(n=LongType()), r"value\.n is int, the schema has bigint"),
        (_struct(items=ArrayType(_struct(z=IntegerType()))), r"value\.items has no field 'z'"),
        (_struct(by_name=MapType(IntegerType(), _INNER)), r"value\.by_name is string"),
    ],
)
def test_other_fields_and_types_are_refused(wanted: DataType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_fits(_FOUND, wanted)


def _field(kind: pa.DataType, *, nullable: bool = True) -> pa.Field:
    return pa.field("value", kind, nullable=nullable)


_STRICT = pa.field("n", pa.int32(), nullable=False)
_LOOSE = pa.field("s", pa.string())


@pytest.mark.parametrize(
    ("field", "rows", "found"),
    [
        (_field(pa.int32()), [1, None], {}),
        (_field(pa.int32(), nullable=False), [1, None], {1: "value is null"}),
        (
            _field(pa.struct([_STRICT, _LOOSE])),
            [{"n": 1}, None, {"s": "x"}],
            {2: "value.n is null"},
        ),
        (
            _field(pa.struct([pa.field("i", pa.struct([_STRICT]))])),
            [{"i": {"n": 1}}, {"i": None}, {"i": {}}],
            {2: "value.i.n is null"},
        ),
        (
            _field(pa.list_(pa.field("element", pa.int32(), nullable=False))),
            [[1], None, [], [1, None]],
            {3: "value.element is null"},
        ),
        (
            _field(pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
            [[("a", 1)], None, [("a", 1), ("b", None)], [("c", 1)]],
            {2: "value.value is null"},
        ),
    ],
)
def test_nulls_are_found_where_they_are_forbidden(
    field: pa.Field, rows: list[Any], found: dict[int, str]
) -> None:
    array = pa.array([None, *rows, None], field.type)[1:-1]
    expected = {row: f"{text}, the schema has NOT NULL" for row, text in found.items()}
    assert forbidden_nulls(array, field) == expected
