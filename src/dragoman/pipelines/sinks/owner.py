"""Who writes to a table, so that a batch is known when it comes again.

Batches are numbered by the checkpoint of their query. A new checkpoint begins at 0 again: a number
means something only together with the query's id, which the checkpoint keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
