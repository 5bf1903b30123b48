"""Writing a Parquet table to a topic through Spark's sink: staged, decided, published.

Processor time of Spark and of the broker together, and time by the clock.
"""

from __future__ import annotations

import shutil

from harness.context import Context
from harness.spark import fill, run_job

_CODECS = ("none", "lz4", "zstd")


def run(context: Context) -> None:
    rows = context.scaled(5_000_000, 400_000)
    parquet = context.directory("parquet")
    with context.broker(durability="fsync") as broker:
        fill(broker, {"none": "rows"}, rows, partitions=4)
        given = {
            "servers": broker.bootstrap_servers,
            "directory": str(broker.directory),
            "parquet": str(parquet),
            "rows": rows,
            "rounds": context.scaled(2, 1),
            "broker": broker.pid,
        }
        run_job("table", given | {"topic": "rows"})
        found = run_job("write", given | {"topics": {codec: f"to-{codec}" for codec in _CODECS}})
    shutil.rmtree(parquet, ignore_errors=True)
    for case, metrics in found.items():
        context.add(case, metrics)
