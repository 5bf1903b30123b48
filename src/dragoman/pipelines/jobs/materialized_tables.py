"""Materialized tables as DataFrames, without what the job keeps in them for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import ConfigError
from dragoman.pipelines.jobs.delta import KEY, delta_frame
from dragoman.pipelines.jobs.row_merge import MARKS, RANGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_current(spark: SparkSession, table: str, *, version: int | None = None) -> DataFrame:
    """The rows that there are now, with their own columns only."""
    from pyspark.sql.functions import col

    found = delta_frame(spark, table, version=version)
    is_current = ~col("_deleted") & col(KEY).isNotNull()
    if "_is_current" in found.columns:
        is_current &= col("_is_current")
    return found.where(is_current).drop(*MARKS.names, *RANGES.names)


def read_history(spark: SparkSession, table: str, *, version: int | None = None) -> DataFrame:
    """All versions of all rows, with `_valid_from`, `_valid_to` and `_is_current`."""
    from pyspark.sql.functions import col

    found = delta_frame(spark, table, version=version)
    if "_is_current" not in found.columns:
        raise ConfigError(f"{table} has current rows only: it was made without history")
    return found.where(~col("_deleted") & col(KEY).isNotNull()).drop(*MARKS.names)
