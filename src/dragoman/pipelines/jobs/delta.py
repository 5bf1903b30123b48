"""A keyed Delta table, through `deltalake`, without a JVM or a jar.

The table's description records its purpose (envelope, order, history), so that a second run cannot
read the same topic differently. Every write is one commit with the number of its micro-batch, so a
batch that a killed driver has committed is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from dragoman.errors import ConfigError, LogError
from dragoman.pipelines.jobs.changes import Version
from dragoman.pipelines.jobs.columns import cast_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "_key"
#: Rows to read or rewrite at a time.
_CHUNK_ROWS = 512 << 10
#: Maximum length of a key in a predicate; with longer keys all files are scanned.
_LITERAL_MAX = 1_000
#: Part of every commit, so that two concurrent jobs conflict even if both only append.
_ONE_AT_A_TIME = Transaction("dragoman-materialize", 0)
Made = TypeVar("Made", bound=msgspec.Struct)


class TableError(LogError):
    """A table that cannot be read or written."""


class KeyedTable:
    """The table at a path, as of its last version. Its rows are not held in memory."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @classmethod
    def at(cls, path: str, storage: Mapping[str, str]) -> KeyedTable | None:
        """None when there is no table."""
        try:
            return cls(DeltaTable(path, storage_options=dict(storage)))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise TableError(f"{path}: {error}") from None

    @classmethod
    def made(
        cls, path: str, schema: pa.Schema, storage: Mapping[str, str], made: msgspec.Struct
    ) -> KeyedTable:
        table = DeltaTable.create(
            path,
            schema,
            mode="ignore",
            description=msgspec.json.encode(made).decode(),
            storage_options=dict(storage),
        )
        return cls(table)

    @property
    def path(self) -> str:
        return self._table.table_uri

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema())

    def made_for(self, kind: type[Made]) -> Made:
        """The description given to `made`. Raises `ConfigError` for a table of another program."""
        try:
            return msgspec.json.decode(self._table.metadata().description or "", type=kind)
        except msgspec.DecodeError:
            raise ConfigError(
                f"{self.path} was not created by this job: name another path, or move the table"
            ) from None

    # ---- reading

    def rows_of(
        self, keys: pa.Array | None, columns: list[str], *, with_pending: bool = False
    ) -> pa.Table:
        """The rows of these keys (None: all), and the rows without a key, which are truncations.

        With `with_pending`, also the rows with columns of another version.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        found = [schema.empty_table()]
        scanned: list[pa.Table] = []
        further = " OR _pending IS NOT NULL" if with_pending else ""
        predicate = _around(keys)
        for batch in self._table.scan(columns=columns, predicate=predicate and predicate + further):
            scanned.append(pa.table(batch).select(columns).cast(schema))
            # In chunks, because each lookup first builds a set of the keys.
            if sum(map(len, scanned)) >= _CHUNK_ROWS:
                found.append(_chosen(pa.concat_tables(scanned), keys, with_pending))
                scanned.clear()
        rest = pa.concat_tables([schema.empty_table(), *scanned])
        return pa.concat_tables([*found, _chosen(rest, keys, with_pending)])

    def last_batch(self, writer: str) -> int:
        """The number of the last micro-batch that this writer committed; -1: none."""
        found = self._table.transaction_version(writer)
        return -1 if found is None else found

    # ---- writing

    def add_columns(self, fields: list[pa.Field]) -> None:
        from deltalake import Schema

        self._table.alter.add_columns(Schema.from_arrow(pa.schema(fields)).fields)

    def retype(self, types: Mapping[str, pa.DataType]) -> None:
        """Rewrite all rows with columns of wider types. Raises `MisfitError`."""
        data = self._table.to_pyarrow_dataset()
        schema = pa.schema(
            [field.with_type(types.get(field.name, field.type)) for field in data.schema]
        )

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in data.to_batches(batch_size=_CHUNK_ROWS):
                rows = pa.Table.from_batches([batch])
                for name, kind in types.items():
                    place = schema.get_field_index(name)
                    rows = rows.set_column(
                        place, schema.field(place), cast_column(rows[name], kind)
                    )
                yield from rows.cast(schema).to_batches()

        # Converted once in advance, because an error in the reader below would lose its reason.
        for _ in batches():
            pass
        write_deltalake(
            self._table,
            pa.RecordBatchReader.from_batches(schema, batches()),
            mode="overwrite",
            schema_mode="overwrite",
        )
        self._table.update_incremental()

    def put(
        self,
        rows: pa.Table,
        *,
        identity: tuple[str, ...],
        is_new: bool,
        truncated: Version | None,
        writer: str,
        batch_id: int,
    ) -> None:
        """Merge rows into those of the same identity and commit; `is_new`: none of them exists.

        Rows of the table at or before `truncated` that are not merged are deleted.
        """
        properties = CommitProperties(
            app_transactions=[_ONE_AT_A_TIME, Transaction(writer, batch_id)]
        )
        if is_new and truncated is None:
            write_deltalake(self._table, rows, mode="append", commit_properties=properties)
            self._table.update_incremental()
            return
        same = " AND ".join(f"target.{name} = source.{name}" for name in identity)
        merger = self._table.merge(
            rows,
            same,
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        )
        merger = merger.when_matched_update_all().when_not_matched_insert_all()
        if truncated is not None:
            lsn, seq = truncated
            merger = merger.when_not_matched_by_source_delete(
                f"target._lsn < {lsn} OR (target._lsn = {lsn} AND target._seq <= {seq})"
            )
        merger.execute()

    def forget_deletes(self, before: datetime) -> None:
        """Delete the markers of deletes that are older than `before`."""
        at_us = round(before.timestamp() * 1_000_000)
        # A plain literal would have another unit, which cannot be compared.
        at = f"arrow_cast({at_us}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        self._table.delete(f"_deleted AND {KEY} IS NOT NULL AND _at < {at}")

    def tidy(self, *, keep_hours: int) -> None:
        """Compact small files and delete files of versions older than `keep_hours`."""
        self._table.optimize.compact()
        self._table.vacuum(
            retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False
        )
        self._table.create_checkpoint()


def _chosen(rows: pa.Table, keys: pa.Array | None, with_pending: bool) -> pa.Table:
    if keys is None:
        return rows
    key = rows.column(KEY)
    wanted = pc.or_(pc.is_in(key, value_set=keys), pc.is_null(key))
    if with_pending:
        wanted = pc.or_(wanted, pc.is_valid(rows.column("_pending")))
    return rows.filter(wanted)


def _around(keys: pa.Array | None) -> str | None:
    """A predicate on the range of the keys, which excludes files without any of them."""
    if keys is None:
        return None
    ends = pc.min_max(keys)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or high is None:
        return f"{KEY} IS NULL"
    if max(len(low), len(high)) > _LITERAL_MAX or "\0" in low + high:
        return None
    low, high = (each.replace("'", "''") for each in (low, high))
    return f"{KEY} IS NULL OR ({KEY} >= '{low}' AND {KEY} <= '{high}')"


# ---- for Spark


def delta_frame(
    spark: SparkSession,
    path: str,
    *,
    version: int | None = None,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """The current or a given version of a Delta table, whose Parquet files Spark reads itself."""
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        table = DeltaTable(path, version=version, storage_options=dict(storage or {}))
    except DeltaError as error:
        raise TableError(f"{path}: {error}") from None
    if table.deletion_vectors().read_all().num_rows:
        raise TableError(f"{path}: has deletion vectors, which Spark would ignore; purge it")
    schema = from_arrow_schema(pa.schema(table.schema()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema)
    if table.metadata().partition_columns:
        reader = reader.option("basePath", table.table_uri)
    return reader.parquet(*files)
