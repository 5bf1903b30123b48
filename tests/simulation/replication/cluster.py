"""A cluster in simulation: nodes, the metadata log and clients, all of them callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from dragoman.cluster.events import Event, PartitionChanged, PartitionPlacement, TopicCreated
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.testing.sim.scheduler import SimScheduler
from simulation.harness.checker import Checker, check_chain, check_writes
from simulation.harness.cluster import ReplicatedCluster, node_count
from simulation.harness.runs import Violation
from simulation.replication.clients import Client, Consumer, Producer
from simulation.replication.metadata import CONTROLLER, MetadataLog
from simulation.replication.network import Network, ProcessScheduler
from simulation.replication.node import Node

_SESSION_S = 1.0
_MOVED_BYTES_PER_S = 15_000


class Cluster(ReplicatedCluster):
    nodes: list[Node]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scheduler = SimScheduler(Random(self.random.getrandbits(64)))
        self.network = Network(self.scheduler, Random(self.random.getrandbits(64)))
        self.moved_bytes_per_s = _MOVED_BYTES_PER_S
        #: Offsets of unacknowledged batches of idempotent producers, by partition and producer id.
        self.in_doubt: dict[tuple[int, int], int] = {}
        controller = self.new_process(CONTROLLER)
        self.metadata = MetadataLog(
            controller, Random(self.random.getrandbits(64)), self._on_event, _SESSION_S
        )
        self.metadata.on_agreed = self._push
        self.checker = Checker(self)
        self.nodes = [Node(self, number + 1) for number in range(node_count(seed))]
        self.victim = self.random.choice(self.nodes)
        self.consumers: list[Consumer] = []
        self.metadata.controller.begin()
        self._push_again()

    def new_process(self, number: int) -> ProcessScheduler:
        process = ProcessScheduler(self.scheduler, lambda: None)
        self.network.processes[number] = process
        return process

    def time(self) -> float:
        return self.scheduler.time()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.scheduler.call_later(seconds, callback)

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def main_partitions(self) -> Iterable[PartitionMetadata]:
        return self.image.partitions.values()

    def key(self, partition: PartitionMetadata) -> int:
        return partition.partition_id

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    def _on_event(self, event: Event) -> None:
        self.note(f"event {event}")
        problem = check_chain(self.image, event)
        if problem is not None:
            raise Violation(problem)
        if isinstance(event, PartitionChanged):
            self.checker.agreed(event)

    def _push(self) -> None:
        for node in self.nodes:
            if node.is_up and node.node_id in self.network.processes:
                node.subscription.push()

    def _push_again(self) -> None:
        """What was lost on the way is sent again."""
        if hasattr(self, "nodes"):
            self._push()
        self.scheduler.call_later(0.3, self._push_again)

    # ---- a run

    def begin(self, config: dict[str, str]) -> None:
        for node in self.nodes:
            node.start()
        self.run_until(lambda: len(self.image.nodes) == len(self.nodes), 10)
        count = len(self.nodes)
        factors = (3, 3, 2) if count == 3 else (3, 3, 5, 2)
        placements = []
        for index, factor in enumerate(factors):
            replicas = tuple((index + at) % count + 1 for at in range(factor))
            placements.append(PartitionPlacement(index + 1, replicas))
        event = TopicCreated(
            name="t", topic_id=b"t" * 16, partitions=tuple(placements), config=config
        )
        self.metadata.agree_now([event])
        self.producers = [Producer(self, each, is_idempotent=each < 3) for each in range(4)]
        self.consumers = [Consumer(self, 10 + each) for each in range(2)]

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        end = self.scheduler.time() + seconds
        while not is_done():
            if self.scheduler.time() >= end:
                return False
            self.scheduler.advance(0.05)
        return True

    def check_clients(self) -> None:
        starts = {
            partition.partition_id: max(
                self.nodes[each - 1].replicas[partition.partition_id].log.log_start_offset
                for each in partition.replicas
            )
            for partition in self.image.partitions.values()
        }
        committed = self.checker.committed
        logs = {each: [batch.data for batch in committed.get(each, {}).values()] for each in starts}
        check_writes(self.checker.expect, self.producers, logs, starts)
