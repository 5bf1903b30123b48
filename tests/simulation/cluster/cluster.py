"""A whole cluster in simulation: unchanged nodes and clients, each on an event loop of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dragoman.broker.topics import NewTopic
from dragoman.client.kafka import TopicPartition
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.outcome import start
from dragoman.testing.sim.loop import SimWorld
from simulation.cluster.checker import AgreedMetadata, ClusterChecker
from simulation.cluster.clients import (
    CONFIG,
    MAIN,
    Admin,
    Client,
    Consumer,
    LastReader,
    Producer,
    check_changes,
)
from simulation.cluster.process import Process
from simulation.harness.checker import check_writes
from simulation.harness.cluster import ReplicatedCluster, node_count
from simulation.harness.runs import Violation

_START_SECONDS_MAX = 15.0


class Cluster(ReplicatedCluster):
    checker: ClusterChecker
    nodes: list[Process]
    victim: Process

    def __init__(self, seed: int, nodes: int | None = None) -> None:
        super().__init__(seed)
        count = node_count(seed) if nodes is None else nodes
        self.world = SimWorld(self.random.getrandbits(64))
        self.agreed = AgreedMetadata(self)
        self.checker = ClusterChecker(self)
        speeds = (1.0, 1.0, 0.98, 1.02)
        self.nodes = [
            Process(self, number + 1, count, self.random.choice(speeds)) for number in range(count)
        ]
        self.victim = self.random.choice(self.nodes)
        #: From then on clients use the main topic only, every partition of which has to work.
        self.is_healed = False
        #: Topics that clients use, and their numbers of partitions.
        self.topics: dict[str, int] = {}
        self.producer_ids: set[int] = set()
        #: Called with every process that has ended, however it did.
        self.on_down: Callable[[Process], None] = lambda _process: None
        self.pace_s = self.random.choice((0.05, 0.15, 0.4))
        self.admin_pace_s = self.random.choice((0.15, 0.5, 2.0))
        #: Entries of the metadata after which a node takes a snapshot.
        self.snapshot_records = self.random.choice((20, 60, 10_000))
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._others: list[Client] = []

    def time(self) -> float:
        return self.world.now

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.world.after(seconds, callback)

    @property
    def image(self) -> MetadataImage:
        return self.agreed.image

    def main_partitions(self) -> Iterable[PartitionMetadata]:
        return self.image.topics[MAIN].partitions

    def key(self, partition: PartitionMetadata) -> TopicPartition:
        return TopicPartition(partition.topic.name, partition.index)

    def counts(self) -> dict[str, int]:
        return {**super().counts(), "turns of loops": self.world.turns}

    # ---- a run

    def begin(self, config: dict[str, str]) -> None:
        for node in self.nodes:
            node.try_begin()
        if not self.run_until(
            lambda: all(each.is_ready for each in self.nodes), _START_SECONDS_MAX
        ):
            raise Violation(f"L1: no cluster after {_START_SECONDS_MAX:g} s")
        self._create_main(config)
        acks: tuple[tuple[bool, int], ...] = (
            (True, -1),
            (True, -1),
            (True, 1),
            (False, -1),
            (False, 1),
        )
        self.producers = [
            Producer(self, number, is_idempotent=is_idempotent, acks=each)  # type: ignore[arg-type]
            for number, (is_idempotent, each) in enumerate(acks)
        ]
        self.consumers = [Consumer(self, each) for each in range(2)]
        self.admin = Admin(self)
        self._others = [self.admin]

    def _create_main(self, config: dict[str, str]) -> None:
        node = self.nodes[0].node
        assert node is not None
        loop = self.nodes[0].loop
        assert loop is not None
        count = len(self.nodes)
        factors = (3, 3, 2) if count == 3 else (3, 5, 2)
        assignment = tuple(
            tuple((index + at) % count + 1 for at in range(factor))
            for index, factor in enumerate(factors)
        )
        new = NewTopic(
            name=MAIN,
            assignment=assignment,
            config={**CONFIG, "index.interval.bytes": "400", **config},
        )
        # A node that has just come may not know the others, or who leads, yet.
        outcomes: list[object] = []

        def attempt() -> None:
            start(node.broker.topics.create(new)).then(created)

        def created(error: object) -> None:
            outcomes.append(error)
            if error is not None and MAIN not in self.agreed.image.topics:
                loop.call_later(0.2, attempt)

        loop.call_soon(attempt)
        if not self.run_until(lambda: MAIN in self.agreed.image.topics, 10):
            raise Violation(f"L1: the first topic is not there: {outcomes}")
        self.topics[MAIN] = len(factors)

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        end = self.world.now + seconds
        while not is_done():
            if not self.world.step(end):
                self.world.now = max(self.world.now, end)
                return is_done()
            self._look_after()
        return True

    def _look_after(self) -> None:
        for node in self.nodes:
            node.look_after()
        if self.checker.violation is not None:
            raise self.checker.violation
        for client in self.clients:
            if client.task.done():
                client.task.result()
            for failure in client.loop.failures:
                raise AssertionError(f"{client.name}: {failure}") from failure.get("exception")

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers, *self._others]

    def why_not_whole(self, since: float) -> str:
        return super().why_not_whole(since) or self._why_not_led()

    def _why_not_led(self) -> str:
        for partition in self.image.partitions.values():
            leader = self.nodes[partition.leader - 1].replicas.get(partition.partition_id)
            if len(partition.replicas) > 1 and (leader is None or not leader.is_led):
                where = f"{partition.topic.name}-{partition.index}"
                return f"{where} is not led by node {partition.leader}"
        return ""

    def finish(self) -> None:
        self.is_healed = True
        super().finish()

    def wait_for_clients(self) -> None:
        clients = self.clients
        # Damage that is only found now costs another few seconds.
        if not self.run_until(lambda: all(each.task.done() for each in clients), 20):
            raise Violation(f"L1: {[each.name for each in clients if not each.task.done()]} hang")

    def check_clients(self) -> None:
        check_writes(self.checker.expect, self.producers, self._read_all())
        check_changes(self)

    def _read_all(self) -> dict[TopicPartition, list[bytes]]:
        """The records that a consumer finds in the end. Damage that no reader met before is found
        now, and another node takes over.
        """
        reader = LastReader(self)
        self._others.append(reader)
        if not self.run_until(reader.task.done, 30):
            raise Violation(f"L1: the logs cannot be read: {reader.why}")
        return reader.found
