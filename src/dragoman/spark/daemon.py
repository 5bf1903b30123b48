"""Spark's Python daemon with this package in its memory.

Spark forks a Python worker from its daemon for each call beside the driver, several times in every
micro-batch: planning, making the writer, committing. A worker that has to import this package first
takes longer for that than for its work. `session()` names this module as the daemon's.
"""

from __future__ import annotations

import gc

import pyspark.daemon

# Loaded for the workers, which inherit it.
import dragoman.spark.stream
import dragoman.spark.writer  # noqa: F401

if __name__ == "__main__":
    # A collection in a worker would otherwise write to, and so copy, every page it inherits.
    gc.freeze()
    pyspark.daemon.manager()
