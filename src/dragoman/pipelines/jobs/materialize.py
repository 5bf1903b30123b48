"""Materializes a changelog topic as a table of current rows, or of all their versions.

A stream over the topic passes its micro-batches to `Materializer`. The result depends on the
versions of changes and not on their order of arrival, so batches that are applied twice and records
that a capture repeats have no effect. `read_current` and `read_history` read the table without the
job's internal columns.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

import msgspec

from dragoman.errors import ConfigError
from dragoman.limits import MATERIALIZED_BATCH_BYTES, MATERIALIZED_BATCH_RECORDS
from dragoman.pipelines.definition import check_trigger, trigger_options
from dragoman.pipelines.state import Report

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


#: The columns of a micro-batch.
RECORD_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "headers")
_START_S = 300.0


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    #: Path of the Delta table.
    table: str
    #: Spark's checkpoint; beside the table when empty.
    checkpoint: str = ""
    bootstrap: str = ""
    #: The data directory of a broker, instead of the broker or in addition to it.
    path: str = ""
    envelope: Literal["auto", "pgcdc", "debezium", "flat"] = "auto"
    order: Literal["auto", "lsn", "offset"] = "auto"
    #: Types of columns, as DDL; those of other columns are inferred.
    schema: str = ""
    #: What to do with columns that appear later, or that `schema` does not name.
    evolve: Literal["add", "ignore", "fail"] = "add"
    #: Keep every version of a row, with the time for which it was valid.
    history: bool = False
    #: `once` (the current records), `continuous`, or a pace such as `every 10s`.
    trigger: str = ""
    #: Bounds of one micro-batch, which is held in the driver's memory.
    batch_records: int = MATERIALIZED_BATCH_RECORDS
    batch_bytes: int = MATERIALIZED_BATCH_BYTES
    #: How long markers of deletes are kept for older changes that may still arrive. 0: forever.
    forget_deletes_hours: int = 168
    #: How long files of earlier versions of the table are kept for their readers.
    keep_hours: int = 168
    #: Batches between two compactions of small files; 0: never.
    tidy_every: int = 100
    #: Further options of the source, and those of the table's storage.
    source: dict[str, str] = {}
    storage: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.trigger:
            check_trigger(self.trigger)
        if self.batch_records < 1 or self.batch_bytes < 1:
            raise ValueError("batch_records and batch_bytes: expected positive numbers")

    @property
    def checkpoint_path(self) -> str:
        return self.checkpoint or f"{self.table.rstrip('/')}.checkpoint"


def run(spark: SparkSession, options: Options, report: Report) -> StreamingQuery:
    """Start the query that keeps the table up to date, and return it. Raises `ConfigError`."""
    from dragoman.pipelines.jobs.table_updates import Materializer
    from dragoman.pipelines.sinks.batches import failing_plainly
    from dragoman.spark.tables import frame

    materializer = Materializer(options, declared_types(options.schema), report)
    identity: Future[str] = Future()

    def each(batch: DataFrame, batch_id: int) -> None:
        # The query's id belongs to its checkpoint; a new checkpoint numbers batches from 0 again.
        writer = f"dragoman-materialize-{identity.result(_START_S)}"
        materializer.apply(batch.select(*RECORD_COLUMNS).toArrow(), batch_id, writer)

    given = {
        "includeHeaders": "true",
        "columns": ",".join(RECORD_COLUMNS),
        "maxOffsetsPerTrigger": str(options.batch_records),
        "maxBytesPerTrigger": str(options.batch_bytes),
        **options.source,
    }
    source = frame(spark, options.topic, options.bootstrap, options.path, given, stream=True)
    query = (
        source.writeStream.queryName(f"materialize {options.table}")
        .foreachBatch(failing_plainly(each))
        .trigger(**trigger_options(options.trigger or "once"))
        .option("checkpointLocation", options.checkpoint_path)
        .start()
    )
    identity.set_result(str(query.id))
    return query


def declared_types(ddl: str) -> dict[str, pa.DataType]:
    """Arrow types of the columns that the DDL declares. Raises `ConfigError`."""
    if not ddl:
        return {}
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(ddl)
        assert isinstance(parsed, StructType)
        fields = to_arrow_schema(parsed, timezone="UTC")
    except PySparkException as error:
        raise ConfigError(f"schema: {str(error).splitlines()[0]}") from None
    return {field.name: field.type for field in fields}


# ---- for readers


def read_current(spark: SparkSession, table: str, *, version: int | None = None) -> DataFrame:
    """The current rows of a materialized table, without internal columns."""
    from pyspark.sql.functions import col

    from dragoman.pipelines.jobs.delta import KEY, delta_frame
    from dragoman.pipelines.jobs.row_merge import MARKS, RANGES

    found = delta_frame(spark, table, version=version)
    is_current = ~col("_deleted") & col(KEY).isNotNull()
    if "_is_current" in found.columns:
        is_current &= col("_is_current")
    return found.where(is_current).drop(*MARKS.names, *RANGES.names)


def read_history(spark: SparkSession, table: str, *, version: int | None = None) -> DataFrame:
    """All versions of all rows, with `_valid_from`, `_valid_to` and `_is_current`.

    Raises `ConfigError` for a table that was made without history.
    """
    from pyspark.sql.functions import col

    from dragoman.pipelines.jobs.delta import KEY, delta_frame
    from dragoman.pipelines.jobs.row_merge import MARKS

    found = delta_frame(spark, table, version=version)
    if "_is_current" not in found.columns:
        raise ConfigError(f"{table} has only current rows: it was made without history")
    return found.where(~col("_deleted") & col(KEY).isNotNull()).drop(*MARKS.names)
