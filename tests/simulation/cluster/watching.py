"""The checker is told of what nodes do inside, and bounds are so small that they are reached."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

from dragoman.broker import cluster as cluster
from dragoman.broker.cluster import Cluster
from dragoman.broker.partitions import Partitions
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.broker.replication.leader import LedPartition
from dragoman.broker.replication.ports import Timing
from dragoman.broker.replication.replication import Replication
from dragoman.cluster.events import Event
from dragoman.cluster.metadata import METADATA_PARTITION_ID, PartitionMetadata, TopicMetadata
from dragoman.cluster.raft.effects import Role, RoleChanged
from dragoman.errors import DragomanError
from dragoman.log.partition import PartitionLog
from power_cuts.scenario import small_bounds

if TYPE_CHECKING:
    from simulation.cluster.process import Process


def _process(scheduler: Any) -> Process:
    found: Process = scheduler.process
    return found


def _lead(lead: Any, self: Replication, replica: Replica) -> None:
    lead(self, replica)
    found = self._leading.get(replica.metadata.partition_id)
    if found is not None:
        process = _process(self._scheduler)
        found.process = process  # type: ignore[attr-defined]
        process.cluster.checker.leads(process, found)
        process.cluster.checker.watermark(process, found, found.replica.log.high_watermark)


def _advance(advance: Any, self: LedPartition) -> None:
    before = self.replica.log.high_watermark
    advance(self)
    process = getattr(self, "process", None)
    if process is not None:
        process.cluster.checker.watermark(process, self, before)


def _truncate(truncate: Any, self: PartitionLog, offset: int) -> None:
    if self.identity.partition_id == METADATA_PARTITION_ID:
        truncate(self, offset)
        return
    process = _process(self.store.directory.scheduler)
    checker = process.cluster.checker
    end, epochs = self.log_end_offset, list(self.epochs.entries())
    checker.cutting(process, self, offset)
    truncate(self, offset)
    checker.cut(process, self, end, epochs)


def _restart_at(restart_at: Any, self: PartitionLog, offset: int) -> None:
    if self.identity.partition_id == METADATA_PARTITION_ID:
        restart_at(self, offset)
        return
    process = _process(self.store.directory.scheduler)
    checker = process.cluster.checker
    end = self.stable_end
    checker.cutting(process, self, 0)
    restart_at(self, offset)
    checker.restarted(process, self, end)
    # A node that holds the partition no more forgets its replica, and would not be asked again.
    checker.emptied(process, self.identity.partition_id)


def _open_log(open_log: Any, self: Partitions, metadata: PartitionMetadata) -> PartitionLog:
    found: PartitionLog = open_log(self, metadata)
    process = _process(self._store.directory.scheduler)
    if metadata.partition_id not in process.opened:
        process.opened.add(metadata.partition_id)
        process.cluster.checker.reopened(process, found)
    return found


def _applied(applied: Any, self: Cluster, event: Event, removed: TopicMetadata | None) -> None:
    process = _process(self._scheduler)
    process.cluster.agreed.applied(process, event, self.quorum.version)
    applied(self, event, removed)
    if removed is not None:
        process.cluster.checker.forget_deleted(process)


def _restored(restored: Any, self: Cluster) -> None:
    process = _process(self._scheduler)
    process.cluster.agreed.compare(process, self.quorum.version)
    restored(self)
    process.cluster.checker.forget_deleted(process)


def _role_changed(role_changed: Any, self: Cluster, changed: RoleChanged) -> None:
    process = _process(self._scheduler)
    if self.quorum.node.raft.storage.is_ballot_stable:
        process.cluster.checker.term(process, changed.term, changed.role is Role.LEADER)
    role_changed(self, changed)


def _when_committed(
    when_committed: Any, self: Replica, next_offset: int, acknowledge: Acknowledge
) -> None:
    def acknowledged(error: DragomanError | None) -> None:
        if error is None and self.role is not None:
            store = self.log.store
            process = _process(store.directory.scheduler)
            process.cluster.checker.expect(
                not store.has_failed(), f"S13: node {process.node_id} acknowledges after EIO"
            )
        acknowledge(error)

    when_committed(self, next_offset, acknowledged)


_WATCHED = (
    (Replication, "_lead", _lead),
    (LedPartition, "advance", _advance),
    (PartitionLog, "truncate", _truncate),
    (PartitionLog, "restart_at", _restart_at),
    (Partitions, "open_log", _open_log),
    (Cluster, "applied", _applied),
    (Cluster, "restored", _restored),
    (Cluster, "_role_changed", _role_changed),
    (Replica, "when_committed", _when_committed),
)


@contextmanager
def watched() -> Iterator[None]:
    logger = logging.getLogger("dragoman")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with ExitStack() as stack:
            stack.enter_context(small_bounds())
            patches: list[tuple[Any, str, Any]] = [
                (owner, name, _around(getattr(owner, name), new)) for owner, name, new in _WATCHED
            ]
            patches.append((cluster, "Timing", partial(Timing, fetch_bytes_max=3000)))
            for owner, name, new in patches:
                stack.enter_context(mock.patch.object(owner, name, new))
            yield
    finally:
        logger.setLevel(level)


def _around(original: Any, new: Any) -> Any:
    def method(self: Any, *args: Any) -> Any:
        return new(original, self, *args)

    return method
