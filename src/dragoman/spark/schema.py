"""The columns of a topic: those of Spark's Kafka source, all of them or the ones asked for."""

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
#: The others never are.
_NULL_AT_TIMES = ("key", "value")


def columns_wanted(names: Sequence[str], *, include_headers: bool) -> StructType:
    """All columns, or those named in the order they were named. Raises `ConfigError`."""
    if not names:
        every = COLUMNS.fieldNames()
        names = every if include_headers else [name for name in every if name != HEADERS]
    known = {field.name.lower(): field for field in COLUMNS.fields}
    try:
        return StructType([known[name.lower()] for name in names])
    except KeyError as error:
        listed = ", ".join(COLUMNS.fieldNames())
        raise ConfigError(f"there is no column {error}; there are {listed}") from None


def check_columns(schema: StructType, *, is_value_typed: bool = False) -> None:
    """A schema from the user must be a choice of the columns. Raises `ConfigError`."""
    for field in schema.fields:
        known = next((each for each in COLUMNS.fields if each.name == field.name), None)
        if known is None:
            listed = ", ".join(COLUMNS.fieldNames())
            raise ConfigError(f"there is no column {field.name!r}; there are {listed}")
        if field.name == "value" and is_value_typed:
            continue
        if field.name in _NULL_AT_TIMES and not field.nullable:
            # Spark would believe it, and read a null as some value.
            raise ConfigError(f"column {field.name} may be null, the schema says NOT NULL")
        if known.dataType != field.dataType:
            wanted, is_type = field.dataType.simpleString(), known.dataType.simpleString()
            raise ConfigError(f"column {field.name} is {is_type}, the schema says {wanted}")
