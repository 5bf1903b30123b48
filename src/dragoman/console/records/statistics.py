"""What the records of a search have in common: how many, when, how large, and which keys.

The memory is bounded, whatever is counted:

    distinct keys, values   exact up to a bound, then estimated from the smallest hashes
    frequent keys           counters that are lowered together when there are too many, so a count
                            may be too small by what it was lowered by, which is said
    sizes                   histograms whose buckets are at most a sixteenth wide
    records over time       periods that become longer when there are too many
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from dragoman.console.records.shown import Decoders, show
from dragoman.console.records.values import (
    FrequentKey,
    PartitionStatistics,
    Period,
    Sizes,
    Statistics,
)
from dragoman.log.batch import Record

#: Hashes that an estimate keeps: it is wrong by 1.6 % or less in two of three cases.
_HASHES: Final = 4096
_HASH_MASK: Final = (1 << 64) - 1
_FREQUENT_SHOWN: Final = 10
_FREQUENT_KEPT: Final = 1000
_KEY_BYTES_KEPT: Final = 256
_PERIODS_MAX: Final = 240
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
#: Lengths of periods in ms; each divides the next one.
_LENGTHS: Final = (
    *(_SECOND * each for each in (1, 5, 15)),
    *(_MINUTE * each for each in (1, 5, 15)),
    *(_HOUR * each for each in (1, 6)),
    *(_DAY * each for each in (1, 10, 100, 1000, 10_000, 100_000)),
)
assert all(not longer % shorter for shorter, longer in itertools.pairwise(_LENGTHS))


def _longer() -> Iterator[int]:
    """Clients may write any time, so no list of lengths is long enough."""
    length = _LENGTHS[-1]
    while True:
        length *= 10
        yield length


class Counted:
    """Statistics of the records so far."""

    def __init__(self, decoders: Decoders) -> None:
        self._decoders = decoders
        self._keys = _Distinct()
        self._values = _Distinct()
        self._frequent = _Frequent()
        self._key_sizes = _Sizes()
        self._value_sizes = _Sizes()
        self._periods = _Periods()
        self._partitions: dict[int, _Partition] = {}
        self._without_key = 0
        self._without_value = 0
        self._with_headers = 0

    def add(self, found: Iterable[tuple[int, Record]]) -> None:
        for partition, record in found:
            counted = self._partitions.get(partition)
            if counted is None:
                counted = self._partitions[partition] = _Partition(record.offset)
            counted.last = record.offset
            counted.records += 1
            key, value = record.key, record.value
            if key is None:
                self._without_key += 1
            else:
                hashed = hash(key)
                self._keys.add(hashed)
                self._frequent.add(hashed, key)
                self._key_sizes.add(len(key))
                counted.bytes += len(key)
            if value is None:
                self._without_value += 1
            else:
                self._values.add(hash(value))
                self._value_sizes.add(len(value))
                counted.bytes += len(value)
            if record.headers:
                self._with_headers += 1
            self._periods.add(record.timestamp)

    def shown(self) -> Statistics:
        return Statistics(
            records=sum(each.records for each in self._partitions.values()),
            without_key=self._without_key,
            without_value=self._without_value,
            with_headers=self._with_headers,
            without_time=self._periods.without,
            first_ms=self._periods.first,
            last_ms=self._periods.last,
            keys=self._key_sizes.shown(),
            values=self._value_sizes.shown(),
            distinct_keys=self._keys.count(),
            distinct_values=self._values.count(),
            is_estimate=self._keys.is_full or self._values.is_full,
            frequent_keys=tuple(
                FrequentKey(key=show(key, self._decoders.key, _KEY_BYTES_KEPT), records=found)
                for key, found in self._frequent.most(_FREQUENT_SHOWN)
            ),
            frequent_too_small_by=self._frequent.lowered_by,
            period_ms=self._periods.length,
            periods=self._periods.shown(),
            partitions=tuple(
                PartitionStatistics(
                    partition=index,
                    records=each.records,
                    bytes=each.bytes,
                    first_offset=each.first,
                    last_offset=each.last,
                )
                for index, each in sorted(self._partitions.items())
            ),
        )


class _Partition:
    __slots__ = ("bytes", "first", "last", "records")

    def __init__(self, offset: int) -> None:
        self.first = self.last = offset
        self.records = 0
        self.bytes = 0


class _Distinct:
    """Counts different hashes. Of many, the smallest are kept: how dense they are tells how many
    there are.
    """

    def __init__(self) -> None:
        self._kept: set[int] = set()
        #: The kept hashes, negated: the first is the largest.
        self._heap: list[int] = []

    @property
    def is_full(self) -> bool:
        return len(self._heap) == _HASHES

    def add(self, hashed: int) -> None:
        hashed &= _HASH_MASK
        if hashed in self._kept:
            return
        if not self.is_full:
            heapq.heappush(self._heap, -hashed)
        elif hashed < -self._heap[0]:
            self._kept.discard(-heapq.heapreplace(self._heap, -hashed))
        else:
            return
        self._kept.add(hashed)

    def count(self) -> int:
        if not self.is_full:
            return len(self._kept)
        return round((_HASHES - 1) * (_HASH_MASK + 1) / -self._heap[0])


class _Frequent:
    """The most frequent keys, by their hashes, with the beginning of each."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._keys: dict[int, bytes] = {}
        #: What every count may be too small by.
        self.lowered_by = 0

    def add(self, hashed: int, key: bytes) -> None:
        counts = self._counts
        counts[hashed] += 1
        if hashed not in self._keys:
            self._keys[hashed] = bytes(key[: _KEY_BYTES_KEPT + 1])
            if len(counts) > 2 * _FREQUENT_KEPT:
                self._lower()

    def _lower(self) -> None:
        by = heapq.nlargest(_FREQUENT_KEPT + 1, self._counts.values())[-1]
        self.lowered_by += by
        self._counts = Counter(
            {each: count - by for each, count in self._counts.items() if count > by}
        )
        self._keys = {each: self._keys[each] for each in self._counts}

    def most(self, count: int) -> list[tuple[bytes, int]]:
        return [(self._keys[each], found) for each, found in self._counts.most_common(count)]


