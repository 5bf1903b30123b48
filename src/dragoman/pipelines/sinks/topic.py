"""Topics, through the sink `dragoman`, which publishes a batch exactly once.

In Spark a Python sink can only append. Rows that change (`output` update and complete) use the same
writer in `foreachBatch`: tasks stage, the driver publishes under the batch's number.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from dragoman.pipelines.dataflow import as_text
from dragoman.pipelines.definition import TopicSink
from dragoman.spark.writer import DragomanStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_NULLS_STAY = {"ignoreNullFields": "false"}


def options_of(sink: TopicSink) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": sink.bootstrap, "topic": sink.topic}
    return given | as_text(sink.options)


def records(frame: DataFrame, sink: TopicSink) -> DataFrame:
    """Rows in the columns of the sink."""
    if sink.format == "columns":
        return frame
    value = f.to_json(f.struct("*"), _NULLS_STAY).alias("value")
    if not sink.key:
        return frame.select(value)
    if len(sink.key) == 1:
        return frame.select(f.col(sink.key[0]).cast("string").alias("key"), value)
    return frame.select(f.to_json(f.struct(*sink.key), _NULLS_STAY).alias("key"), value)


class TopicWriter:
    """Writes batches of rows that change."""

    def __init__(self, sink: TopicSink) -> None:
        self._options = options_of(sink)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        writer = DragomanStreamWriter(self._options, batch.schema)

        def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            message = pickle.dumps(writer.write(batches))
            yield pa.RecordBatch.from_pydict({"message": [message]})

        rows = batch.mapInArrow(stage, "message binary").collect()
        writer.commit([pickle.loads(row.message) for row in rows], batch_id)
