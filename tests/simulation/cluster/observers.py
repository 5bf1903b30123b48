"""Reports to the checker what nodes do inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from dragoman.broker import cluster_node
from dragoman.broker.cluster_node import ClusterNode
from dragoman.broker.partitions import Partitions
from dragoman.cluster.events import Event
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.log.partition import PartitionLog
from dragoman.raft.ports import Role, RoleChanged
from dragoman.replication.ports import Timing
from dragoman.replication.replica import Acknowledge, Replica
from simulation.harness.observers import Observer, observed

if TYPE_CHECKING:
    from simulation.cluster.process import Process


def _process(scheduler: Any) -> Process:
    found: Process = scheduler.process
    return found


def _open_log(open_log: Any, self: Partitions, metadata: PartitionMetadata) -> PartitionLog:
    found: PartitionLog = open_log(self, metadata)
    process = _process(self._store.directory.scheduler)
    if metadata.partition_id not in process.opened:
        process.opened.add(metadata.partition_id)
        process.cluster.checker.reopened(process, found)
    return found


def _applied(applied: Any, self: ClusterNode, event: Event, removed: TopicMetadata | None) -> None:
    process = _process(self._scheduler)
    process.cluster.agreed.applied(process, event, self.quorum.version)
    applied(self, event, removed)
    if removed is not None:
        process.cluster.checker.forget_deleted(process)


def _restored(restored: Any, self: ClusterNode) -> None:
    process = _process(self._scheduler)
    process.cluster.agreed.compare(process, self.quorum.version)
    restored(self)
    process.cluster.checker.forget_deleted(process)


def _role_changed(role_changed: Any, self: ClusterNode, changed: RoleChanged) -> None:
    process = _process(self._scheduler)
    if self.quorum.driver.raft.storage.is_ballot_stable:
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


_OBSERVERS: tuple[Observer, ...] = (
    (Partitions, "open_log", _open_log),
    (ClusterNode, "applied", _applied),
    (ClusterNode, "restored", _restored),
    (ClusterNode, "_role_changed", _role_changed),
    (Replica, "when_committed", _when_committed),
)


@contextmanager
def watched() -> Iterator[None]:
    small_fetches = (cluster_node, "Timing", partial(Timing, fetch_bytes_max=3000))
    with observed(_OBSERVERS, [small_fetches]):
        yield
