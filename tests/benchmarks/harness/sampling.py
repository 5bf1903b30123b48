"""Samples of contenders that take turns, and what is said about them.

Contenders run A B A B ..., so that a machine that slows down slows all of them down; each figure is
the median over the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

GB = 1e9
MB = 1e6


class Latency(msgspec.Struct, frozen=True):
    """One time that `count` requests took: those that were sent and answered together."""

    seconds: float
    count: int = 1


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One contender's turn."""

    seconds: float
    messages: int
    #: Payload: what the user calls data, without headers and framing.
    payload_bytes: int
    latencies: list[Latency] = []
    #: CPU time of the server and its children; None for contenders without one.
    server_cpu_s: float | None = None
    client_cpu_s: float = 0.0


Contender = Callable[[], Sample]


def interleaved(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[Sample]]:
    """Every contender's samples, one per round."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            samples[name].append(run())
    return samples


class Stopwatch:
    """Wall time and CPU time of client and server over the same stretch."""

    def __init__(self, server_cpu: Callable[[], float] | None = None) -> None:
        self._server_cpu = server_cpu
        self._server = server_cpu() if server_cpu else 0.0
        self._client = time.process_time()
        self._wall = time.perf_counter()

    def sample(
        self, messages: int, payload_bytes: int, latencies: Sequence[Latency] = ()
    ) -> Sample:
        seconds = time.perf_counter() - self._wall
        client = time.process_time() - self._client
        return Sample(
            seconds=seconds,
            messages=messages,
            payload_bytes=payload_bytes,
            latencies=list(latencies),
            server_cpu_s=self._server_cpu() - self._server if self._server_cpu else None,
            client_cpu_s=client,
        )


def percentile(latencies: Sequence[Latency], share: float) -> float:
    """The time within which `share` of all requests were answered."""
    assert 0 < share <= 1
    ordered = sorted(latencies, key=lambda each: each.seconds)
    wanted = share * sum(each.count for each in ordered)
    seen = 0
    for each in ordered:
        seen += each.count
        if seen >= wanted:
            return each.seconds
    raise ValueError("no latencies")


def summary(samples: Sequence[Sample]) -> dict[str, float]:
    """Medians over the rounds, under the names that reports and targets use.

    Of the longest wait it is the longest: a median would hide that one request got stuck.
    """
    rows = [_row(each) for each in samples]
    return {
        name: (max if name == "max_ms" else median)(row[name] for row in rows if name in row)
        for name in rows[0]
    }


def _row(sample: Sample) -> dict[str, float]:
    row = {"messages_per_s": sample.messages / sample.seconds}
    if sample.payload_bytes:
        row["mb_per_s"] = sample.payload_bytes / MB / sample.seconds
    if sample.latencies:
        row["p50_ms"] = percentile(sample.latencies, 0.50) * 1e3
        row["p99_ms"] = percentile(sample.latencies, 0.99) * 1e3
        row["max_ms"] = percentile(sample.latencies, 1.0) * 1e3
    if sample.server_cpu_s is not None:
        row["server_cpu_share"] = sample.server_cpu_s / sample.seconds
        row["server_cpu_s_per_million"] = sample.server_cpu_s / sample.messages * 1e6
        if sample.payload_bytes:
            row["server_cpu_s_per_gb"] = sample.server_cpu_s / sample.payload_bytes * GB
    row["client_cpu_share"] = sample.client_cpu_s / sample.seconds
    return row


def ratio(samples: Sequence[Sample], bound: Sequence[Sample]) -> float:
    """How fast against a bound: median over the rounds of the two rates of the same round."""
    return median(
        (ours.messages / ours.seconds) / (theirs.messages / theirs.seconds)
        for ours, theirs in zip(samples, bound, strict=True)
    )
