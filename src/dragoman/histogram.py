"""Histograms in plain integers, for the hot paths."""

from __future__ import annotations

from bisect import bisect_left


class Histogram:
    """How many values were at most each bound, and the sum of all values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Bounds in ascending order."""
        self.bounds = bounds
        #: Values up to each bound and above the one before it; the last are above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Add a value, this many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)
