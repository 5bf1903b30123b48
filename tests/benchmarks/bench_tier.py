"""What reading a tiered topic costs beside plain Parquet: `python tests/benchmarks/bench_tier.py`.

The same rows as the topic's twin and as a table that Spark wrote (zstd, the same columns), read in
turns in one warm session, to nowhere. Prints nanoseconds of processor time per row, of the JVM and
of Spark's Python workers, and the ratio of the two: the median of the turns' ratios. Everything is
copied: the tail that `tiered` adds is there and empty.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from harness.broker import BrokerProcess
from harness.processes import cpu_seconds
from harness.spark import fill
from pyspark.sql import DataFrame

from dragoman.pipelines.jobs import tier
from dragoman.pipelines.jobs.tier import tiered
from dragoman.spark import session, table

TOPIC = "rows"
PARTITIONS = 4
WARM_UP = 3


def cost(rows: DataFrame, count: int) -> float:
    """Nanoseconds per row."""
    before = cpu_seconds(os.getpid())
    rows.write.format("noop").mode("overwrite").save()
    return (cpu_seconds(os.getpid()) - before) / count * 1e9


def measure(broker: BrokerProcess, directory: str, count: int, rounds: int) -> None:
    bootstrap, root = broker.bootstrap_servers, f"{directory}/tier"
    fill(broker, {"none": TOPIC}, count, PARTITIONS)
    spark = session("tier", master="local[2]", config={"spark.driver.memory": "2g"})
    started = time.perf_counter()
    options = tier.Options(topic=TOPIC, root=root, bootstrap=bootstrap, until="latest")
    tier.run(spark, options, lambda _: None)
    print(f"copying: {count / (time.perf_counter() - started):,.0f} rows/s")
    plain = f"{directory}/plain"
    everything = table(TOPIC, bootstrap=bootstrap, includeHeaders="true")
    everything.write.option("compression", "zstd").parquet(plain)
    two = ["value", "offset"]
    ways: dict[str, tuple[Callable[[], DataFrame], Callable[[], DataFrame]]] = {
        "all columns": (
            lambda: tiered(spark, TOPIC, root=root, bootstrap=bootstrap),
            lambda: spark.read.parquet(plain),
        ),
        "value, offset": (
            lambda: tiered(spark, TOPIC, root=root, bootstrap=bootstrap).select(*two),
            lambda: spark.read.parquet(plain).select(*two),
        ),
    }
    for name, (one, other) in ways.items():
        assert one().count() == other().count() == count
        pairs = []
        for turn in range(rounds + WARM_UP):
            # Who comes first takes turns, too.
            order = (one, other) if turn % 2 else (other, one)
            costs = {each: cost(each(), count) for each in order}
            if turn >= WARM_UP:
                pairs.append((costs[one], costs[other]))
        ratio = median(mine / others for mine, others in pairs)
        mine, others = (median(each) for each in zip(*pairs, strict=True))
        print(f"{name:<16} tiered {mine:5.0f} ns/row, parquet {others:5.0f}, ratio {ratio:.3f}")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory) / "data", durability="os")
        broker.start()
        try:
            measure(broker, directory, told.rows, told.rounds)
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
