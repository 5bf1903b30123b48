"""How far the groups that this node coordinates are behind.

The ends are those of the replicas on this node: of followers, too, which are a little behind their
leaders. A topic of which this node has no replica is left out. The time of the oldest record that
is not committed is looked up once for each committed offset, in memory or by one small read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman.api.metrics.log import LogMetrics
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.log.offset_times import is_in_memory, time_at
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node_ports import NodeBroker

#: Committed offsets that are looked at, and records that are looked up in files, between two
#: pauses.
_OFFSETS_AT_ONCE = 250
_READS_AT_ONCE = 5


class _Lag:
    """The lag of a group on one topic."""

    __slots__ = ("max_records", "oldest_ms", "records")

    def __init__(self) -> None:
        self.records = 0
        self.max_records = 0
        self.oldest_ms: int | None = None

    def add(self, records: int, time_ms: int | None) -> None:
        self.records += records
        self.max_records = max(self.max_records, records)
        if time_ms is not None and (self.oldest_ms is None or time_ms < self.oldest_ms):
            self.oldest_ms = time_ms

    def seconds(self, now_ms: int) -> float | None:
        """The age of the oldest record; None when no record has a timestamp."""
        if not self.records:
            return 0.0
        return None if self.oldest_ms is None else max(0, now_ms - self.oldest_ms) / 1000


class GroupLag:
    def __init__(self, broker: NodeBroker, log: LogMetrics) -> None:
        self._broker = broker
        self._log = log
        #: Times of records by partition and offset; those of the last snapshot are kept.
        self._times: dict[tuple[int, int], int | None] = {}

    def stats(self) -> Iterator[Stats]:
        broker, image = self._broker, self._broker.image
        # A scrape and the history may read snapshots at the same time.
        known, kept = self._times, dict[tuple[int, int], int | None]()
        lags: dict[tuple[str, ...], _Lag] = {}
        seen = 0
        for group in broker.coordination.groups.table:
            for (name, index), committed in list(group.ledger.committed.items()):
                seen += 1
                topic = image.topics.get(name)
                if topic is None or index >= len(topic.partitions):
                    continue
                partition = topic.partitions[index]
                if broker.node_id not in partition.replicas:
                    continue
                records, start = self.behind(partition, committed.offset)
                time_ms = None
                if records:
                    key = (partition.partition_id, start)
                    if key not in known:
                        known[key], is_read = self._time_at(partition, start)
                        seen += is_read * _OFFSETS_AT_ONCE // _READS_AT_ONCE
                    time_ms = kept[key] = known[key]
                lags.setdefault((group.group_id, name), _Lag()).add(records, time_ms)
                if seen >= _OFFSETS_AT_ONCE:
                    seen = 0
                    yield {}
        self._times = kept
        yield _shown(lags, broker.clock.wall_ms())

    def behind(self, partition: PartitionMetadata, offset: int) -> tuple[int, int]:
        """Records from a committed offset on, and where they begin: not before the log."""
        replica = self._broker.partitions.opened(partition.partition_id)
        if replica is None:
            extent = self._log.extent(partition)
            start, end = extent.log_start_offset, extent.log_end_offset
        else:
            start, end = replica.log.log_start_offset, replica.log.high_watermark
        start = max(start, offset)
        return max(0, end - start), start

    def _time_at(self, partition: PartitionMetadata, offset: int) -> tuple[int | None, bool]:
        """The time of a record, and whether a file was read for it."""
        try:
            log = self._broker.partitions.held(partition).log
            is_read = not is_in_memory(log, offset)
            return time_at(log, offset), is_read
        except (DragomanError, OSError):
            # Damage, or a replica that is moving; readers report it.
            return None, True


def _shown(lags: dict[tuple[str, ...], _Lag], now_ms: int) -> Stats:
    seconds = {labels: each.seconds(now_ms) for labels, each in lags.items()}
    return {
        "group_lag_records": {labels: each.records for labels, each in lags.items()},
        "group_lag_max_records": {labels: each.max_records for labels, each in lags.items()},
        "group_lag_seconds": {labels: each for labels, each in seconds.items() if each is not None},
    }
