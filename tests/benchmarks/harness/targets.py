"""The figures that were promised, and whether a run kept them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from harness.context import Figure


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One promise about a metric or a ratio of one case."""

    text: str
    scenario: str
    case: str
    metric: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def bound(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}"


class Verdict(msgspec.Struct, frozen=True):
    text: str
    bound: str
    got: float
    is_met: bool


_REDIS = "redis appendfsync always"

TARGETS = (
    Target(
        text="librdkafka, 1 KiB in 1 MB batches, durability=os: broker CPU-seconds per GB",
        scenario="produce-batches",
        case="librdkafka 1 KiB os",
        metric="server_cpu_s_per_gb",
        at_most=2,
    ),
    Target(
        text="librdkafka, 1 KiB in 1 MB batches, durability=os: MB resident at the peak",
        scenario="produce-batches",
        case="librdkafka 1 KiB os",
        metric="resident_peak_mb",
        at_most=60,
    ),
    Target(
        text="reading the tail, 16 KB batches: broker CPU-seconds per GB",
        scenario="tail-fetch",
        case="16 KB batches read from the tail",
        metric="server_cpu_s_per_gb",
        at_most=1,
    ),
    *(
        Target(
            text=f"catching up, {batches} batches, into a reader that discards: MB/s",
            scenario="catch-up-fetch",
            case=f"{batches} batches",
            metric="mb_per_s",
            at_least=1000,
        )
        for batches in ("1 MB", "16 KB")
    ),
    *(
        Target(
            text=f"{request}, {in_flight} in flight, no sync: broker CPU in µs",
            scenario="scale",
            case=f"{request}, {in_flight} in flight",
            metric="small_cpu_us",
            at_most=60,
        )
        for request in ("small produce", "empty fetch")
        for in_flight in (1, 32)
    ),
    Target(
        text="one synchronous durable producer: rate against redis appendfsync always",
        scenario="produce-sync",
        case="one record at a time",
        metric=_REDIS,
        at_least=1.0,
    ),
    *(
        Target(
            text=f"256 in flight, single records, {partitions} partition(s): records/s",
            scenario="produce-in-flight",
            case=f"256 in flight, {partitions} partitions",
            metric="messages_per_s",
            at_least=least,
        )
        for partitions, least in ((1, 100_000), (100, 50_000), (500, 50_000))
    ),
    *(
        Target(
            text=f"{protocol}, {size} B published, 256 in flight: broker CPU in µs",
            scenario=f"publish-{protocol}",
            case=f"{size} B, 256 in flight",
            metric="server_cpu_s_per_million",
            at_most=12,
        )
        for protocol in ("minibroker", "cursus", "mlog")
        for size in (100, 1024)
    ),
    *(
        Target(
            text=f"durable p99 in ms beside {load}",
            scenario="produce-under-load",
            case=f"beside {load}",
            metric="p99_ms",
            at_most=5,
        )
        for load in ("64 single records in flight", "1 MB batches", "a catch-up reader")
    ),
    Target(
        text="ready after exec, ms",
        scenario="starting",
        case="serve on an empty directory",
        metric="ready_ms",
        at_most=400,
    ),
    Target(
        text="EphemeralBroker start, ms",
        scenario="starting",
        case="EphemeralBroker in memory",
        metric="start_ms",
        at_most=100,
    ),
    Target(
        text="CLI import, ms",
        scenario="starting",
        case="command line",
        metric="import_ms",
        at_most=200,
    ),
    Target(
        text="10,000 idle connections, KB each",
        scenario="idle-connections",
        case="10000 after ApiVersions",
        metric="kb_each",
        at_most=8,
    ),
    *(
        Target(
            text=f"10,000 partitions {what}, KB each",
            scenario="many-partitions",
            case=f"10000 {what}",
            metric="kb_each",
            at_most=6,
        )
        for what in ("empty", "with data")
    ),
    *(
        Target(
            text=f"start after kill, {what}, s",
            scenario="many-partitions",
            case=case,
            metric="start_after_kill_s",
            at_most=5,
        )
        for what, case in (
            ("10,000 empty partitions", "10000 empty"),
            ("10,000 partitions with data", "10000 with data"),
            ("large log, fsync", "large log fsync"),
            ("large log, os", "large log os"),
        )
    ),
    *(
        Target(
            text=f"capture of {rows} rows: CPU of its process in µs per row",
            scenario="capture",
            case=f"{rows} rows",
            metric="server_cpu_s_per_million",
            at_most=40,
        )
        for rows in (10_000, 100_000, 1_000_000)
    ),
    Target(
        text="capture: CPU per row of 1,000,000 rows against 10,000",
        scenario="capture",
        case="1000000 rows against 10000",
        metric="ratio_cpu",
        at_most=1.25,
    ),
    *(
        Target(
            text=f"{operation}: cost with {more} against {fewer}",
            scenario="flatness",
            case=f"{operation}, {more} against {fewer}",
            metric="ratio_p50",
            at_most=1.25,
        )
        for operation in ("append", "fetch")
        for more, fewer in (("1000 segments", "10"), ("10000 partitions", "10"))
    ),
    *(
        Target(
            text=f"Spark reads {case}: CPU against Parquet (zstd, all columns)",
            scenario="spark-read",
            case=case,
            metric="cost_against_parquet",
            at_most=most,
        )
        for case, most in (
            ("none, all columns", 1.5),
            ("zstd, all columns", 2.0),
            ("none, two columns", 1.2),
            ("lz4, two columns", 1.2),
            ("zstd, two columns", 1.2),
            ("none, all columns (numpy)", 2.2),
        )
    ),
    *(
        Target(
            text=f"Spark writes, {case}: CPU ns per row, broker included",
            scenario="spark-write",
            case=case,
            metric="cpu_ns_per_row",
            at_most=3500,
        )
        for case in ("parquet to a topic, none", "parquet to a topic, zstd")
    ),
)


def verdicts(figures: Sequence[Figure]) -> list[Verdict]:
    """Of every target that this run measured."""
    found: list[Verdict] = []
    by_case = {(figure.scenario, figure.case): figure for figure in figures}
    for target in TARGETS:
        figure = by_case.get((target.scenario, target.case))
        if figure is None:
            continue
        got = figure.metrics.get(target.metric, figure.ratios.get(target.metric))
        if got is None:
            continue
        found.append(Verdict(target.text, target.bound, got, _is_met(target, got)))
    return found


def _is_met(target: Target, got: float) -> bool:
    if target.at_most is not None:
        return got <= target.at_most
    assert target.at_least is not None
    return got >= target.at_least
