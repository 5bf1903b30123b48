"""The Python Data Source `dragoman`: what Spark sees first.

    spark.read.format("dragoman")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092")
        .option("subscribe", "orders")
        .load()

Options and columns are those of Spark's Kafka source, see `options.py` and `schema.py`. Spark
imports this module in every worker, so everything else is imported when it is needed.
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


#: The module of the process that Spark plans a read in when it hands filters over.
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class DragomanDataSource(DataSource):
    """Topics as tables. Reads whole record batches and hands Arrow batches to Spark."""

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
            options.pushdown == "auto" and _is_handed_filters()
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

            raise ConfigError("a topic is appended to: use mode append")


def _is_handed_filters() -> bool:
    """Whether this session has filter pushdown on.

    Spark does not tell a source, and fails reads of one that takes filters while the setting is
    off, which is its default. The process tells: Spark starts a worker of its own kind for it.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(started, "name", "") == _PUSHDOWN_WORKER
