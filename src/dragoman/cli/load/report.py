"""What a benchmark prints: a line while it runs, and the result with all that repeats it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from dragoman import __version__
from dragoman.cli.load.plan import Plan
from dragoman.cli.load.tally import Tally
from dragoman.client.kafka import BlockingKafkaClient
from dragoman.telemetry.logs import escape

#: The share of a core from which a client is probably the limit.
_BUSY: Final = 0.9
_PERCENTS: Final = (50.0, 90.0, 99.0, 99.9)
#: Of a plan, what is shown elsewhere or is secret.
_NOT_OPTIONS: Final = frozenset(("mode", "brokers", "topics", "tls", "login"))


class Broker(msgspec.Struct, kw_only=True):
    """What a broker says about itself."""

    cluster_id: str | None
    brokers: int
    #: Versions of each request, as `FIRST-LAST`.
    api_versions: dict[str, str]


class Result(msgspec.Struct, kw_only=True):
    benchmark: str
    brokers: str
    records: int
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None
    mean_ms: float | None
    errors: dict[str, int]
    unsent_records: int
    is_interrupted: bool
    #: Processor time of each client process, as a share of one core.
    client_cpu: list[float]
    is_client_limit: bool
    batches: int
    bytes: int
    topics: list[str]
    is_tls: bool
    login: str | None
    options: dict[str, str | int | float | None]
    started_at: str
    client_version: str
    python: str
    platform: str
    cpus: int | None
    broker: Broker


def broker_of(client: BlockingKafkaClient) -> Broker:
    cluster = client.cluster([])
    served = client.served_versions()
    return Broker(
        cluster_id=cluster.cluster_id,
        brokers=len(cluster.brokers),
        api_versions={name: f"{low}-{high}" for name, (low, high) in sorted(served.items())},
    )


def result(
    plan: Plan, tally: Tally, broker: Broker, started_at: datetime, *, is_interrupted: bool
) -> Result:
    seconds = tally.seconds
    times = [tally.latencies.percentile_s(percent) for percent in _PERCENTS]
    options = {
        name: getattr(plan, name) for name in plan.__struct_fields__ if name not in _NOT_OPTIONS
    }
    # A client does not know when the broker has records that it need not acknowledge.
    is_timed = not (plan.mode == "produce" and plan.acks == "0")
    p50, p90, p99, p99_9, highest, mean = (
        _milliseconds(each if is_timed else None)
        for each in (
            *times,
            tally.latencies.max_s if tally.latencies.count else None,
            tally.latencies.mean_s,
        )
    )
    return Result(
        benchmark=plan.mode,
        brokers=plan.brokers,
        records=tally.records,
        seconds=round(seconds, 3),
        records_per_second=round(tally.records / seconds, 1) if seconds > 0 else 0.0,
        megabytes_per_second=round(tally.bytes / seconds / 1e6, 3) if seconds > 0 else 0.0,
        p50_ms=p50,
        p90_ms=p90,
        p99_ms=p99,
        p99_9_ms=p99_9,
        max_ms=highest,
        mean_ms=mean,
        errors=dict(sorted(tally.errors.items())),
        unsent_records=tally.unsent_records,
        is_interrupted=is_interrupted,
        client_cpu=[round(each, 3) for each in tally.cpu],
        is_client_limit=is_client_limit(tally),
        batches=tally.batches,
        bytes=tally.bytes,
        topics=list(plan.topics),
        is_tls=plan.tls is not None,
        login=None if plan.login is None else plan.login.mechanism,
        options=options,
        started_at=started_at.astimezone(UTC).isoformat(timespec="seconds"),
        client_version=f"dragoman {__version__}",
        python=platform.python_version(),
        platform=platform.platform(),
        cpus=os.cpu_count(),
        broker=broker,
    )


def is_client_limit(tally: Tally) -> bool:
    return any(each >= _BUSY for each in tally.cpu)


def fields(found: Result) -> Iterator[tuple[str, str]]:
    """The result for people."""
    yield "benchmark", f"{found.benchmark}, {found.brokers}"
    yield "records", f"{found.records:,} in {found.seconds:.1f} s"
    yield (
        "throughput",
        f"{found.records_per_second:,.0f} records/s, {found.megabytes_per_second:,.1f} MB/s",
    )
    if found.p50_ms is None:
        yield "latency", "unknown"
    else:
        yield (
            "latency",
            "  ".join(
                f"{name} {_shown(value)}"
                for name, value in (
                    ("p50", found.p50_ms),
                    ("p90", found.p90_ms),
                    ("p99", found.p99_ms),
                    ("p99.9", found.p99_9_ms),
                    ("max", found.max_ms),
                )
            )
            + " ms",
        )
    yield "errors", _errors(found.errors) or "none"
    if found.unsent_records:
        yield "not sent", f"{found.unsent_records:,} records that were due"
    shares = ", ".join(f"{share:.0%}" for share in found.client_cpu)
    limit = ": the client is probably the limit; try --processes" if found.is_client_limit else ""
    yield "client CPU", f"{shares} of a core{limit}"


class LiveLine:
    """One line on a terminal's stderr, which every new one replaces."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    def show(self, elapsed_s: float, tally: Tally) -> None:
        if not self._is_shown or elapsed_s <= 0:
            return
        rate = tally.records / tally.seconds if tally.seconds > 0 else 0.0
        line = f"{elapsed_s:5.0f} s  {tally.records:,} records  {rate:,.0f} records/s"
        middle, high = (
            _milliseconds(tally.latencies.percentile_s(percent)) for percent in (50.0, 99.0)
        )
        if middle is not None and high is not None:
            line += f"  p50 {_shown(middle)}  p99 {_shown(high)} ms"
        if tally.errors:
            line += f"  errors: {_errors(tally.errors)}"
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def clear(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _errors(errors: Mapping[str, int]) -> str:
    return escape(", ".join(f"{name} {count}" for name, count in sorted(errors.items())))


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _shown(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "-"
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:.2f}"