class _Sizes:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._total = 0
        self._least: int | None = None
        self._most = 0

    def add(self, size: int) -> None:
        # A bucket is the first five bits, and how many follow.
        rest = max(size.bit_length() - 5, 0)
        self._counts[(size >> rest) + (rest << 5)] += 1
        self._total += size
        if self._least is None or size < self._least:
            self._least = size
        if size > self._most:
            self._most = size

    def shown(self) -> Sizes | None:
        if self._least is None:
            return None
        count = self._counts.total()
        return Sizes(
            total=self._total,
            average=round(self._total / count, 1),
            least=self._least,
            most=self._most,
            median=self._below(count * 0.5),
            p95=self._below(count * 0.95),
            p99=self._below(count * 0.99),
        )

    def _below(self, wanted: float) -> int:
        """The size that so many values do not exceed; at most a sixteenth too large."""
        ends = {
            ((bucket & 31) + 1 << (bucket >> 5)) - 1: count
            for bucket, count in self._counts.items()
        }
        seen = 0
        for end in sorted(ends):
            seen += ends[end]
            if seen >= wanted:
                return min(end, self._most)
        return self._most


class _Periods:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._lengths = itertools.chain(_LENGTHS, _longer())
        self.length = next(self._lengths)
        self.first: int | None = None
        self.last: int | None = None
        self.without = 0

    def add(self, timestamp: int) -> None:
        if timestamp < 0:
            self.without += 1
            return
        if self.first is None or self.last is None:
            self.first = self.last = timestamp
        elif timestamp < self.first:
            self.first = timestamp
        elif timestamp > self.last:
            self.last = timestamp
        self._counts[timestamp // self.length] += 1
        if self.last // self.length - self.first // self.length >= _PERIODS_MAX:
            self._lengthen()

    def _lengthen(self) -> None:
        assert self.first is not None
        assert self.last is not None
        before = self.length
        while self.last // self.length - self.first // self.length >= _PERIODS_MAX:
            self.length = next(self._lengths)
        merged: Counter[int] = Counter()
        for index, count in self._counts.items():
            merged[index * before // self.length] += count
        self._counts = merged

    def shown(self) -> tuple[Period, ...]:
        return tuple(
            Period(begin_ms=index * self.length, records=count)
            for index, count in sorted(self._counts.items())
        )
