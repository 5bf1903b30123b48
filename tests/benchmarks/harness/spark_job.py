"""Spark's side of a measurement, in a process of its own, so that its processor time is its own.

`python -m harness.spark_job JOB` reads what the job needs as JSON from its input and prints what it
found as JSON. Processor time is that of this process, of the JVM and of Spark's Python workers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from dragoman.spark import session
from harness.processes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {"spark.driver.memory": "4g", "spark.default.parallelism": "4"}
_TWO = "value binary, offset bigint"
_NS = 1e9
#: What Spark says of a trigger.
_PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
#: The JVM compiles what it has seen often.
_WARM_UP_TURNS = 2


def table(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """The rows of a topic as a Parquet table."""
    rows = _topic(spark, given, given["topic"])
    rows.write.option("compression", "zstd").parquet(given["parquet"])
    return {}


def read(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds of processor time per row of each way to read the same rows, in turns."""
    parquet = given["parquet"]
    ways: dict[str, Callable[[], DataFrame]] = {
        "parquet zstd, all columns": lambda: spark.read.parquet(parquet),
        "parquet zstd, two columns": lambda: spark.read.parquet(parquet).select("value", "offset"),
    }
    for codec, name in given["topics"].items():
        ways[f"{codec}, all columns"] = lambda name=name: _topic(spark, given, name)
        ways[f"{codec}, two columns"] = lambda name=name: _topic(spark, given, name, _TWO)
    costs: dict[str, list[float]] = {name: [] for name in ways}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(given["rounds"] + _WARM_UP_TURNS):
        for name, rows in ways.items():
            cpu, wall = _measured(lambda rows=rows: _discard(rows()))
            if turn >= _WARM_UP_TURNS:
                costs[name].append(cpu / given["rows"] * _NS)
                rates[name].append(given["rows"] / wall)
    counts = {name: rows().count() for name, rows in ways.items()}
    wrong = {name: count for name, count in counts.items() if count != given["rows"]}
    if wrong:
        raise SystemExit(f"expected {given['rows']} rows, got {wrong}")
    return {
        name: {"cpu_ns_per_row": median(costs[name]), "rows_per_s": median(rates[name])}
        for name in ways
    }


def write(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """The same of writing a Parquet table to topics, beside reading it and throwing it away."""
    table = spark.read.parquet(given["parquet"])

    def to_topic(name: str, codec: str) -> None:
        table.select("key", "value").write.format("dragoman").mode("append").options(
            **{
                "kafka.bootstrap.servers": given["servers"],
                "topic": name,
                "kafka.compression.type": codec,
            }
        ).save()

    ways: dict[str, Callable[[], None]] = {
        "parquet to nowhere": lambda: _discard(table.select("key", "value")),
        **{
            f"parquet to a topic, {codec}": lambda name=name, codec=codec: to_topic(name, codec)
            for codec, name in given["topics"].items()
        },
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for turn in range(given["rounds"] + _WARM_UP_TURNS):
        for name, way in ways.items():
            broker = cpu_seconds(given["broker"])
            cpu, wall = _measured(way)
            broker = cpu_seconds(given["broker"]) - broker
            if turn >= _WARM_UP_TURNS:
                found[name].append(
                    {
                        "cpu_ns_per_row": (cpu + broker) / given["rows"] * _NS,
                        "spark_cpu_ns_per_row": cpu / given["rows"] * _NS,
                        "wall_ns_per_row": wall / given["rows"] * _NS,
                    }
                )
    return {
        name: {metric: median(each[metric] for each in rows) for metric in rows[0]}
        for name, rows in found.items()
    }


def stream(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """Copy a topic to another until a file appears; says `ready` after the first batch."""
    source = (
        spark.readStream.format("dragoman")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("subscribe", given["input"])
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        source.selectExpr("key", "value")
        .writeStream.format("dragoman")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("topic", given["output"])
        .option("txnAppId", "latency")
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="0 seconds")
        .start()
    )
    return {"topic to topic": _triggers(query, given)}


def rate(spark: SparkSession, given: dict[str, Any]) -> dict[str, Any]:
    """What a trigger of Spark's own rate source costs that writes nowhere."""
    query = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 1000)
        .option("numPartitions", 2)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="0 seconds")
        .start()
    )
    return {"rate to nowhere": _triggers(query, given)}


def _triggers(query: Any, given: dict[str, Any]) -> dict[str, float]:
    """Run a query until stopped; the times of its triggers after the first few."""
    print("running", file=sys.stderr, flush=True)
    stop = Path(given["stop"])
    times: dict[int, float] = {}
    parts: dict[str, list[float]] = {}
    while not stop.exists():
        if query.awaitTermination(0.2):
            raise SystemExit("the query ended by itself")
        for each in query.recentProgress:
            if each.numInputRows and each.batchId not in times:
                times[each.batchId] = each.durationMs["triggerExecution"]
                for part in _PARTS:
                    parts.setdefault(part, []).append(each.durationMs.get(part, 0))
    query.stop()
    warm = sorted(times[batch] for batch in sorted(times)[3:]) or [float("nan")]
    return {
        **{f"{part}_p50_ms": median(each) for part, each in parts.items()},
        "trigger_p50_ms": median(warm),
        "trigger_p99_ms": warm[min(len(warm) - 1, int(len(warm) * 0.99))],
        "triggers": len(warm),
    }


def _topic(
    spark: SparkSession, given: dict[str, Any], name: str, schema: str | None = None
) -> DataFrame:
    reader = (
        spark.read.format("dragoman")
        .option("kafka.bootstrap.servers", given["servers"])
        .option("path", given["directory"])
        .option("minPartitions", 4)
        .option("subscribe", name)
    )
    return (reader.schema(schema) if schema else reader).load()


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _measured(action: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = cpu_seconds(os.getpid()), time.perf_counter()
    action()
    return cpu_seconds(os.getpid()) - cpu, time.perf_counter() - wall


def _end_java() -> None:
    """Wait for the JVM, so that its processor time is counted as ours."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)


_JOBS = {"table": table, "read": read, "write": write, "stream": stream, "rate": rate}

if __name__ == "__main__":
    job, given = _JOBS[sys.argv[1]], json.load(sys.stdin)
    running = session("benchmark", master="local[2]", config=_SETTINGS)
    try:
        print(json.dumps(job(running, given)), flush=True)
    finally:
        running.stop()
        _end_java()
