"""Micro-batches as sinks get them: whose batch it is, how a sink skips one, how one fails.

Batches are numbered by the checkpoint of their query, and a new checkpoint starts at 0 again. A
number therefore means something only together with the query's id, which the checkpoint keeps.
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
    """A batch could not be made."""


def failing_plainly(write: Write) -> Write:
    """Have what Spark raises in a function of a batch leave it in one line.

    Spark looks through what the function raises with a pattern that ends in a StackOverflowError
    when it is long, and a trace of Java is.
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


def passed_over(batch: DataFrame) -> None:
    """Make a batch of which the sink has all rows already: aggregates and joins remember by it."""
    batch.write.format("noop").mode("overwrite").save()


_QUERY_ID = "sql.streaming.queryId"


class Writer(msgspec.Struct, frozen=True):
    """A sink of a pipeline."""

    pipeline: str
    sink: str

    @property
    def name(self) -> str:
        return f"dragoman/{self.pipeline}/{self.sink}"

    def strange(self, table: str) -> ConfigError:
        """For a table that another checkpoint has filled."""
        return ConfigError(
            f"sinks.{self.sink}: {table} was filled by this sink with another checkpoint, so the "
            "rows would be written again; put that checkpoint back, or empty the table and "
            "forget its writer by giving the sink a new name"
        )


def query_id(batch: DataFrame) -> str:
    """Of the query whose batch this is."""
    found = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise ConfigError(f"Spark did not tell the id of the query ({_QUERY_ID})")
    return str(found)
