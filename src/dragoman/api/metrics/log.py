"""The journal, the segments and their damage; the sizes and ends of topics and partitions.

The extents of partitions that are not open come from their manifests, each of which is read once:
no record is appended to such a partition. The first snapshot therefore pauses often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.api.damaged_ranges import damaged_ranges
from dragoman.api.metrics.histograms import distribution
from dragoman.broker.partitions import Extent
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import CorruptionError, FormatError
from dragoman.limits import METRIC_SERIES_MAX
from dragoman.log.directory import QUARANTINE
from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.node_ports import NodeBroker

#: Partitions that are looked at, and manifests that are read, between two pauses.
_PARTITIONS_AT_ONCE = 250
_MANIFESTS_AT_ONCE = 10


class LogMetrics:
    def __init__(self, broker: NodeBroker) -> None:
        self._broker = broker
        #: Extents of partitions that are not open, by id.
        self._stored: dict[int, Extent] = {}
        #: Bytes of the files in quarantine, by name: they never change.
        self._quarantined: dict[str, int] = {}

    def stats(self) -> Iterator[Stats]:
        store = self._broker.store
        stats = store.stats
        damaged: Counter[tuple[str, ...]] = Counter((each.topic,) for each in damaged_ranges(store))
        yield {
            "appended_batches_total": stats.appended_batches,
            "appended_bytes_total": stats.appended_bytes,
            "fetched_bytes_total": stats.fetched_bytes,
            "segment_rolls_total": stats.rolls,
            "compaction_dropped_records_total": stats.compacted_records,
            "log_dirty_bytes": stats.dirty_bytes,
            "log_damaged_ranges": damaged.total(),
            "topic_damaged_ranges": damaged,
            "log_damage_found_total": stats.damage,
            "journal_groups_total": stats.groups,
            "journal_bytes_total": stats.committed_bytes,
            "journal_sync_seconds": distribution(stats.sync_seconds),
            "journal_group_bytes": distribution(stats.group_bytes, stats.committed_bytes),
            "journal_group_batches": distribution(stats.group_batches, stats.appended_batches),
            "checkpoint_seconds": distribution(stats.checkpoint_seconds),
            **self._of_disk(),
        }
        yield from self._extents()

    def _of_disk(self) -> Stats:
        store = self._broker.store
        with suppress(OSError):
            return {
                "disk_free_bytes": store.disk.free_bytes(),
                "log_quarantined_bytes": self._quarantined_bytes(),
            }
        return {}

    def _quarantined_bytes(self) -> int:
        disk = self._broker.store.disk
        known, names = self._quarantined, disk.names(QUARANTINE)
        for name in names:
            if name not in known:
                file = disk.open(f"{QUARANTINE}/{name}", "read")
                known[name] = file.size()
                file.close()
        return sum(known[name] for name in names)

    def _extents(self) -> Iterator[Stats]:
        """Sizes and ends: of all partitions together, and by topic of those led here; by partition
        while these are few.
        """
        broker = self._broker
        node_id = broker.node_id
        held = [each for each in broker.image.partitions.values() if node_id in each.replicas]
        yield {}
        total = seen = 0
        sizes: Counter[tuple[str, ...]] = Counter()
        records: Counter[tuple[str, ...]] = Counter()
        led: dict[tuple[str, ...], Extent] = {}
        for partition in held:
            seen += 1
            if broker.partitions.opened(partition.partition_id) is not None:
                self._stored.pop(partition.partition_id, None)
            elif partition.partition_id not in self._stored:
                seen += _PARTITIONS_AT_ONCE // _MANIFESTS_AT_ONCE
            extent = self.extent(partition)
            total += extent.size
            if partition.leader == node_id:
                name = partition.topic.name
                sizes[(name,)] += extent.size
                records[(name,)] += extent.log_end_offset - extent.log_start_offset
                if len(led) <= METRIC_SERIES_MAX:
                    led[name, str(partition.index)] = extent
            if seen >= _PARTITIONS_AT_ONCE:
                seen = 0
                yield {}
        if len(self._stored) > len(held):
            # Partitions that are gone.
            ids = {each.partition_id for each in held}
            self._stored = {each: self._stored[each] for each in ids & self._stored.keys()}
        if len(led) > METRIC_SERIES_MAX:
            led = {}
        yield {}
        yield {
            "log_bytes": total,
            "topic_log_bytes": sizes,
            "topic_log_records": records,
            "partition_bytes": {labels: each.size for labels, each in led.items()},
            "partition_log_start_offset": {
                labels: each.log_start_offset for labels, each in led.items()
            },
            "partition_log_end_offset": {
                labels: each.log_end_offset for labels, each in led.items()
            },
        }

    def extent(self, partition: PartitionMetadata) -> Extent:
        """The extent of a partition of which this node has a replica."""
        known = self._stored.get(partition.partition_id)
        if known is not None:
            return known
        partitions = self._broker.partitions
        try:
            found = partitions.extent(partition)
        except (OSError, CorruptionError, FormatError):
            # It is examined when the partition is opened.
            found = Extent(0, 0, 0)
        if partitions.opened(partition.partition_id) is None:
            self._stored[partition.partition_id] = found
        return found
