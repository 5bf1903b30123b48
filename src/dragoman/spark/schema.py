"""The columns of a topic, which are those of Spark's Kafka source, and selections of them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dragoman.errors import ConfigError

HEADERS = "headers"
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            HEADERS,
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)
#: All other columns are never null, except headers.
_NULLABLE = ("key", "value")


def columns_wanted(names: Sequence[str], *, include_headers: bool) -> StructType:
    """The named columns in the given order, or all. Raises `ConfigError`."""
    if not names:
        every = COLUMNS.fieldNames()
        names = every if include_headers else [name for name in every if name != HEADERS]
    known = {field.name.lower(): field for field in COLUMNS.fields}
    try:
        return StructType([known[name.lower()] for name in names])
    except KeyError as error:
        listed = ", ".join(COLUMNS.fieldNames())
        raise ConfigError(f"there is no column {error}; the columns are {listed}") from None


def check_columns(schema: StructType, *, is_value_typed: bool = False) -> None:
    """Raises `ConfigError` for a user's schema that is not a selection of the columns."""
    for field in schema.fields:
        known = next((each for each in COLUMNS.fields if each.name == field.name), None)
        if known is None:
            listed = ", ".join(COLUMNS.fieldNames())
            raise ConfigError(f"there is no column {field.name!r}; the columns are {listed}")
        if field.name == "value" and is_value_typed:
            continue
        if field.name in _NULLABLE and not field.nullable:
            # Spark would trust the schema and read a null as an arbitrary value.
            raise ConfigError(f"column {field.name} may be null, the schema has NOT NULL")
        if known.dataType != field.dataType:
            wanted, is_type = field.dataType.simpleString(), known.dataType.simpleString()
            raise ConfigError(f"column {field.name} is {is_type}, the schema has {wanted}")
