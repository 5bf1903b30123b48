"""Reading a topic's files through Spark, beside `spark.read.parquet` of the same rows.

All in one warm session, in turns; processor time of the JVM and of Spark's Python workers. The rows
go nowhere (Spark's sink `noop`). What numpy alone can do is measured in a session of its own,
against Parquet in that session.
"""

from __future__ import annotations

import shutil

from harness.context import Context, settle_disk
from harness.spark import fill, run_job

_CODECS = ("none", "lz4", "zstd")
_PEER = "parquet zstd"


def run(context: Context) -> None:
    rows = context.scaled(5_000_000, 400_000)
    topics = {codec: f"rows-{codec}" for codec in _CODECS}
    parquet = context.directory("parquet")
    with context.broker(durability="os", serve_http=True) as broker:
        fill(broker, topics, rows, partitions=4)
        # A clean stop makes the last segments stable too: all of it can then be read from files.
        context.stop(broker)
        broker.start()
        settle_disk()
        given = {
            "servers": broker.bootstrap_servers,
            "directory": str(broker.directory),
            "parquet": str(parquet),
            "rows": rows,
            "rounds": context.scaled(3, 1),
        }
        run_job("table", given | {"topic": topics["none"]})
        sent = broker.sent_bytes()
        compiled = run_job("read", given | {"topics": topics})
        sent = broker.sent_bytes() - sent
        numpy = run_job(
            "read",
            given | {"topics": {"none": topics["none"]}},
            {"DRAGOMAN_SPARK_RECORDS": "numpy"},
        )
    shutil.rmtree(parquet, ignore_errors=True)
    scans = len(_CODECS) * 2 * (given["rounds"] + 3)
    for label, found in (("", compiled), (" (numpy)", numpy)):
        for case, metrics in found.items():
            peers = {} if case.startswith(_PEER) else _against(found, case)
            context.add(case + label, metrics | peers)
    context.add("what the broker sent meanwhile", {"bytes_per_scan": sent / scans})


def _against(found: dict[str, dict[str, float]], case: str) -> dict[str, float]:
    """Costs divided by Parquet's for all columns, and for the same columns."""
    cost = found[case]["cpu_ns_per_row"]
    columns = case.partition(", ")[2]
    return {
        "cost_against_parquet": cost / found[f"{_PEER}, all columns"]["cpu_ns_per_row"],
        "cost_against_parquet_same_columns": cost / found[f"{_PEER}, {columns}"]["cpu_ns_per_row"],
    }
