"""Clusters of replicated partitions: one run with its faults, and what has to be true in the end.

A run lets faults happen while clients work, heals everything, and then expects the cluster to be
whole within ten seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from simulation.harness.checker import Checker
from simulation.harness.runs import Outcome, Violation, reported

if TYPE_CHECKING:
    from simulation.harness.faults import Faults

_FAULT_SECONDS = 20.0
_HEALED_SECONDS_MAX = 10.0
#: Of so many runs, one has five nodes.
_FIVE_NODES_EVERY = 5


def node_count(seed: int) -> int:
    return 5 if seed % _FIVE_NODES_EVERY == 0 else 3


class ReplicatedCluster:
    checker: Checker
    nodes: Sequence[Any]
    #: The only node whose disk is ever damaged.
    victim: Any
    producers: Sequence[Any] = ()

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.history: list[str] = []

    # ---- what kinds of clusters differ in

    def time(self) -> float:
        raise NotImplementedError

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        raise NotImplementedError

    @property
    def image(self) -> MetadataImage:
        """As agreed on."""
        raise NotImplementedError

    def main_partitions(self) -> Iterable[PartitionMetadata]:
        """Those that are written to until the end."""
        raise NotImplementedError

    def key(self, partition: PartitionMetadata) -> object:
        """Under which producers note the partition."""
        raise NotImplementedError

    @property
    def clients(self) -> Iterable[Any]:
        raise NotImplementedError

    def begin(self, config: dict[str, str]) -> None:
        raise NotImplementedError

    def wait_for_clients(self) -> None:
        """Until they have stopped."""

    def check_clients(self) -> None:
        """Every answer to a client is true."""
        raise NotImplementedError

    # ---- a run

    def note(self, text: str) -> None:
        self.history.append(f"{self.time():8.3f} {text}")

    def play(self, faults: Faults) -> Outcome:
        """Raises `Failure`."""
        title = f"seed {self.seed}, {len(self.nodes)} nodes"
        with reported(self, title, lambda: ", ".join(faults.chosen)):
            self.begin(faults.config())
            faults.begin()
            self.run_until(lambda: False, _FAULT_SECONDS)
            faults.heal()
            self.finish()
        return Outcome(self.time(), self.counts(), tuple(faults.chosen), tuple(self.history))

    def counts(self) -> dict[str, int]:
        checker = self.checker
        return {
            "batches acknowledged": checker.acks,
            "elections": checker.elections,
            "truncations": checker.truncations,
            "copied anew": checker.copied_anew,
            "records committed": sum(checker.committed_end.values()),
        }

    def finish(self) -> None:
        since = self.time()
        if not self.run_until(lambda: not self.why_not_whole(since), _HEALED_SECONDS_MAX):
            why = self.why_not_whole(since)
            raise Violation(f"L1: not whole {_HEALED_SECONDS_MAX:g} s after healing: {why}")
        for client in self.clients:
            client.is_stopped = True
        self.wait_for_clients()
        if not self.run_until(self._is_settled, 5):
            raise Violation("L1: followers do not reach the end")
        self.checker.compare_logs()
        self.check_clients()

    def why_not_whole(self, since: float) -> str:
        """L1: every partition is led, all replicas are in sync and have all, writes succeed."""
        for node in self.nodes:
            if not node.is_ready:
                return f"node {node.node_id} is not ready"
        for partition in self.image.partitions.values():
            where = f"{partition.topic.name}-{partition.index}"
            if partition.leader < 0 or partition.target:
                return f"{where} has leader {partition.leader}, target {partition.target}"
            if len(partition.in_sync) != len(partition.replicas):
                return f"{where}: {partition.in_sync} of {partition.replicas} are in sync"
        for partition in self.main_partitions():
            key = self.key(partition)
            if max(each.acknowledged_at.get(key, 0) for each in self.producers) < since:
                return f"{partition.topic.name}-{partition.index} takes no writes"
        for producer in self.producers:
            if max(producer.acknowledged_at.values(), default=0) < since:
                return f"{producer.name} cannot write"
        return ""

    def _is_settled(self) -> bool:
        if not all(each.is_up for each in self.nodes):
            return False
        for partition in self.image.partitions.values():
            ends = set()
            for node_id in partition.replicas:
                replica = self.nodes[node_id - 1].replicas.get(partition.partition_id)
                if replica is None:
                    ends.add(0)
                else:
                    log = replica.log
                    ends |= {log.log_end_offset, log.stable_end, log.high_watermark}
            if len(ends) > 1:
                return False
        return True
