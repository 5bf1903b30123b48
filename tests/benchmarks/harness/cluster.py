"""Three nodes under test, each a process of its own, and clients that write to all leaders."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from harness.broker import BenchmarkError, BrokerProcess
from harness.context import Context
from harness.peers import free_port
from harness.sampling import Latency
from harness.wire import Address, Pipeline, leaders, produce_frame, produce_reply_bytes

_NODES = 3
_IN_SYNC_SECONDS_MAX = 30.0


class ClusterProcesses:
    def __init__(self, nodes: Sequence[BrokerProcess]) -> None:
        self.nodes = nodes

    @property
    def address(self) -> Address:
        return self.nodes[0].address

    def cpu_seconds(self) -> float:
        return sum(each.cpu_seconds() for each in self.nodes)

    def memory_metrics(self) -> dict[str, float]:
        """Of the largest node."""
        return {
            "resident_mb": max(each.resident_kb() for each in self.nodes) / 1024,
            "resident_peak_mb": max(each.resident_peak_kb() for each in self.nodes) / 1024,
        }


@contextmanager
def running_cluster(context: Context, durability: str = "fsync") -> Iterator[ClusterProcesses]:
    """Three nodes with empty directories, which go with them."""
    named = [f"{number}@127.0.0.1:{free_port()}" for number in range(1, _NODES + 1)]
    nodes = [
        BrokerProcess(
            context.directory(f"node-{number}"),
            durability=durability,
            cluster=named,
            node_id=number,
        )
        for number in range(1, _NODES + 1)
    ]
    try:
        for each in nodes:
            each.begin()
        for each in nodes:
            each.wait_ready()
        yield ClusterProcesses(nodes)
        for each in nodes:
            context.stop(each)
    finally:
        for each in nodes:
            each.kill()
            shutil.rmtree(each.directory, ignore_errors=True)


class LeaderPipelines:
    """Keeps requests in flight at every leader of a topic, as a producer of all partitions does."""

    def __init__(self, address: Address, topic: str, batch: bytes, in_flight: int) -> None:
        self._pipelines: list[Pipeline] = []
        found = _leaders_when_in_sync(address, topic)
        partitions = sum(len(each) for each in found.values())
        for number, (port, led) in enumerate(sorted(found.items())):
            frames = [produce_frame(topic, [index], batch) for index in led]
            pipeline = Pipeline(("127.0.0.1", port), frames, produce_reply_bytes(topic))
            share = in_flight * (number + 1) // len(found) - in_flight * number // len(found)
            pipeline.open(1, share)
            self._pipelines.append(pipeline)
        self._shares = [len(found[port]) / partitions for port in sorted(found)]

    def run(self, requests: int, seconds_max: float) -> tuple[int, list[Latency]]:
        """Each leader gets its share of the requests."""
        # Threads: a client mostly waits, and needs about a microsecond of each request.
        with ThreadPoolExecutor(len(self._pipelines)) as threads:
            running = [
                threads.submit(each.run, round(requests * share), seconds_max)
                for each, share in zip(self._pipelines, self._shares, strict=True)
            ]
            results = [each.result() for each in running]
        return sum(done for done, _ in results), [each for _, found in results for each in found]

    def take_replies(self) -> bytes:
        return b"".join(each.take_replies() for each in self._pipelines)

    def close(self) -> None:
        for each in self._pipelines:
            each.close()


def _leaders_when_in_sync(address: Address, topic: str) -> dict[int, list[int]]:
    deadline = time.monotonic() + _IN_SYNC_SECONDS_MAX
    while time.monotonic() < deadline:
        found = leaders(address, topic)
        # The leaders have to know it, too.
        if found and all(leaders(("127.0.0.1", port), topic) == found for port in found):
            return found
        time.sleep(0.02)
    raise BenchmarkError(f"{topic}: not all copies are in sync")
