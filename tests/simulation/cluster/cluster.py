"""A whole cluster in simulation: nodes, clients, and one seeded run with its faults."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from dragoman.broker.topics import NewTopic
from dragoman.client.kafka import TopicPartition
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
    check_writes,
)
from simulation.cluster.process import Process
from simulation.replication.checker import Violation
from simulation.surveys import Failure

FAULT_SECONDS = 20.0
HEALED_SECONDS_MAX = 10.0
_START_SECONDS_MAX = 15.0
_PARTITIONS = 3


class Cluster:
    def __init__(self, seed: int, node_count: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.world = SimWorld(self.random.getrandbits(64))
        self.history: list[str] = []
        self.agreed = AgreedMetadata(self)
        self.checker = ClusterChecker(self)
        speeds = (1.0, 1.0, 0.98, 1.02)
        self.nodes = [
            Process(self, number + 1, node_count, self.random.choice(speeds))
            for number in range(node_count)
        ]
        #: The only node whose disk ever gets flipped bits.
        self.victim = self.random.choice(self.nodes)
        #: From then on clients use the main topic only, every partition of which has to work.
        self.is_healed = False
        #: Topics that clients use, and their numbers of partitions.
        self.topics: dict[str, int] = {}
        self.producer_ids: set[int] = set()
        #: Told of every process that has ended, however it did.
        self.on_down: Callable[[Process], None] = lambda _process: None
        self.pace_s = self.random.choice((0.05, 0.15, 0.4))
        self.admin_pace_s = self.random.choice((0.15, 0.5, 2.0))
        #: Entries of the metadata after which a node takes a snapshot.
        self.snapshot_records = self.random.choice((20, 60, 10_000))
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self._others: list[Client] = []

    # ---- what the checker of replication asks

    @property
    def metadata(self) -> AgreedMetadata:
        return self.agreed

    @property
    def scheduler(self) -> _Time:
        return _Time(self.world)

    def note(self, text: str) -> None:
        self.history.append(f"{self.world.now:8.3f} {text}")

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
        """L1: every partition is led, all replicas are in sync and have all, writes succeed."""
        for node in self.nodes:
            if not node.is_ready:
                return f"node {node.node_id} is not ready"
        for partition in self.agreed.image.partitions.values():
            where = f"{partition.topic.name}-{partition.index}"
            if partition.leader < 0 or partition.target:
                return f"{where} has leader {partition.leader}, target {partition.target}"
            if len(partition.in_sync) != len(partition.replicas):
                return f"{where}: {partition.in_sync} of {partition.replicas} are in sync"
            leader = self.nodes[partition.leader - 1].replicas.get(partition.partition_id)
            if len(partition.replicas) > 1 and (leader is None or not leader.is_led):
                return f"{where} is not led by node {partition.leader}"
        for index in range(self.topics[MAIN]):
            where_ = TopicPartition(MAIN, index)
            last = max(each.acknowledged_at.get(where_, 0) for each in self.producers)
            if last < since:
                return f"{where_} takes no writes"
        for producer in self.producers:
            if max(producer.acknowledged_at.values(), default=0) < since:
                return f"{producer.name} cannot write"
        return ""

    def finish(self) -> None:
        since = self.world.now
        self.is_healed = True
        if not self.run_until(lambda: not self.why_not_whole(since), HEALED_SECONDS_MAX):
            why = self.why_not_whole(since)
            raise Violation(f"L1: not whole {HEALED_SECONDS_MAX:g} s after healing: {why}")
        for client in self.clients:
            client.is_stopped = True
        clients = self.clients
        # Damage that is only found now costs another few seconds.
        if not self.run_until(lambda: all(each.task.done() for each in clients), 20):
            raise Violation(f"L1: {[each.name for each in clients if not each.task.done()]} hang")
        if not self.run_until(self._is_settled, 5):
            raise Violation("L1: followers do not reach the end")
        self.checker.compare_logs()
        check_writes(self, self._read_all())
        check_changes(self)

    def _read_all(self) -> dict[TopicPartition, list[bytes]]:
        """What a consumer finds in the end. Damage that nobody had seen before is found now, and
        another node takes over.
        """
        reader = LastReader(self)
        self._others.append(reader)
        if not self.run_until(reader.task.done, 30):
            raise Violation(f"L1: the logs cannot be read: {reader.why}")
        return reader.found

    def _is_settled(self) -> bool:
        for partition in self.agreed.image.partitions.values():
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


class _Time:
    def __init__(self, world: SimWorld) -> None:
        self._world = world

    def time(self) -> float:
        return self._world.now


class Outcome(msgspec.Struct, frozen=True):
    seed: int
    seconds: float
    acks: int
    elections: int
    truncations: int
    copied_anew: int
    faults: tuple[str, ...]
    trace: tuple[int, ...]


def run(seed: int, node_count: int = 3) -> Outcome:
    """One seeded run, inside `watched`. Raises `Failure`."""
    from simulation.cluster.faults import Faults

    cluster = Cluster(seed, node_count)
    chosen: list[str] = []
    try:
        faults = Faults(cluster)
        chosen = faults.chosen
        cluster.begin(faults.config())
        faults.begin()
        cluster.run_until(lambda: False, FAULT_SECONDS)
        faults.heal()
        cluster.finish()
    except Exception as error:
        last = "\n".join(cluster.history[-400:])
        text = f"seed {seed}, {node_count} nodes: {type(error).__name__}: {error}"
        text = f"{text}\nfaults: {', '.join(chosen)}\n{last}"
        raise Failure(text, cluster.world.now) from error
    checker = cluster.checker
    return Outcome(
        seed=seed,
        seconds=cluster.world.now,
        acks=checker.acks,
        elections=checker.elections,
        truncations=checker.truncations,
        copied_anew=checker.copied_anew,
        faults=tuple(chosen),
        trace=(cluster.world.turns, len(cluster.history), *checker.committed_end.values()),
    )
