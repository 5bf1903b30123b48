"""What has to be done from time to time: roll, retain, compact, forget idle producers.

Two rounds, each on its own interval and spread over loop turns. The retention round looks at every
partition that holds data, a few to a turn. The compaction round works on one partition at a time,
the dirtiest first, a slice to a turn; what needs the disk waits beside the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.topics import TopicConfig
from dragoman.errors import DragomanError
from dragoman.limits import MAINTENANCE_PARTITIONS_PER_SLICE
from dragoman.log.checkpoint import PARTITIONS
from dragoman.log.cleaner import (
    CompactionRules,
    RetentionRules,
    Work,
    compact,
    dirty_ratio,
    drop_expired,
    roll_when_due,
)
from dragoman.world import BackgroundJob, Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.maintenance")


class Maintenance:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers: dict[str, Handle] = {}
        self._is_stopped = False
        #: When something may be removed from a compacted partition even if nothing is written.
        self._horizons: dict[int, int] = {}

    def start(self) -> None:
        self._arm_retention()
        self._arm_compaction()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ---- retention

    def _arm_retention(self) -> None:
        delay_s = self._broker.settings.log_retention_check_interval_ms / 1000
        self._timers["retention"] = self._broker.scheduler.call_later(
            delay_s, self._begin_retention
        )

    def _begin_retention(self) -> None:
        self._retain_some(self._partitions_with_data())

    def _partitions_with_data(self) -> Iterator[PartitionMetadata]:
        """Partitions in use, and those that have a directory though nobody has used them yet."""
        in_use = {replica.metadata.partition_id for replica in self._broker.open_replicas()}
        for replica in self._broker.open_replicas():
            yield replica.metadata
        for name in self._broker.store.disk.names(PARTITIONS):
            number = name.partition("-")[0]
            metadata = (
                self._broker.image.partitions.get(int(number)) if number.isdecimal() else None
            )
            if metadata is None or metadata.partition_id in in_use:
                continue
            if metadata.leader == self._broker.node_id:
                yield metadata

    def _retain_some(self, partitions: Iterator[PartitionMetadata]) -> None:
        for _ in range(MAINTENANCE_PARTITIONS_PER_SLICE):
            if self._is_stopped:
                return
            metadata = next(partitions, None)
            if metadata is None:
                self._arm_retention()
                return
            if metadata.partition_id not in self._broker.image.partitions:
                continue
            try:
                self.retain(self._broker.replica(metadata))
            except DragomanError as error:
                where = f"{metadata.topic.name}-{metadata.index}"
                log.error("retention of %s: %s", where, error)
        self._timers["slice"] = self._broker.scheduler.call_later(0, self._retain_some, partitions)

    def retain(self, replica: Replica) -> None:
        """One partition's turn."""
        config, partition = replica.config, replica.log
        now_ms = self._broker.clock.wall_ms()
        rules = retention_rules(config)
        roll_when_due(partition, now_ms, rules)
        if rules is not None:
            dropped = drop_expired(partition, rules, now_ms)
            if dropped:
                log.info(
                    "%s: dropped %d segments, log starts at %d",
                    partition.describe(),
                    dropped,
                    partition.log_start_offset,
                )
        if partition.producers is not None:
            idle_max_ms = self._broker.settings.producer_id_expiration_ms
            partition.producers.expire(now_ms, idle_max_ms)

    # ---- compaction

    def _arm_compaction(self) -> None:
        delay_s = self._broker.settings.log_cleaner_backoff_ms / 1000
        self._timers["compaction"] = self._broker.scheduler.call_later(
            delay_s, self._begin_compaction
        )

    def _begin_compaction(self) -> None:
        replica = self._dirtiest()
        if replica is None:
            self._arm_compaction()
            return
        config = replica.config
        now_ms = self._broker.clock.wall_ms()
        rules = CompactionRules(config.delete_retention_ms, config.min_compaction_lag_ms)
        partition_id = replica.metadata.partition_id
        passed = self._horizons.pop(partition_id, now_ms) < now_ms
        work = compact(replica.log, rules, now_ms, horizon_passed=passed)
        self._step(replica, work)

    def _dirtiest(self) -> Replica | None:
        """Among compacted partitions that are dirty enough, or old enough, to be worth it."""
        best: tuple[float, Replica] | None = None
        now_ms = self._broker.clock.wall_ms()
        for replica in self._broker.open_replicas():
            if not replica.config.is_compacted:
                continue
            ratio = dirty_ratio(replica.log)
            horizon = self._horizons.get(replica.metadata.partition_id)
            is_due = (
                ratio >= replica.config.min_cleanable_dirty_ratio
                or (horizon is not None and horizon < now_ms)
                or _has_waited_too_long(replica, now_ms)
            )
            if is_due and (ratio or horizon is not None) and (best is None or ratio > best[0]):
                best = (ratio, replica)
        return best[1] if best is not None else None

    def _step(self, replica: Replica, work: Work) -> None:
        """One slice; the next comes with the next turn, or when the disk has done its part."""
        if self._is_stopped:
            work.close()
            return
        try:
            job = next(work)
        except StopIteration as finished:
            if finished.value is not None:
                self._horizons[replica.metadata.partition_id] = finished.value
            self._arm_compaction()
            return
        if isinstance(job, BackgroundJob):
            self._broker.store.run_job(job, lambda error: self._done(replica, work, error))
        else:
            self._timers["slice of compaction"] = self._broker.scheduler.call_later(
                0, self._step, replica, work
            )

    def _done(self, replica: Replica, work: Work, error: OSError | None) -> None:
        if error is not None:
            work.close()
            self._broker.store.fail(error)
            return
        self._step(replica, work)


def retention_rules(config: TopicConfig) -> RetentionRules | None:
    """None for a topic that is only compacted."""
    if not config.is_retained_by_age_or_size:
        return None
    return RetentionRules(config.retention_ms, config.retention_bytes, config.retention_segments)


def _has_waited_too_long(replica: Replica, now_ms: int) -> bool:
    log_, limit = replica.log, replica.config.max_compaction_lag_ms
    return any(
        segment.next_offset > log_.cleaned_offset and now_ms - segment.created_ms > limit
        for segment in log_.segments
    )
