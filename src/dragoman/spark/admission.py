"""Determines how far a micro-batch reads when records or bytes per batch are bounded.

Partitions share a bound in proportion to their lag, as in Spark's Kafka source; a partition with
any lag advances by at least one record. Bytes are counted in the log: exactly, up to a range of the
sparse index, if files are stable and visible, and otherwise estimated from the partition's average
record size.
"""

from __future__ import annotations

import time

from dragoman.client.kafka import ClientError, TopicPartition
from dragoman.spark.logs import AnyLog, BrokerLog
from dragoman.spark.offsets import Offsets
from dragoman.spark.options import SourceOptions
from dragoman.spark.storage import StoredLog, StoredPartition

#: Requesting sizes makes brokers open idle partitions, so it is done rarely.
_AVERAGES_AGE_MAX_S = 60.0
#: Estimate for brokers that do not report sizes.
_RECORD_BYTES = 100.0


def within_records(starts: Offsets, ends: Offsets, records_max: int) -> Offsets:
    waiting = {where: ends[where] - starts[where] for where in ends}
    total = sum(waiting.values())
    if total <= records_max:
        return ends
    return {
        where: starts[where] + min(count, max(1, records_max * count // total)) if count else end
        for (where, end), count in zip(ends.items(), waiting.values(), strict=True)
    }


class ByteBound:
    """The bound in bytes. Keeps average record sizes between micro-batches."""

    def __init__(self, log: AnyLog, stored: StoredLog | None, options: SourceOptions) -> None:
        self._log = log
        self._stored = stored
        self._committed_only = options.committed_only
        self._averages: dict[TopicPartition, float] = {}
        self._averages_at = time.monotonic() - _AVERAGES_AGE_MAX_S

    def within(
        self, starts: Offsets, ends: Offsets, ids: dict[str, str], bytes_max: int
    ) -> Offsets:
        if time.monotonic() - self._averages_at >= _AVERAGES_AGE_MAX_S:
            self._averages = self._fetch_averages(list(ends))
            self._averages_at = time.monotonic()
        held = {
            where: None if self._stored is None else self._stored.partition(where, ids[where.topic])
            for where in ends
        }
        sizes = {
            where: self._size(where, held[where], starts[where], end) for where, end in ends.items()
        }
        total = sum(sizes.values())
        if total <= bytes_max:
            return ends
        found = {}
        for where, end in ends.items():
            start, share = starts[where], bytes_max * sizes[where] / total
            cut = self._cut(where, held[where], start, end, share)
            found[where] = min(end, max(cut, start + 1))
        return found

    def _size(
        self, where: TopicPartition, held: StoredPartition | None, start: int, end: int
    ) -> float:
        stable = 0
        if held is not None and start < end:
            stable_end = min(end, held.end(committed_only=self._committed_only))
            stable = held.bytes_between(start, stable_end)
            start = max(start, stable_end)
        return stable + max(0, end - start) * self._average(where)

    def _cut(
        self,
        where: TopicPartition,
        held: StoredPartition | None,
        start: int,
        end: int,
        share: float,
    ) -> int:
        if held is not None:
            stable_end = min(end, held.end(committed_only=self._committed_only))
            if start < stable_end:
                size = held.bytes_between(start, stable_end)
                if size > share:
                    return held.offset_after(start, stable_end, int(share))
                start, share = stable_end, share - size
        return start + int(share / self._average(where))

    def _average(self, where: TopicPartition) -> float:
        return self._averages.get(where, _RECORD_BYTES)

    def _fetch_averages(self, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
        if not isinstance(self._log, BrokerLog):
            return {}
        try:
            sizes = {
                where: size
                for directory in self._log.directories(partitions)
                for where, size in directory.sizes.items()
                if size > 0
            }
            first, last = self._log.earliest(sizes), self._log.latest(sizes)
        except ClientError:
            return {}
        return {where: size / max(1, last[where] - first[where]) for where, size in sizes.items()}
