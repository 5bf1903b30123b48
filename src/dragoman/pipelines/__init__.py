"""Pipelines on Spark: from topics, captured changes and tables to topics and tables.

    from dragoman.pipelines import read_current

    orders = read_current(spark, "tables/orders")

- A definition comes from a TOML file or from decorated Python functions, and is checked before
  Spark starts, also against the broker (`definition`, `pipeline_file`, `decorators`, `brokers`).
- The dataflow turns it into Spark's tables: sources, steps in the order of their dependencies,
  sinks. The runner starts the queries and watches them.
- A running pipeline reports its progress to a folder and to a node (`reporter`, `state`).
- A project of Spark Declarative Pipelines gets a catalog on disk, so that it can run repeatedly
  (`sdp`).

Functions that read tables are loaded on first use: importing this package does not import Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.pipelines.decorators import pipeline, sink, source, transform

if TYPE_CHECKING:
    from dragoman.pipelines.jobs.materialize import read_current as read_current
    from dragoman.pipelines.jobs.materialize import read_history as read_history
    from dragoman.pipelines.jobs.tier import tiered as tiered

_HOMES = {
    "read_current": "dragoman.pipelines.jobs.materialize",
    "read_history": "dragoman.pipelines.jobs.materialize",
    "tiered": "dragoman.pipelines.jobs.tier",
}
__all__ = ["pipeline", "read_current", "read_history", "sink", "source", "tiered", "transform"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    return value
