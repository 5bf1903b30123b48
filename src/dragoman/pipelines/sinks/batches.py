"""Micro-batches of sinks: the query of a batch, skipping a batch, and errors of a batch.

The checkpoint of a query numbers its batches, and a new checkpoint starts at 0 again. So a number
identifies a batch only together with the query's id, which is stored in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dragoman.errors import ConfigError, DragomanError
from dragoman.spark.failures import readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Write: TypeAlias = "Callable[[DataFrame, int], None]"


class BatchError(DragomanError):
    """A micro-batch could not be computed or written."""


def failing_plainly(write: Write) -> Write:
    """Wrap a function of `foreachBatch` so that Spark's errors are reduced to one line.

    Spark matches the text of such an error against a pattern that overflows the stack when the text
    is long, as with a stack trace of Java.
    """

    def call(batch: DataFrame, batch_id: int) -> None:
        try:
            write(batch, batch_id)
        except DragomanError as error:
            raise error.with_traceback(None) from None
        except Exception as error:
            if not type(error).__module__.startswith(("pyspark.", "py4j.")):
                raise
            raise BatchError(readable(error)) from None

    return call


def skip_batch(batch: DataFrame) -> None:
    """Compute a batch that the sink already has, for the state of aggregates and joins."""
    batch.write.format("noop").mode("overwrite").save()


_QUERY_ID = "sql.streaming.queryId"


class Writer(msgspec.Struct, frozen=True):
    """Identity of a sink as the writer of a table."""

    pipeline: str
    sink: str

    @property
    def name(self) -> str:
        return f"dragoman/{self.pipeline}/{self.sink}"

    def other_checkpoint(self, table: str) -> ConfigError:
        """The error for a table that was filled with another checkpoint."""
        return ConfigError(
            f"sinks.{self.sink}: {table} was filled by this sink with another checkpoint, so the "
            "rows would be written again; restore that checkpoint, or empty the table and rename "
            "the sink"
        )


def query_id(batch: DataFrame) -> str:
    """The id of the query that the batch belongs to."""
    found = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise ConfigError(f"Spark did not pass the id of the query ({_QUERY_ID})")
    return str(found)
