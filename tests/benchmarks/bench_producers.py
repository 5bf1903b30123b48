"""What a producer's batch costs: `check` and `append` together, in order, and the rarer paths.

Run: PYTHONPATH=src python tests/benchmarks/bench_producers.py
"""

from __future__ import annotations

import platform
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter

from dragoman.log.producer import DuplicateSequenceError
from dragoman.log.producer_file import load_snapshot, take_snapshot
from dragoman.log.producer_states import ProducerStates

ROUNDS = 200_000
PER_BATCH = 10
SETTLE_EVERY = 32


def in_order(transactional: bool) -> float:
    """Seconds per batch of one producer, the high watermark following in groups."""
    states = ProducerStates()
    sequence = offset = 0
    started = perf_counter()
    for turn in range(ROUNDS):
        states.check(7, 0, sequence, PER_BATCH, transactional)
        states.append(7, 0, sequence, PER_BATCH, offset, 1, 1, transactional)
        sequence += PER_BATCH
        offset += PER_BATCH
        if turn % SETTLE_EVERY == 0:
            states.settle(offset)
    return (perf_counter() - started) / ROUNDS


def loop_alone() -> float:
    """The part of `in_order` that is the loop, to be subtracted by the reader."""
    sequence = offset = 0
    started = perf_counter()
    for turn in range(ROUNDS):
        sequence += PER_BATCH
        offset += PER_BATCH
        if turn % SETTLE_EVERY == 0:
            pass
    return (perf_counter() - started) / ROUNDS


def repeated() -> float:
    states = ProducerStates()
    for index in range(5):
        states.append(7, 0, index, 1, index, 1, 1)
    started = perf_counter()
    for _ in range(ROUNDS):
        states.check(7, 0, 0, 1)
    return (perf_counter() - started) / ROUNDS


def below_window() -> float:
    states = ProducerStates()
    for index in range(10):
        states.append(7, 0, index, 1, index, 1, 1)
    started = perf_counter()
    for _ in range(ROUNDS):
        try:
            states.check(7, 0, 0, 1)
        except DuplicateSequenceError:
            continue
    return (perf_counter() - started) / ROUNDS


def transaction() -> float:
    """Seconds for open, one batch, marker, with 1000 other transactions open."""
    states = ProducerStates()
    offset = 0
    for producer_id in range(1000):
        states.append(producer_id, 0, 0, 1, offset, 1, 1, True)
        offset += 1
    started = perf_counter()
    for turn in range(ROUNDS // 10):
        producer_id = 1000 + turn % 100
        sequence = turn // 100
        states.check(producer_id, 0, sequence, 1, True)
        states.append(producer_id, 0, sequence, 1, offset, 1, 1, True)
        states.complete_transaction(producer_id, 0, offset + 1, True, 1)
        offset += 2
        states.settle(offset)
        states.first_unstable_offset()
    return (perf_counter() - started) / (ROUNDS // 10)


def flood() -> float:
    """Seconds for a batch of a producer never seen before, with the table full."""
    states = ProducerStates()
    for producer_id in range(10_000):
        states.append(producer_id, 0, 0, 1, producer_id, 1, producer_id)
        states.settle(producer_id)
    started = perf_counter()
    for producer_id in range(10_000, 30_000):
        states.check(producer_id, 0, 0, 1)
        states.append(producer_id, 0, 0, 1, producer_id, 1, producer_id)
        states.settle(producer_id)
    return (perf_counter() - started) / 20_000


def full_table() -> ProducerStates:
    states = ProducerStates()
    offset = 0
    for producer_id in range(10_000):
        for sequence in range(5):
            states.append(producer_id, 0, sequence, 1, offset, 1, 1)
            offset += 1
        states.settle(offset)
    return states


def snapshot_times() -> tuple[float, float, int]:
    states = full_table()
    started = perf_counter()
    data = take_snapshot(states, 50_000)
    taken = perf_counter()
    load_snapshot(data, "bench")
    return taken - started, perf_counter() - taken, len(data)


def bytes_each(build: Callable[[], object], count: int) -> float:
    tracemalloc.start()
    kept = [build() for _ in range(count)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(kept)


def one_producer() -> ProducerStates:
    states = ProducerStates()
    for index in range(1000, 1005):
        states.append(10_000, 0, index, 300, index * 300, index << 32, index << 32)
    states.settle(1 << 40)
    return states


def main() -> None:
    print(f"{platform.python_implementation()} {platform.python_version()}, {sys.platform}")
    print(f"loop alone                    {loop_alone() * 1e6:7.2f} us")
    print(f"check + append, in order      {in_order(False) * 1e6:7.2f} us")
    print(f"the same, in a transaction    {in_order(True) * 1e6:7.2f} us")
    print(f"repeat of a cached batch      {repeated() * 1e6:7.2f} us")
    print(f"refusal below the window      {below_window() * 1e6:7.2f} us")
    print(f"whole one-batch transaction   {transaction() * 1e6:7.2f} us")
    print(f"new producer, full table      {flood() * 1e6:7.2f} us")
    take, load, size = snapshot_times()
    print(f"snapshot of 10,000 producers  {take * 1e3:7.1f} ms, load {load * 1e3:.1f} ms, {size} B")
    print(f"memory of an empty partition  {bytes_each(ProducerStates, 10_000):7.0f} B")
    print(f"with one producer, 5 batches  {bytes_each(one_producer, 10_000):7.0f} B")


if __name__ == "__main__":
    main()
