"""Histograms by powers of two, for the hot paths: adding a value takes no search.

A bucket holds the values of one length in bits. Times are counted in microseconds:

    counts[0]    0
    counts[k]    2 ** (k - 1) up to 2 ** k, which it leaves out

Code that runs with every request adds to `counts` and `total` itself: a call would cost more than
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

#: Lengths in bits of the bounds that are shown.
_OF_TIMES: Final = (7, 9, 11, 13, 15, 17, 19, 21, 23)
_BITS_MAX: Final = 64


class Histogram:
    """Counts of whole numbers."""

    __slots__ = ("_lengths", "counts", "total")

    def __init__(self, lengths: Sequence[int]) -> None:
        """`lengths`: the bounds that are shown, as lengths in bits, in ascending order."""
        self._lengths = lengths
        self.counts = [0] * (_BITS_MAX + 1)
        #: Sum of all values.
        self.total: float = 0

    def add(self, value: int, count: int = 1) -> None:
        self.counts[value.bit_length()] += count
        self.total += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The largest value below each bound."""
        return tuple(float((1 << each) - 1) for each in self._lengths)

    def buckets(self) -> tuple[int, ...]:
        """Values up to each bound and above the one before it; the last are above all bounds."""
        ends = [0, *(each + 1 for each in self._lengths), len(self.counts)]
        return tuple(sum(self.counts[start:end]) for start, end in pairwise(ends))

    def merge(self, other: Histogram) -> None:
        """Add all values of another one."""
        self.counts = [own + more for own, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Times(Histogram):
    """Counts of times in seconds."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_OF_TIMES)

    def add_seconds(self, seconds: float, count: int = 1) -> None:
        self.counts[int(seconds * 1e6).bit_length()] += count
        self.total += seconds * count

    @property
    def bounds(self) -> tuple[float, ...]:
        return tuple((1 << each) / 1e6 for each in self._lengths)
