"""Delta tables, through `deltalake`, without a JVM or a jar.

A batch is one commit, which records the batch's number as an application transaction. If the driver
dies between this commit and Spark's own, the batch is repeated and recognised by its number. The
batch passes through the driver's memory, so `batch_records` of the sources bounds it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyspark.sql import Window
from pyspark.sql import functions as f

from dragoman.errors import ConfigError
from dragoman.pipelines.definition import DeltaSink
from dragoman.pipelines.sinks.batches import Writer, query_id, skip_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: Attempts of a commit, which conflicts with concurrent ones such as a compaction.
_ATTEMPTS = 5


class DeltaWriter:
    def __init__(self, sink: DeltaSink, writer: Writer) -> None:
        self._sink = sink
        self._writer = writer

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch)
        table = self._table()
        if self._is_written(table, query, batch_id):
            return skip_batch(batch)
        sink = self._sink
        rows = (latest(batch, sink.key, sink.latest_by) if sink.key else batch).toArrow()
        if sink.key:
            check_keys(rows, sink.key, f"sinks.{self._writer.sink}")
        for left in reversed(range(_ATTEMPTS)):
            try:
                # Against the version that was checked, so that another driver's commit conflicts.
                return self._write(table, rows, self._marks(query, batch_id))
            except DeltaError as error:
                # Without a table, any error may mean that another writer created it.
                is_overtaken = table is None or isinstance(error, CommitFailedError)
                table = self._table()
                if is_overtaken and self._is_written(table, query, batch_id):
                    return None
                if not is_overtaken or left == 0:
                    raise
        return None

    def _is_written(self, table: DeltaTable | None, query: str, batch_id: int) -> bool:
        if table is None:
            return False
        owner = table.transaction_version(self._writer.name)
        if owner is not None and owner != _number(query):
            raise self._writer.other_checkpoint(self._sink.path)
        last = table.transaction_version(f"{self._writer.name}/{query}")
        return last is not None and last >= batch_id

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._sink.path)
        except TableNotFoundError:
            return None

    def _marks(self, query: str, batch_id: int) -> CommitProperties:
        owner = Transaction(self._writer.name, _number(query))
        done = Transaction(f"{self._writer.name}/{query}", batch_id)
        return CommitProperties(app_transactions=[owner, done])

    def _write(self, table: DeltaTable | None, rows: pa.Table, marks: CommitProperties) -> None:
        sink = self._sink
        if sink.key and table is not None:
            matched = " AND ".join(f"target.`{name}` = source.`{name}`" for name in sink.key)
            merge = table.merge(
                rows,
                matched,
                source_alias="source",
                target_alias="target",
                merge_schema=True,
                commit_properties=marks,
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
            return
        write_deltalake(
            sink.path if table is None else table,
            rows,
            mode="overwrite"
            if sink.output == "complete"
            else "error"
            if table is None
            else "append",
            schema_mode="merge",
            partition_by=list(sink.partition_by) or None,
            commit_properties=marks,
        )


def latest(batch: DataFrame, key: tuple[str, ...], order: str) -> DataFrame:
    """The row of each key with the greatest value of the column `order`, which is dropped.

    Without `order` the batch is unchanged.
    """
    if not order:
        return batch
    rank = f.row_number().over(Window.partitionBy(*key).orderBy(f.col(order).desc_nulls_last()))
    return batch.withColumn("_rank", rank).where("_rank = 1").drop("_rank", order)


def check_keys(rows: pa.Table, key: tuple[str, ...], where: str) -> None:
    """Raises `ConfigError` for a row without a key, and for two rows with the same key."""
    keys = rows.select(list(key))
    if any(column.null_count for column in keys.columns):
        raise ConfigError(
            f"{where}: a row has no {' and '.join(key)}, which is its key; filter such rows"
        )
    if keys.group_by(list(key)).aggregate([]).num_rows != rows.num_rows:
        raise ConfigError(
            f"{where}: rows of a batch have the same {', '.join(key)}; choose one of them "
            'with latest_by = "COLUMN"'
        )


def _number(query: str) -> int:
    """A query's id as a number, as required by a Delta transaction."""
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:7])
