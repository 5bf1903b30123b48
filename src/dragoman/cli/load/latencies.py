"""Counts of times, with percentiles that are at most 0.8 % too high.

A bucket holds the microseconds that share their highest eight bits, so the number of buckets grows
with the logarithm of the longest time. Times of several processes are added up.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

#: A bucket's width is at most its smallest value divided by this.
_STEPS: Final = 128


class Latencies(msgspec.Struct):
    #: Count of each bucket.
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        micros = max(0, int(seconds * 1e6))
        shift = max(0, micros.bit_length() - 8)
        bucket = shift * _STEPS + (micros >> shift)
        self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += count
        self.total_s += seconds * count
        self.max_s = max(self.max_s, seconds)

    def merge(self, other: Latencies) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.total_s += other.total_s
        self.max_s = max(self.max_s, other.max_s)

    @property
    def mean_s(self) -> float | None:
        return self.total_s / self.count if self.count else None

    def percentile_s(self, percent: float) -> float | None:
        """The time that this share of all times does not exceed; None without any."""
        if not self.count:
            return None
        wanted = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(_highest(bucket) / 1e6, self.max_s)
        raise AssertionError("the counts of all buckets are the count")


def _highest(bucket: int) -> int:
    """The most microseconds of a bucket."""
    shift = max(0, bucket // _STEPS - 1)
    return ((bucket - shift * _STEPS + 1) << shift) - 1
