"""What the log's tests share: a store on a disk in memory, and batches to put in."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.manifest import Identity
from dragoman.log.partition import Appended, PartitionLog
from dragoman.log.store import Durability, LogStore
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.testing.sim.scheduler import SimClock, SimScheduler


class Config(msgspec.Struct):
    segment_bytes: int = 1000
    segment_ms: int = 60_000
    index_interval_bytes: int = 200


class World:
    """One node's log and everything around it; `restart` opens it again on the same disk."""

    def __init__(self, disk: object = None, durability: Durability = Durability.FSYNC) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self.durability = durability
        self.config = Config()
        self.stable: list[tuple[str, int]] = []
        self.failures: list[OSError] = []
        self.refused: list[str] = []
        self.open()

    def open(self, before_recovered: Callable[[], None] = lambda: None) -> None:
        self.scheduler = SimScheduler()
        self.clock = SimClock(self.scheduler)
        background = ImmediateBackground(self.disk, self.scheduler)
        self.store = LogStore(
            self.disk, background, self.scheduler, self.clock, Random(1), self.durability
        )
        self.store.on_stable = self._on_stable
        self.store.on_failure = self.failures.append
        self.store.on_refused = lambda p: self.refused.append(p.describe())
        self.log = self.partition(0)
        before_recovered()
        self.store.finish_recovery()

    def _on_stable(self, partitions: list[PartitionLog]) -> None:
        for partition in partitions:
            partition.advance_high_watermark(partition.stable_end)
            self.stable.append((partition.describe(), partition.stable_end))

    def partition(self, number: int) -> PartitionLog:
        identity = Identity(partition_id=number + 1, topic="t", partition=number, topic_id="x")
        return self.store.partition(identity, f"t-{number}", self.config)

    def append(self, *values: bytes | None, log: PartitionLog | None = None) -> Appended:
        log = log if log is not None else self.log
        batch = make_batch(*values, timestamp=self.clock.wall_ms())
        return log.append(batch, read_header(batch), max(0, log.epochs.latest))

    def commit(self) -> None:
        self.scheduler.run_ready()

    def fill(self, count: int, size: int = 100) -> None:
        for number in range(count):
            self.append(b"%0*d" % (size, number))
            self.commit()

    def restart(self, *, clean: bool = True) -> None:
        if clean:
            self.store.close()
        else:
            self.store.abandon()
        self.open()

    def values(self, log: PartitionLog | None = None) -> list[bytes | None]:
        log = log if log is not None else self.log
        return [each.value for each in log.iterate(log.log_start_offset, log.high_watermark)]


def make_batch(*values: bytes | None, timestamp: int = 1000, key: bytes | None = b"k") -> bytearray:
    return build_batch([Record(key=key, value=each, timestamp=timestamp) for each in values])
