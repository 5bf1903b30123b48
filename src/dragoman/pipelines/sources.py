"""Where a pipeline's rows come from, as Spark's tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dragoman.errors import ConfigError
from dragoman.pipelines.definition import CdcSource, OptionValue, TableSource, TopicSource
from dragoman.spark.tables import frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DEBEZIUM_OPERATIONS = {
    "c": "INSERT",
    "u": "UPDATE",
    "d": "DELETE",
    "r": "SNAPSHOT",
    "t": "TRUNCATE",
}


def topic_frame(spark: SparkSession, source: TopicSource) -> DataFrame:
    options: dict[str, str] = {} if source.decode == "raw" else {"decode": source.decode}
    if source.schema:
        options["valueSchema"] = source.schema
    if source.headers:
        options["includeHeaders"] = "true"
    options |= _starting(source.starting)
    if source.stream:
        options["maxOffsetsPerTrigger"] = str(source.batch_records)
    options |= as_text(source.options)
    found = frame(spark, source.topic, source.bootstrap, "", options, stream=source.stream)
    if source.decode == "raw":
        return found
    return found.withColumn("key", found["key"].cast("string"))


def cdc_frame(spark: SparkSession, source: CdcSource) -> DataFrame:
    """A row's columns, and beside them what happened to it; tombstones are left out."""
    options = {
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(source.batch_records),
        **_starting(source.starting),
        **as_text(source.options),
    }
    records = frame(spark, source.topic, source.bootstrap, "", options, stream=True)
    text = f.col("value").cast("string")
    parsed = records.where("value is not null").withColumn(
        "value", f.from_json(text, _envelope(source), {"mode": "FAILFAST"})
    )
    if source.envelope == "debezium":
        row, before = f.expr("coalesce(value.after, value.before)"), f.col("value.before")
        operation: Column = _renamed(f.col("value.op"), _DEBEZIUM_OPERATIONS)
    elif source.envelope == "pgcdc":
        row, before, operation = f.col("value.row"), f.col("value.old"), f.col("value.op")
    else:
        row, before, operation = f.col("value"), f.lit(None), f.col("value.__op")
    names = _columns(source.schema)
    return parsed.select(
        *(row.getField(name).alias(name) for name in names),
        f.coalesce(_header("pgcdc-operation"), operation).alias("_operation"),
        before.alias("_before"),
        _header("pgcdc-lsn").alias("_lsn"),
        _header("pgcdc-seq").cast("long").alias("_seq"),
        f.col("key").cast("string").alias("_key"),
        f.col("timestamp").alias("_timestamp"),
        f.col("partition").alias("_partition"),
        f.col("offset").alias("_offset"),
    )


def _columns(schema: str) -> list[str]:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found.fieldNames()


def _envelope(source: CdcSource) -> str:
    row = f"struct<{source.schema}>"
    match source.envelope:
        case "pgcdc":
            return f"op string, row {row}, old {row}"
        case "debezium":
            return f"op string, before {row}, after {row}"
        case _:
            return f"{source.schema}, __op string"


def _header(name: str) -> Column:
    return f.expr(f"try_element_at(filter(headers, h -> h.key = '{name}'), 1).value").cast("string")


def _renamed(column: Column, names: Mapping[str, str]) -> Column:
    pairs = [f.lit(each) for pair in names.items() for each in pair]
    return f.coalesce(f.create_map(*pairs)[column], column)


def table_frame(spark: SparkSession, source: TableSource) -> DataFrame:
    if source.format == "delta":
        from dragoman.pipelines.jobs.delta import delta_frame

        return delta_frame(spark, source.path)
    schema = source.schema
    if source.stream and not schema:
        # Streams of files have to be told.
        return spark.readStream.schema(spark.read.parquet(source.path).schema).parquet(source.path)
    if source.stream:
        return spark.readStream.schema(schema).parquet(source.path)
    return (spark.read.schema(schema) if schema else spark.read).parquet(source.path)


def _starting(text: str) -> dict[str, str]:
    """Offsets as the source takes them, or a moment."""
    if text in ("earliest", "latest") or text.startswith("{"):
        return {"startingOffsets": text}
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            "starting: expected earliest, latest, a time such as 2026-01-31T12:00:00Z, "
            f"or offsets as JSON, got {text!r}"
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return {"startingTimestamp": str(int(moment.timestamp() * 1000))}


def as_text(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """As Spark takes options and settings."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
