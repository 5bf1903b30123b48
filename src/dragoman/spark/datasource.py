"""The Python Data Source `dragoman`, which Spark creates for the format of that name.

Spark imports this module in every worker, so everything else is imported on first use.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from dragoman.spark.failures import plainly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


#: The module of the process in which Spark plans a read with filter pushdown.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class DragomanDataSource(DataSource):
    """Topics of a Dragoman or Kafka cluster as tables, to read and to write.

    Name: `dragoman`. Spark finds it where the package is installed; elsewhere register it:

        from dragoman.spark.datasource import DragomanDataSource
        spark.dataSource.register(DragomanDataSource)

    Options
    -------
    Names and meanings are those of Spark's Kafka source and sink. The most used:

    - kafka.bootstrap.servers: brokers as HOST:PORT, separated by commas.
    - path: the data directory of a broker, which is read without the broker when it is given alone.
    - subscribe, subscribePattern, assign: the topics to read, exactly one of the three.
    - startingOffsets, endingOffsets: earliest, latest, or JSON by topic and partition. By default
      batches start at the earliest offset, streams at the latest.
    - maxOffsetsPerTrigger, maxBytesPerTrigger: the bound of a micro-batch.
    - decode: string, json, avro or protobuf; otherwise values are binary.
    - includeHeaders: adds the column headers.
    - topic: the topic to write to, unless a column of that name states it for each row.

    `dragoman.spark.options` defines all of them; docs/reference/spark.md and spark-sink.md are the
    reference.

    Columns
    -------
    key, value, topic, partition, offset, timestamp, timestampType and, if requested, headers. A
    schema with some of them reads only those, which is the only way to read less per record.

    Examples
    --------
    Read a topic as a table:

        spark.read.format("dragoman") \\
            .option("kafka.bootstrap.servers", "127.0.0.1:9092") \\
            .option("subscribe", "orders") \\
            .load()

    Follow it, with values decoded from JSON:

        spark.readStream.format("dragoman") \\
            .option("kafka.bootstrap.servers", "127.0.0.1:9092") \\
            .option("subscribe", "orders") \\
            .option("decode", "json") \\
            .load()

    Write a stream to another topic, each row exactly once:

        totals.writeStream.format("dragoman") \\
            .option("kafka.bootstrap.servers", "127.0.0.1:9092") \\
            .option("topic", "totals") \\
            .option("checkpointLocation", "/srv/checkpoints/totals") \\
            .start()

    Notes
    -----
    Record batches become Arrow batches without a loop over records. Stable segments are read from
    files where the data directory is visible, the rest from the broker. Only committed records are
    read unless kafka.isolation.level says otherwise.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "dragoman"

    @plainly
    def schema(self) -> str | StructType:
        from dragoman.spark.options import parse
        from dragoman.spark.value_schemas import source_schema

        return source_schema(parse(self.options, "batch"))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        from dragoman.spark.batch import BatchReader, PushdownReader
        from dragoman.spark.options import parse

        options = parse(self.options, "batch")
        takes_filters = options.pushdown == "true" or (
            options.pushdown == "auto" and _has_filter_pushdown()
        )
        kind = PushdownReader if takes_filters else BatchReader
        return kind(options, schema)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from dragoman.spark.options import parse
        from dragoman.spark.stream import StreamReader

        return StreamReader(parse(self.options, "stream"), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        self._refuse_overwrite(overwrite)
        from dragoman.spark.writer import DragomanWriter

        writer: Any = DragomanWriter(dict(self.options), schema)
        return writer  # type: ignore[no-any-return]

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        self._refuse_overwrite(overwrite)
        from dragoman.spark.writer import DragomanStreamWriter

        writer: Any = DragomanStreamWriter(dict(self.options), schema)
        return writer  # type: ignore[no-any-return]

    @staticmethod
    def _refuse_overwrite(overwrite: bool) -> None:
        if overwrite:
            from dragoman.errors import ConfigError

            raise ConfigError("a topic can only be appended to: use mode append")


def _has_filter_pushdown() -> bool:
    """Whether filter pushdown is on in this session.

    Spark does not pass the setting to a source, and fails reads of a source with pushdown while the
    setting is off, which is the default. With the setting on, Spark plans in a worker process of
    another kind, which is how it is detected.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(started, "name", "") == _PUSHDOWN_WORKER
