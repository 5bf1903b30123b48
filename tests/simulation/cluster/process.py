"""One node of a simulated cluster as an operating system sees it: started, ended, started again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings
from dragoman.errors import DragomanError
from dragoman.raft.ports import Settings as RaftSettings
from dragoman.replication.replica import Replica
from dragoman.replication.replication import Replication
from dragoman.testing.sim.background import SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import PowerCut
from dragoman.testing.sim.node import SimNode

if TYPE_CHECKING:
    from simulation.cluster.cluster import Cluster

_DELAYS = SyncDelays(usual_seconds_max=0.02, slow_seconds_max=0.8, slow_rate=0.02)
_TRACE_MAX = 20


def _settings(node_id: int, count: int) -> Settings:
    host = f"n{node_id}"
    listeners = tuple(
        Listener(name=name, bind=Address(host, port))
        for name, port in (("kafka", 9092), ("peer", 9190))
    )
    return Settings(
        node_id=node_id,
        listeners=listeners,
        cluster=tuple(f"{each}@n{each}:9190" for each in range(1, count + 1)),
        replica_lag_time_max_ms=1500,
        leader_imbalance_check_interval_seconds=7,
    )


class Process(SimNode):
    """Down until `begin`. The checker asks it what its node knows and holds."""

    def __init__(self, cluster: Cluster, node_id: int, count: int, speed: float) -> None:
        super().__init__(
            cluster.world,
            f"n{node_id}",
            _settings(node_id, count),
            sync_delays=_DELAYS,
            speed=speed,
        )
        self.disk = SimDisk(self.random, trace_operations_max=_TRACE_MAX)
        self.cluster = cluster
        self.node_id = node_id
        #: Its disk takes its time, so that groups are synced beside the loop.
        self.is_slow = False
        #: Logs that were looked at since the start.
        self.opened: set[int] = set()
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.lives = 0

    # ---- what the checker asks

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.broker.is_ready and self._stopping is None

    @property
    def replicas(self) -> dict[int, Replica]:
        return self.node.broker.partitions._replicas if self.node is not None else {}

    @property
    def replication(self) -> Replication:
        assert self.node is not None
        return self.node.broker.cluster.replication

    # ---- life and death

    def begin(self) -> asyncio.Task[None]:
        self.lives += 1
        self.opened.clear()
        self._stopping = None
        try:
            self._starting = super().begin()
        finally:
            assert self.loop is not None
            self.loop.process = self  # type: ignore[attr-defined]
        assert self.node is not None
        raft = self.node.broker.quorum.driver.raft
        raft.settings = RaftSettings(snapshot_records=self.cluster.snapshot_records)
        if self.is_slow:
            self.node.store.commits.sync_average_s = 1.0
        return self._starting

    def try_begin(self) -> None:
        """Start the process; it may end at once."""
        try:
            self.begin()
        except PowerCut:
            self.cut_power()
        except OSError as error:
            self.cluster.note(f"node {self.node_id} does not start: {error}")
            self.kill()

    def begin_stop(self) -> None:
        """SIGTERM."""
        assert self.node is not None
        assert self.loop is not None
        if self._stopping is None:
            starting = self._starting
            assert starting is not None
            if starting.done():
                self._stopping = self.world.start(self.node.stop(), self.loop)
            else:
                self.loop.call_soon(starting.cancel)
                self._stopping = starting

    def look_after(self) -> None:
        """End the process when it has ended itself; raises what no process may end with."""
        loop, node = self.loop, self.node
        if loop is None or node is None:
            return
        for failure in loop.failures:
            error = failure.get("exception")
            if isinstance(error, PowerCut):
                self.cut_power()
                return
            raise error if error is not None else AssertionError(str(failure))
        starting, stopping = self._starting, self._stopping
        if starting is not None and starting.done() and not starting.cancelled():
            error = starting.exception()
            if isinstance(error, PowerCut):
                self.cut_power()
                return
            if isinstance(error, OSError | DragomanError) and node.store.has_failed():
                self.kill()
                return
            if error is not None:
                raise error
        if stopping is not None and stopping.done():
            if not stopping.cancelled() and isinstance(stopping.exception(), PowerCut):
                self.cut_power()
                return
            if not stopping.cancelled():
                stopping.result()
            self.cluster.note(f"node {self.node_id} has stopped")
            self.kill()
        elif node.failed.is_set() and stopping is None:
            self.cluster.note(f"node {self.node_id} has failed: {node.failure}")
            self.begin_stop()

    def _gone(self) -> None:
        if self.node is not None:
            self.cluster.checker.died(self)
        super()._gone()
        self.cluster.on_down(self)
