"""Builds Spark tables from a definition: sources, then steps in order, then sinks.

Spark analyzes each query when it is created, so an error is reported before any query starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dragoman.errors import ConfigError, DragomanError
from dragoman.pipelines.definition import (
    CdcSource,
    Definition,
    OptionValue,
    PythonSource,
    Source,
    Step,
    TableSource,
    TopicSource,
    Watermark,
)
from dragoman.pipelines.pipeline_file import PipelineFileError, inputs_of
from dragoman.spark.failures import readable, without_spark_logs
from dragoman.spark.tables import frame

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


class Tables:
    """A pipeline's tables in a session, by name, and as views for SQL."""

    def __init__(self, spark: SparkSession, definition: Definition) -> None:
        self._spark = spark
        self._definition = definition
        self._frames: dict[str, DataFrame] = {}

    def build(self) -> dict[str, DataFrame]:
        """The table of each sink. Raises `PipelineFileError`."""
        for name, source in self._definition.sources.items():
            with self.errors_of(f"sources.{name}"):
                frame = self._source(name, source)
                self._define(name, frame, source.watermark)
        for name, step in self._definition.steps.items():
            with self.errors_of(f"steps.{name}"):
                self._define(name, self._step(name, step), step.watermark)
        sinks = {}
        for name, sink in self._definition.sinks.items():
            with self.errors_of(f"sinks.{name}"):
                frame = self._called(f"sinks.{name}", self._frames[sink.source])
                if not frame.isStreaming:
                    raise ConfigError(
                        f"{sink.source} is a table that does not grow; read one of its sources "
                        "with stream = true, or copy it with a job of type replay"
                    )
                sinks[name] = frame
        return sinks

    @contextmanager
    def errors_of(self, part: str) -> Iterator[None]:
        """A context that converts errors of Spark, a source or a user's function to errors that
        name the part.
        """
        try:
            with without_spark_logs():
                yield
        except PipelineFileError:
            raise
        except (PySparkException, DragomanError) as error:
            problem = readable(error)
        except Exception as error:  # noqa: BLE001 (a function of the pipeline may raise anything)
            problem = f"{type(error).__name__}: {error}"
        else:
            return
        raise PipelineFileError(f"{self._definition.file}: {part}: {problem}") from None

    def _source(self, name: str, source: Source) -> DataFrame:
        match source:
            case TopicSource():
                frame = topic_frame(self._spark, source)
            case CdcSource():
                frame = cdc_frame(self._spark, source)
            case TableSource():
                frame = table_frame(self._spark, source)
            case PythonSource():
                made = self._definition.functions[f"sources.{name}"](self._spark)
                return self._checked(made)
        return self._called(f"sources.{name}", frame)

    def _step(self, name: str, step: Step) -> DataFrame:
        if step.sql:
            return self._spark.sql(step.sql)
        function = self._definition.functions[f"steps.{name}"]
        by_name = {each.lower(): frame for each, frame in self._frames.items()}
        return self._checked(
            function(*(by_name[each.lower()] for each in inputs_of(step, function)))
        )

    def _called(self, part: str, frame: DataFrame) -> DataFrame:
        """Apply the function that a Python file declares for a source or a sink, if any."""
        function = self._definition.functions.get(part)
        return frame if function is None else self._checked(function(frame))

    def _checked(self, made: object) -> DataFrame:
        if isinstance(made, str):
            return self._spark.sql(made)
        if not isinstance(made, DataFrame):
            raise ConfigError(f"the function returned {type(made).__name__}, not a DataFrame")
        return made

    def _define(self, name: str, frame: DataFrame, watermark: Watermark | None) -> None:
        if watermark is not None:
            if watermark.column not in frame.columns:
                raise ConfigError(
                    f"watermark: there is no column {watermark.column!r}; "
                    f"the columns are {', '.join(frame.columns)}"
                )
            frame = frame.withWatermark(watermark.column, watermark.interval)
        self._frames[name] = frame
        frame.createOrReplaceTempView(f"`{name}`")


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
    """Changes as rows: the columns of the row and those of the change, without tombstones."""
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
        # A stream of files does not infer its schema.
        return spark.readStream.schema(spark.read.parquet(source.path).schema).parquet(source.path)
    if source.stream:
        return spark.readStream.schema(schema).parquet(source.path)
    return (spark.read.schema(schema) if schema else spark.read).parquet(source.path)


def _starting(text: str) -> dict[str, str]:
    """The source's options for a start at an offset or at a time."""
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
    """Values as text, as Spark expects options and settings."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
