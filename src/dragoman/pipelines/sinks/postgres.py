"""Tables in PostgreSQL: a batch is one transaction, which also records the batch's number.

Rows are copied into a temporary table and written from there to the target with one statement.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from dragoman.captures.addresses import hide_secrets, with_methods
from dragoman.errors import ConfigError, DragomanError
from dragoman.pipelines.definition import PostgresSink
from dragoman.pipelines.sinks.batches import Writer, query_id, skip_batch
from dragoman.pipelines.sinks.delta import latest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The table with the last batch of each sink.
BATCHES = sql.Identifier("dragoman_pipeline_batches")
_TYPES = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_STAGED = sql.Identifier("dragoman_staged")


class PostgresError(DragomanError):
    """PostgreSQL refused a batch, or is unreachable."""


class PostgresWriter:
    def __init__(self, sink: PostgresSink, writer: Writer) -> None:
        self._sink = sink
        self._writer = writer
        self._table = sql.Identifier(*sink.table.split("."))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        query = query_id(batch)
        try:
            with psycopg.connect(with_methods(self._sink.dsn, os.environ)) as connection:
                if self._is_new(connection, query, batch_id):
                    self._write(connection, batch)
                else:
                    skip_batch(batch)
        except psycopg.Error as error:
            place = f"sinks.{self._writer.sink}: PostgreSQL"
            text = hide_secrets(" ".join(str(error).split()), self._sink.dsn)
            raise PostgresError(f"{place}: {text}") from None

    def _is_new(self, connection: psycopg.Connection, query: str, batch_id: int) -> bool:
        """Record the batch's number; False when it is recorded already."""
        found = connection.execute("select to_regclass('dragoman_pipeline_batches')").fetchone()
        if found is None or found[0] is None:
            # Two sinks may create the table at once.
            connection.execute("select pg_advisory_xact_lock(hashtext('dragoman_pipeline'))")
            connection.execute(
                sql.SQL(
                    "create table if not exists {} (pipeline text, sink text, target text,"
                    " query text not null, batch bigint not null,"
                    " primary key (pipeline, sink, target))"
                ).format(BATCHES)
            )
        who = (self._writer.pipeline, self._writer.sink, self._sink.table)
        row = connection.execute(
            sql.SQL(
                "select query, batch from {} where pipeline = %s and sink = %s and target = %s"
                " for update"
            ).format(BATCHES),
            who,
        ).fetchone()
        if row is not None and row[0] != query:
            raise self._writer.other_checkpoint(f"table {self._sink.table}")
        if row is not None and row[1] >= batch_id:
            return False
        # If there was no row to lock, another driver may have inserted it in the meantime.
        taken = connection.execute(
            sql.SQL(
                "insert into {} as known values (%s, %s, %s, %s, %s)"
                " on conflict (pipeline, sink, target) do update set batch = excluded.batch"
                " where known.query = excluded.query and known.batch < excluded.batch"
            ).format(BATCHES),
            (*who, query, batch_id),
        )
        return taken.rowcount == 1

    def _write(self, connection: psycopg.Connection, batch: DataFrame) -> None:
        sink = self._sink
        if sink.key:
            batch = latest(batch, sink.key, sink.latest_by)
        written = [name for name in batch.columns if name != sink.deleted]
        if sink.create:
            connection.execute(self._creation(batch.select(*written)))
        self._stage(connection, batch, written)
        if sink.output == "complete":
            connection.execute(sql.SQL("delete from {}").format(self._table))
        if sink.deleted:
            connection.execute(self._deletion())
        connection.execute(self._insertion(written))

    def _creation(self, batch: DataFrame) -> sql.Composed:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type(field.dataType)))
            for field in batch.schema.fields
        ]
        if self._sink.key:
            columns.append(sql.SQL("primary key ({})").format(_names(self._sink.key)))
        return sql.SQL("create table if not exists {} ({})").format(
            self._table, sql.SQL(", ").join(columns)
        )

    def _stage(self, connection: psycopg.Connection, batch: DataFrame, written: list[str]) -> None:
        deleted = sql.SQL(", false as {}").format(sql.Identifier(self._sink.deleted))
        connection.execute(
            sql.SQL(
                "create temporary table {} on commit drop as select {}{} from {} limit 0"
            ).format(
                _STAGED,
                _names(written),
                deleted if self._sink.deleted else sql.SQL(""),
                self._table,
            )
        )
        columns = [_sent(field).alias(field.name) for field in batch.schema.fields]
        statement = sql.SQL("copy {} ({}) from stdin").format(_STAGED, _names(batch.columns))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            # A partition at a time, so that the driver need not hold the batch.
            for row in batch.select(*columns).toLocalIterator():
                copy.write_row(
                    [bytes(each) if isinstance(each, bytearray) else each for each in row]
                )

    def _deletion(self) -> sql.Composed:
        same = sql.SQL(" and ").join(
            sql.SQL("target.{0} = staged.{0}").format(sql.Identifier(name))
            for name in self._sink.key
        )
        return sql.SQL("delete from {} target using {} staged where staged.{} and {}").format(
            self._table, _STAGED, sql.Identifier(self._sink.deleted), same
        )

    def _insertion(self, written: list[str]) -> sql.Composed:
        sink = self._sink
        names = _names(written)
        statement = sql.SQL("insert into {} ({}) select {} from {}").format(
            self._table, names, names, _STAGED
        )
        if sink.deleted:
            statement += sql.SQL(" where {} is not true").format(sql.Identifier(sink.deleted))
        if not sink.key:
            return statement
        changes = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name))
            for name in written
            if name not in sink.key
        ]
        action = sql.SQL("update set ") + sql.SQL(", ").join(changes)
        return statement + sql.SQL(" on conflict ({}) do {}").format(
            _names(sink.key), action if changes else sql.SQL("nothing")
        )


def _sent(field: StructField) -> Column:
    """A column in the format that is copied to PostgreSQL."""
    column = f.col(field.name)
    match field.dataType:
        case StructType() | MapType() | VariantType():
            return f.to_json(column)
        case TimestampType():
            return _with_zone(column)
        case ArrayType(elementType=TimestampType()):
            return f.transform(column, _with_zone)
    return column


def _with_zone(moment: Column) -> Column:
    """A time as text. As a Python object it would be local time, which PostgreSQL interprets as
    session time.
    """
    return f.date_format(moment, "yyyy-MM-dd HH:mm:ss.SSSSSSXXX")


def _names(names: list[str] | tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _type(kind: DataType) -> str:
    match kind:
        case DecimalType():
            return f"numeric({kind.precision}, {kind.scale})"
        case ArrayType() if not isinstance(kind.elementType, ArrayType | StructType | MapType):
            return f"{_type(kind.elementType)}[]"
        case StructType() | MapType() | VariantType():
            return "jsonb"
    name = kind.typeName()
    if name not in _TYPES:
        raise ConfigError(f"{kind.simpleString()} has no counterpart in PostgreSQL; cast it")
    return _TYPES[name]
