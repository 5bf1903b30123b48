"""A voter's storage as a node has it: the metadata partition, the journal and a simulated disk.

Slower than storage in memory by far, and the only one that shows a missing sync of a file, a torn
write, or a name that was not made durable.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from dragoman.cluster.raft_quorum.storage import PartitionStorage
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import LogStore
from dragoman.testing.sim.background import SimBackground, SyncDelays
from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.scheduler import SimClock
from dragoman.world import Scheduler
from simulation.raft.checker import expect


class SmallConfig(msgspec.Struct, frozen=True):
    segment_bytes: int = 3000
    segment_ms: int = 3_600_000
    index_interval_bytes: int = 500


class CheckedStorage(PartitionStorage):
    def __init__(self, store: LogStore, log: PartitionLog, scheduler: Scheduler) -> None:
        super().__init__(store, log, scheduler)
        expect(not store.journal_damage, f"undamaged journal: {store.journal_damage}")
        expect(not log.problems, f"undamaged log: {log.problems}")


class DiskMachine:
    """A node's disk through all its lives."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._disk = SimDisk(Random(random.getrandbits(32)))
        self._seconds_max = 0.004
        self._background: SimBackground
        self._store: LogStore

    def open(
        self, scheduler: Scheduler, on_stable: Callable[[], None], on_failure: Callable[[], None]
    ) -> PartitionStorage:
        random = self._random
        background = SimBackground(
            self._disk,
            scheduler,
            Random(random.getrandbits(32)),
            SyncDelays(usual_seconds_max=self._seconds_max),
        )
        store = LogStore(
            self._disk,
            background,
            scheduler,
            SimClock(scheduler),
            Random(random.getrandbits(32)),
        )
        identity = Identity(partition_id=0, topic="metadata", partition=0, topic_id="")
        log = store.partition(identity, "0-metadata-0", SmallConfig())
        store.finish_recovery()
        storage = CheckedStorage(store, log, scheduler)

        def stable(_partitions: list[PartitionLog]) -> None:
            storage.stable()
            on_stable()

        store.on_stable = stable
        store.on_failure = lambda _: on_failure()
        # Half of the lives sync beside the loop, as on a slow disk.
        store.commits.sync_average_s = random.choice((0.0, 1.0))
        self._store, self._background = store, background
        return storage

    def crash(self) -> None:
        # Now and then only the process dies.
        is_kill = self._random.random() < 0.2
        self._disk = self._disk.kill() if is_kill else self._disk.crash()
        # A failing disk is replaced before the node starts again.
        self._disk.faults = msgspec.structs.replace(self._disk.faults, sync_error_at=None)

    def slow_down(self, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        self._background._delays = SyncDelays(usual_seconds_max=seconds_max)

    def break_sync(self) -> None:
        disk = self._disk
        at = disk.counters.syncs + 1
        disk.faults = msgspec.structs.replace(disk.faults, sync_error_at=at)
