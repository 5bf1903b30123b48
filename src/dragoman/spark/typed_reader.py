"""Typed values: `decode` converts the column `value` to text or to a struct.

A value that does not decode fails the read, or is written to a dead-letter topic with its key, its
headers and its origin. A task that Spark retries writes its dead letters again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from dragoman.client.kafka import NewRecord
from dragoman.errors import DecodeError
from dragoman.spark.failures import iterated_plainly
from dragoman.spark.logs import open_client
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import RangePartition
from dragoman.spark.reader import read_range
from dragoman.spark.schema import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from dragoman.spark.value_schemas import ValueFormat
    from dragoman.spark.values.decoded import Decode


class TypedReader:
    """Reads planned ranges into batches of exactly Spark's schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._format: ValueFormat | None = None
        is_typed = bool(options.decode) and "value" in schema.fieldNames()
        check_columns(schema, is_value_typed=is_typed)
        if is_typed:
            from dragoman.spark.value_schemas import value_format
            from dragoman.spark.values.decoded import check_fits

            self._format = value_format(options)
            kind = self._format.spark_type()
            if kind is not None:
                check_fits(kind, schema["value"].dataType)

    @iterated_plainly
    def read(self, planned: RangePartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        # Spark compares types and nullability with its schema.
        expected = to_arrow_schema(self._schema, timezone="UTC")
        names = self._schema.fieldNames()
        if self._format is None:
            for batch in read_range(planned, self._options, names):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=expected)
            return

        decode = self._format.decoder(expected.field("value").type)
        with closing(DeadLetters(self._options)) as letters:
            columns = list(dict.fromkeys([*names, *ORIGIN]))
            for batch in read_range(planned, self._options, columns):
                kept, values = _decoded(batch, expected.field("value"), decode, letters)
                arrays = [values if name == "value" else kept.column(name) for name in names]
                yield pa.RecordBatch.from_arrays(arrays, schema=expected)


def _decoded(
    batch: pa.RecordBatch, field: pa.Field, decode: Decode, letters: DeadLetters
) -> tuple[pa.RecordBatch, pa.Array]:
    """The records whose values fit the field or are null, and their decoded values."""
    import numpy as np
    import pyarrow as pa

    from dragoman.spark.values.decoded import forbidden_nulls, scattered

    values = batch.column("value")
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    decoded = decode(values.drop_null() if values.null_count else values)
    problems = {int(rows[index]): problem for index, problem in decoded.problems.items()}
    fine = np.delete(rows, list(decoded.problems))
    array = scattered(decoded.values, fine, len(values))
    problems = forbidden_nulls(array, field) | problems
    if not problems:
        return batch, array
    for row in sorted(problems):
        letters.take(batch, row, problems[row])
    letters.send()
    kept = np.ones(len(values), np.bool_)
    kept[list(problems)] = False
    return batch.filter(pa.array(kept)), array.filter(pa.array(kept))


#: Columns of a dead letter.
ORIGIN = ("key", "value", "topic", "partition", "offset", "headers")


class DeadLetters:
    """Collects records that do not decode. Without a dead-letter topic the first one raises
    `DecodeError`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._waiting: list[NewRecord] = []
        self._client: Any = None

    def take(self, batch: pa.RecordBatch, row: int, problem: str) -> None:
        record = {name: batch.column(name)[row].as_py() for name in ORIGIN}
        where = f"{record['topic']}-{record['partition']}"
        text = " ".join(problem.split())
        if not self._options.dead_letter_topic:
            raise DecodeError(
                f"{where}: the value at offset {record['offset']} does not decode as "
                f"{self._options.decode}: {text}"
            )
        self._waiting.append(
            NewRecord(
                key=record["key"],
                value=record["value"],
                headers=(*_headers(record["headers"]), *_origin(record, text)),
            )
        )

    def send(self) -> None:
        if self._waiting:
            if self._client is None:
                self._client = open_client(self._options).open()
            self._client.produce_records(self._options.dead_letter_topic, self._waiting)
            self._waiting = []

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _headers(given: Sequence[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in given or ()]


def _origin(record: dict[str, Any], problem: str) -> list[tuple[str, bytes]]:
    return [
        ("dragoman.topic", record["topic"].encode()),
        ("dragoman.partition", str(record["partition"]).encode()),
        ("dragoman.offset", str(record["offset"]).encode()),
        ("dragoman.error", problem.encode()),
    ]
