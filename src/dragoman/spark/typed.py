"""Values with types: `decode` turns the column `value` into text or into a struct.

A value that does not fit fails the read, or goes to a dead-letter topic with its key, its headers
and where it came from. A task that Spark runs again writes its dead letters again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from dragoman.spark.failures import iterated_plainly
from dragoman.spark.options import SourceOptions
from dragoman.spark.planner import RangePartition
from dragoman.spark.reader import read_range
from dragoman.spark.schema import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from dragoman.spark.dead_letters import DeadLetters
    from dragoman.spark.value_schemas import ValueFormat
    from dragoman.spark.values.decoded import Decode


class TypedReading:
    """Reads planned ranges into batches of exactly the schema that Spark was told."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._format: ValueFormat | None = None
        is_typed = bool(options.decode) and "value" in schema.fieldNames()
        check_columns(schema, is_value_typed=is_typed)
        if is_typed:
            from dragoman.spark.value_schemas import value_format
            from dragoman.spark.values.schema_fit import check_fits

            self._format = value_format(options)
            kind = self._format.spark_type()
            if kind is not None:
                check_fits(kind, schema["value"].dataType)

    @iterated_plainly
    def read(self, planned: RangePartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        # Spark compares types and nullability with those of the schema that it was given.
        expected = to_arrow_schema(self._schema, timezone="UTC")
        names = self._schema.fieldNames()
        if self._format is None:
            for batch in read_range(planned, self._options, names):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=expected)
            return
        from dragoman.spark.dead_letters import ORIGIN, DeadLetters

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
    """The records whose values are what the field says, or null, and those values."""
    import numpy as np
    import pyarrow as pa

    from dragoman.spark.values.decoded import scattered
    from dragoman.spark.values.schema_fit import forbidden_nulls

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
