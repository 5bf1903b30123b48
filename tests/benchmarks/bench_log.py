"""What the log costs: `python tests/benchmarks/bench_log.py`.

Prints microseconds per operation, and the ratios that must stay near 1: appending and reading must
not cost more with many segments or many partitions. Only the commit is measured on a real disk;
the rest is on one in memory, so that the figures are the log's own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from random import Random

import msgspec

from dragoman.log.batch import Record, build_batch, read_header
from dragoman.log.manifest import Identity
from dragoman.log.partition import PartitionLog
from dragoman.log.store import Durability, LogStore
from dragoman.operating_system import RealDisk, SystemClock
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.testing.sim.scheduler import SimScheduler
from dragoman.world import Disk


class Config(msgspec.Struct, frozen=True):
    segment_bytes: int = 1 << 30
    segment_ms: int = 1 << 40
    index_interval_bytes: int = 4096


class Bench:
    def __init__(self, disk: Disk, config: Config, partitions: int, mode: Durability) -> None:
        self.scheduler = SimScheduler()
        background = ImmediateBackground(disk, self.scheduler)
        self.store = LogStore(disk, background, self.scheduler, SystemClock(), Random(1), mode)
        self.logs = [self._partition(number, config) for number in range(partitions)]
        self.store.on_stable = self._on_stable
        self.store.finish_recovery()
        self.batch = build_batch([Record(key=b"key", value=bytes(100), timestamp=1)])
        self.header = read_header(self.batch)

    def _partition(self, number: int, config: Config) -> PartitionLog:
        identity = Identity(partition_id=number + 1, topic="t", partition=number, topic_id="x")
        return self.store.partition(identity, f"t-{number}", config)

    def _on_stable(self, partitions: list[PartitionLog]) -> None:
        for partition in partitions:
            partition.advance_high_watermark(partition.stable_end)

    def append(self, log: PartitionLog) -> None:
        log.append(bytearray(self.batch), self.header, 0)

    def commit(self) -> None:
        self.scheduler.run_ready()


def best(action: Callable[[], None], rounds: int, count: int) -> float:
    """Microseconds per operation: the best round counts."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times) / count * 1e6


def append_alone() -> float:
    """One small batch, without the commit."""
    bench = Bench(MemoryDisk(), Config(), 1, Durability.FSYNC)
    results = []
    for _ in range(20):
        buffers = [bytearray(bench.batch) for _ in range(2000)]
        append, header = bench.logs[0].append, bench.header
        started = time.perf_counter()
        for buffer in buffers:
            append(buffer, header, 0)
        results.append((time.perf_counter() - started) / 2000 * 1e6)
        bench.commit()
    return min(results)


def commit_alone() -> float:
    """One group of ten small batches on a real disk."""
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(RealDisk(root), Config(), 1, Durability.FSYNC)

        def commits() -> None:
            for _ in range(100):
                for _ in range(10):
                    bench.append(bench.logs[0])
                bench.commit()

        result = best(commits, 5, 100)
        bench.store.abandon()
        return result


def with_segments(count: int) -> tuple[float, float]:
    """(append and commit, read) in a log of that many segments."""
    bench = Bench(MemoryDisk(), Config(segment_bytes=8000), 1, Durability.OS)
    log = bench.logs[0]
    while len(log.segments) < count:
        for _ in range(40):
            bench.append(log)
        bench.commit()
    bench.store.checkpoint_now()

    def appends() -> None:
        for _ in range(20):
            for _ in range(10):
                bench.append(log)
            bench.commit()

    # The same few places each time, so that descriptors and indexes are open in both cases.
    places = [log.log_end_offset * n // 9 for n in range(8)]

    def reads() -> None:
        for _ in range(25):
            for offset in places:
                log.read(offset, 1000, log.high_watermark)

    log.clear_tail()
    reads()
    return best(appends, 5, 200), best(reads, 5, 200)


def with_partitions(count: int) -> float:
    """Append and commit to ten partitions of that many."""
    bench = Bench(MemoryDisk(), Config(), count, Durability.FSYNC)
    for start in range(0, count, 500):
        for log in bench.logs[start : start + 500]:
            bench.append(log)
        bench.commit()
    bench.store.checkpoint_now()
    busy = bench.logs[:: max(1, count // 10)][:10]

    def appends() -> None:
        for _ in range(20):
            for log in busy:
                bench.append(log)
            bench.commit()

    appends()
    return best(appends, 7, 200)


def main() -> None:
    lines = [
        f"append of a small batch, commit not counted: {append_alone():.1f} us",
        f"group of ten on a real disk, appends and sync: {commit_alone():.0f} us",
    ]
    few, many = with_segments(10), with_segments(1000)
    for name, at in (("append and commit", 0), ("read", 1)):
        ratio = many[at] / few[at]
        lines.append(
            f"{name}, 10 -> 1000 segments: {few[at]:.1f} -> {many[at]:.1f} us, {ratio:.2f}"
        )
    a, b = with_partitions(10), with_partitions(10_000)
    lines.append(f"append and commit, 10 -> 10000 partitions: {a:.1f} -> {b:.1f} us, {b / a:.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
