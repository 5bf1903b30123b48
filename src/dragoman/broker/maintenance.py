"""Periodic maintenance: roll, retain, compact, and drop idle producers.

Two rounds, each on its own interval and spread over loop turns. The retention round examines every
partition with data, a few to a turn. The compaction round works on one partition at a time, the
dirtiest first, a slice to a turn; disk work runs beside the loop.

A limit on the number of segments does not wait for the round: a partition is trimmed when it begins
a new segment, once the closed one is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial

from dragoman.broker.context import NodeContext
from dragoman.broker.partitions import Partitions
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.config.overrides import TopicConfig
from dragoman.errors import DragomanError
from dragoman.limits import COMPACTION_PAUSE_S, MAINTENANCE_PARTITIONS_PER_SLICE
from dragoman.log.cleaner import (
    CompactionPolicy,
    CompactionResult,
    RetentionPolicy,
    compact,
    dirty_ratio,
    has_dirty_segments,
    retain,
    roll_due,
)
from dragoman.log.directory import PARTITIONS
from dragoman.log.partition import PartitionLog
from dragoman.log.pins import sweep_pins
from dragoman.log.store import LogStore
from dragoman.replication.replica import Replica
from dragoman.world import Handle

log = logging.getLogger("dragoman.maintenance")

#: Pause before a partition whose compaction failed is tried again, so that others are compacted.
_BROKEN_OFF_MS = 60_000


class Maintenance:
    def __init__(
        self,
        context: NodeContext,
        store: LogStore,
        partitions: Partitions,
        needs_producers: Callable[[int], bool],
    ) -> None:
        """`needs_producers`: whether writes to a partition depend on what it remembers of idle
        producers.
        """
        self._context = context
        self._store = store
        self._partitions = partitions
        self._needs_producers = needs_producers
        self._timers: dict[str, Handle] = {}
        self._is_stopped = False
        #: Times at which compacted partitions may be compacted again even without new writes.
        self._again_at: dict[int, int] = {}
        #: Times until which partitions are skipped because their compaction failed.
        self._left_until: dict[int, int] = {}
        #: Partitions with a new segment, to be trimmed once the one before it is committed.
        self._rolled: set[Replica] = set()

    def start(self) -> None:
        self._arm_retention()
        self._arm_compaction()

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def reconfigured(self) -> None:
        """An interval may have changed: restart the timers."""
        rounds = {"retention": self._arm_retention, "compaction": self._arm_compaction}
        for name, arm in rounds.items():
            timer = self._timers.get(name)
            if timer is not None:
                timer.cancel()
                arm()

    # ---- retention

    def _arm_retention(self) -> None:
        delay_s = self._context.settings.log_retention_check_interval_ms / 1000
        self._timers["retention"] = self._context.scheduler.call_later(
            delay_s, self._begin_retention
        )

    def retain_now(self) -> None:
        """Start the round early, unless one is in progress."""
        timer = self._timers.get("retention")
        if timer is not None:
            timer.cancel()
            self._begin_retention()

    def _begin_retention(self) -> None:
        del self._timers["retention"]
        self._sweep_pins()
        self._retain_some(self._partitions_with_data())

    def _sweep_pins(self) -> None:
        """Release segments that scans from outside have leased and no longer need."""
        try:
            sweep_pins(self._store.disk, self._context.clock.wall_ms())
        except OSError as error:
            log.warning("expired leases of scans cannot be removed yet: %s", error)

    def _partitions_with_data(self) -> Iterator[PartitionMetadata]:
        """Partitions in use, and those with a directory that were not used yet."""
        in_use = {replica.metadata.partition_id for replica in self._partitions}
        for replica in self._partitions:
            yield replica.metadata
        for name in self._store.disk.names(PARTITIONS):
            number = name.partition("-")[0]
            metadata = (
                self._context.image.partitions.get(int(number)) if number.isdecimal() else None
            )
            if metadata is None or metadata.partition_id in in_use:
                continue
            if self._context.node_id in metadata.replicas:
                yield metadata

    def _retain_some(self, partitions: Iterator[PartitionMetadata]) -> None:
        for _ in range(MAINTENANCE_PARTITIONS_PER_SLICE):
            if self._is_stopped:
                return
            try:
                metadata = next(partitions, None)
            except OSError as error:
                log.error("retention is postponed: %s", error)
                metadata = None
            if metadata is None:
                self._arm_retention()
                return
            if metadata.partition_id not in self._context.image.partitions:
                continue
            try:
                self.retain(self._partitions.held(metadata))
            except (DragomanError, OSError) as error:
                where = f"{metadata.topic.name}-{metadata.index}"
                log.error("retention of %s: %s", where, error)
        self._timers["slice"] = self._context.scheduler.call_later(0, self._retain_some, partitions)

    def rolled(self, replica: Replica) -> None:
        """The partition begins a new segment and may have one too many."""
        if _segments_max(replica) < 0 or not replica.is_led or replica in self._rolled:
            return

        self._rolled.add(replica)
        replica.when_committed(replica.log.log_end_offset, partial(self._committed, replica))

    def _committed(self, replica: Replica, error: DragomanError | None) -> None:
        if error is None:
            self._context.scheduler.call_soon(self._trim, replica)
        else:
            self._rolled.discard(replica)

    def _trim(self, replica: Replica) -> None:
        self._rolled.discard(replica)
        if self._is_stopped or not replica.is_led or replica.log.is_removed:
            return
        policy = RetentionPolicy(retention_segments=_segments_max(replica))
        try:
            self._drop(replica.log, policy)
        except (DragomanError, OSError) as error:
            log.error("retention of %s: %s", replica.log.describe(), error)

    def _drop(self, partition: PartitionLog, policy: RetentionPolicy) -> None:
        dropped = retain(partition, policy, self._context.clock.wall_ms())
        if dropped:
            log.info(
                "%s: dropped %d segments, log starts at %d",
                partition.describe(),
                dropped,
                partition.log_start_offset,
            )

    def retain(self, replica: Replica) -> None:
        """Retention of one partition."""
        config, partition = replica.config, replica.log
        now_ms = self._context.clock.wall_ms()
        roll_due(partition, now_ms)
        # Followers drop what their leader has dropped.
        if config.is_retained_by_age_or_size and replica.is_led:
            segments_max = _segments_max(replica)
            if segments_max < 0:
                _roll_expired(partition, config, now_ms)
            policy = RetentionPolicy(
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                retention_segments=segments_max,
            )
            self._drop(partition, policy)
        partition_id = replica.metadata.partition_id
        if partition.producers is not None and not self._needs_producers(partition_id):
            idle_max_ms = self._context.settings.producer_id_expiration_ms
            partition.producers.expire(now_ms, idle_max_ms)

    # ---- compaction

    def _arm_compaction(self) -> None:
        delay_s = self._context.settings.log_cleaner_backoff_ms / 1000
        self._timers["compaction"] = self._context.scheduler.call_later(
            delay_s, self._begin_compaction
        )

    def _begin_compaction(self) -> None:
        del self._timers["compaction"]
        replica = self._dirtiest()
        if replica is None:
            self._arm_compaction()
            return
        self._again_at.pop(replica.metadata.partition_id, None)
        policy = _policy_of(replica.config)
        self._step(replica, compact(replica.log, policy, self._context.clock.wall_ms()))

    def _dirtiest(self) -> Replica | None:
        """The next compacted partition that is dirty or old enough."""
        best: tuple[float, Replica] | None = None
        now_ms = self._context.clock.wall_ms()
        for replica in self._partitions:
            partition_id, config = replica.metadata.partition_id, replica.config
            if not config.is_compacted or now_ms < self._left_until.get(partition_id, 0):
                continue
            ratio = dirty_ratio(replica.log)
            again_at = self._again_at.get(partition_id)
            is_dirty = (
                ratio > 0 and ratio >= config.min_cleanable_dirty_ratio
            ) or _has_waited_too_long(replica, now_ms)
            # Partitions that are too young, damaged or in no manifest yet must not delay the
            # others.
            is_due = (again_at is not None and again_at < now_ms) or (
                is_dirty and has_dirty_segments(replica.log, _policy_of(config), now_ms)
            )
            if is_due and (best is None or ratio > best[0]):
                best = (ratio, replica)
        return best[1] if best is not None else None

    def _step(self, replica: Replica, work: Generator[None, None, CompactionResult]) -> None:
        """Compact one slice; the next follows after other work."""
        if self._is_stopped:
            work.close()
            return
        try:
            next(work)
        except StopIteration as finished:
            self._finished(replica, finished.value)
            self._arm_compaction()
            return
        except OSError as error:
            log.error("compaction of %s: %s", replica.log.describe(), error)
            self._leave_alone(replica)
            self._arm_compaction()
            return
        self._timers["slice of compaction"] = self._context.scheduler.call_later(
            COMPACTION_PAUSE_S, self._step, replica, work
        )

    def _finished(self, replica: Replica, result: CompactionResult) -> None:
        """Note when delayed removals (tombstones, markers) are due, even without new writes."""
        if result.bytes_after != result.bytes_before:
            due_ms = self._context.clock.wall_ms() + replica.config.delete_retention_ms
            self._again_at[replica.metadata.partition_id] = due_ms
        if not result.is_complete:
            self._leave_alone(replica)

    def _leave_alone(self, replica: Replica) -> None:
        until_ms = self._context.clock.wall_ms() + _BROKEN_OFF_MS
        self._left_until[replica.metadata.partition_id] = until_ms


def _policy_of(config: TopicConfig) -> CompactionPolicy:
    return CompactionPolicy(
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )


def _segments_max(replica: Replica) -> int:
    """The maximum number of segments; -1: no limit. Internal topics ignore the node's default,
    because their writers decide what is retained.
    """
    if replica.metadata.topic.is_internal or not replica.config.is_retained_by_age_or_size:
        return -1
    return replica.config.retention_segments


def _roll_expired(partition: PartitionLog, config: TopicConfig, now_ms: int) -> None:
    """Close the active segment when all of it is expired, because retention only drops closed ones.

    As in Kafka; topics with a limit on segments keep it, as minibroker does.
    """
    active = partition.active
    if active is None or not active.size or config.retention_ms < 0:
        return
    if now_ms - active.newest_ms(now_ms) > config.retention_ms:
        partition.roll(partition.log_end_offset)


def _has_waited_too_long(replica: Replica, now_ms: int) -> bool:
    log_, limit = replica.log, replica.config.max_compaction_lag_ms
    return any(
        segment.next_offset > log_.cleaned_offset and now_ms - segment.created_ms > limit
        for segment in log_.segments
    )
