"""Bounds of the machine that no broker beats: a synchronous write and a memory copy."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.sampling import Latency, Sample, Stopwatch

_BLOCK_BYTES = 4096
_FILE_BYTES = 64 << 20


class DsyncFile:
    """A zero-filled file written from front to back, over and over, each write synchronous."""

    def __init__(self, path: Path) -> None:
        with path.open("wb") as file:
            for _ in range(_FILE_BYTES >> 20):
                file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        self._descriptor = os.open(path, os.O_WRONLY | os.O_DSYNC)
        self._position = 0

    def write(self, payload_bytes: int, times: int, seconds_max: float) -> Sample:
        """`times` writes of that many bytes, rounded up to whole blocks as a journal must."""
        size = -(-payload_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
        data = os.urandom(size)
        latencies: list[Latency] = []
        watch = Stopwatch()
        deadline = time.perf_counter() + seconds_max
        for _ in range(times):
            started = time.perf_counter()
            if self._position + size > _FILE_BYTES:
                self._position = 0
            os.pwrite(self._descriptor, data, self._position)
            self._position += size
            ended = time.perf_counter()
            latencies.append(Latency(ended - started))
            if ended > deadline:
                break
        done = len(latencies)
        return watch.sample(done, done * payload_bytes, latencies)

    def close(self) -> None:
        os.close(self._descriptor)


def memory_copy(chunk_bytes: int, times: int) -> Sample:
    """`times` copies of a chunk, out of and into areas too large for the caches."""
    span = max(chunk_bytes, 256 << 20) // chunk_bytes * chunk_bytes
    source, target = memoryview(bytearray(span)), memoryview(bytearray(span))
    # Touch every page first: the cost of a first use is not the cost of a copy.
    target[:] = source
    watch = Stopwatch()
    position = 0
    for _ in range(times):
        after = position + chunk_bytes
        target[position:after] = source[position:after]
        position = after if after + chunk_bytes <= span else 0
    return watch.sample(times, times * chunk_bytes)
