"""Spark imports every top-level module named `pyspark_…` and registers its `DefaultSource`."""

from dragoman.spark.datasource import DragomanDataSource as DefaultSource

__all__ = ["DefaultSource"]
