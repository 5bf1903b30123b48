"""What goes wrong with whole nodes: power, disks, clocks, connections, operators."""

from __future__ import annotations

from functools import partial

from dragoman.cluster.metadata import PartitionMetadata
from dragoman.outcome import start
from dragoman.testing.sim.network import NetworkFaults
from simulation.cluster.cluster import Cluster
from simulation.cluster.process import Process
from simulation.harness import faults


class Faults(faults.Faults):
    _cluster: Cluster

    def __init__(self, cluster: Cluster) -> None:
        self._world = cluster.world
        kinds = {
            "power in operation": self._power_in_operation,
            "kill leader": self._kill_leader,
            "pause": self._pause,
            "pause in flush": self._pause_in_flush,
            "cut": self._cut,
            "isolate": self._isolate,
            "reset": self._reset,
            "stop": self._stop,
            "full disk": self._full_disk,
            "slow disk": self._slow_disk,
            "clock": self._clock,
            "move": self._move,
            "round trip": self._round_trip,
            "elect": self._elect,
        }
        super().__init__(cluster, kinds, (0.4, 1.0, 2.5))
        random = self._random
        if "flip" in self.chosen and "round trip" in self.chosen:
            # The one copy that is left on the way must not be the damaged one.
            self.chosen.remove("round trip")
            del self._kinds["round trip"]
        # How long a sender waits for a peer that takes no bytes.
        network = {"patience_s": random.choice((1.0, 3.0, 900.0))}
        if random.random() < 0.4:
            network["reset_rate"] = random.choice((0.001, 0.005))
            self.chosen.append("resets")
        if random.random() < 0.4:
            network["slow_rate"] = random.choice((0.005, 0.03))
            self.chosen.append("late")
        self._world.network.faults = NetworkFaults(split_rate=0.1, **network)
        for node in cluster.nodes:
            node.is_slow = random.random() < 0.4

    def begin(self) -> None:
        self._cluster.on_down = self._later
        super().begin()

    def heal(self) -> None:
        self._is_over = True
        self._world.network.heal()
        patience_s = self._world.network.faults.patience_s
        self._world.network.faults = NetworkFaults(patience_s=patience_s)
        self._cluster.note("healed")
        for node in self._cluster.nodes:
            self._good_disk(node)
            node.disk.crash_at(0)
            if node.loop is not None:
                node.loop.is_paused = False
        for node in self._cluster.nodes:
            self._come_back(node)

    # ---- nodes

    def _come_back(self, node: Process) -> None:
        if not node.is_up:
            node.is_slow = self._random.random() < 0.4
            self._cluster.note(f"node {node.node_id} is started")
            node.try_begin()

    def _later(self, node: Process) -> None:
        """Whatever has ended a process, it is started again."""
        delay = 0.1 if self._is_over else self._random.choice((0.01, 0.1, 0.5, 3.0))
        self._cluster.note(f"node {node.node_id} is down")
        self._world.after(delay, lambda: self._come_back(node))

    def _power_in_operation(self) -> None:
        node = self._up()
        if node is not None:
            node.disk.crash_at(self._random.randint(1, 60))

    def _kill_leader(self) -> None:
        """Of the metadata."""
        for node in self._cluster.nodes:
            if node.node is not None and node.node.broker.quorum.is_leading:
                self._cluster.note(f"node {node.node_id}, which leads, is killed")
                node.kill()
                return

    def _pause(self) -> None:
        node = self._up()
        if node is not None:
            self._pause_now(node)

    def _pause_now(self, node: Process) -> None:
        self._cluster.note(f"node {node.node_id} is paused")
        loop = node.loop
        assert loop is not None
        loop.is_paused = True

        def resume() -> None:
            loop.is_paused = False

        self._world.after(self._random.choice((0.3, 1.0, 3.0)), resume)

    def _pause_in_flush(self) -> None:
        """While a group of its is on its way to the disk."""
        node = self._up()
        if node is not None:
            self._pause_when_flushing(node, node.lives, 1000)

    def _pause_when_flushing(self, node: Process, life: int, tries: int) -> None:
        if node.node is None or node.lives != life or not tries or self._is_over:
            return
        if node.node.store.commits.is_in_flight:
            self._pause_now(node)
        else:
            self._world.after(0.001, lambda: self._pause_when_flushing(node, life, tries - 1))

    def _stop(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"node {node.node_id} is asked to stop")
            node.begin_stop()

    def _clock(self) -> None:
        node = self._up()
        if node is not None:
            node.clock.jump(self._random.choice((-3_600_000, -5000, 5000, 3_600_000)))

    # ---- network

    def _heal_later(self, seconds: tuple[float, ...]) -> None:
        self._world.after(self._random.choice(seconds), self._world.network.heal)

    def _hosts(self) -> list[str]:
        return [each.host for each in self._cluster.nodes]

    def _cut(self) -> None:
        network = self._world.network
        source, target = self._random.sample([*self._hosts(), "producer0", "consumer0"], 2)
        self._cluster.note(f"from {source} to {target} nothing arrives")
        network.cut(source, target)
        if self._random.random() < 0.5:
            network.cut(target, source)
        self._heal_later((0.5, 2.0, 4.0))

    def _isolate(self) -> None:
        """From the other nodes; clients may still reach it, or may not."""
        host = self._random.choice(self._hosts())
        others = [each for each in self._hosts() if each != host]
        if self._random.random() < 0.5:
            others += [each.loop.host for each in self._cluster.clients]
        self._cluster.note(f"{host} is isolated")
        self._world.network.isolate(host, others)
        self._heal_later((1.0, 3.0))

    def _reset(self) -> None:
        a, b = self._random.sample(self._hosts(), 2)
        self._world.network.reset(a, b)

    # ---- disks

    def _full_disk(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"the disk of node {node.node_id} is full")
            used = node.disk._tree.used_bytes
            node.disk.capacity_bytes = used + self._random.choice((0, 5000, 30_000))
            self._world.after(self._random.choice((1.0, 4.0)), lambda: self._good_disk(node))

    def _slow_disk(self) -> None:
        node = self._up()
        if node is not None and node.node is not None:
            node.node.store.commits.sync_average_s = 1.0

    # ---- operators

    def _leadership_of(self) -> Process | None:
        ready = [each for each in self._cluster.nodes if each.is_ready]
        return self._random.choice(ready) if ready else None

    def _elect(self) -> None:
        """Another order of replicas, then the first one leads."""
        node = self._leadership_of()
        if node is None or node.node is None or node.loop is None:
            return
        leadership = node.node.broker.leadership
        for partition in list(node.node.broker.image.partitions.values()):
            replicas = self._random.sample(partition.replicas, len(partition.replicas))

            def elect(_error: object, partition: object = partition) -> None:
                start(leadership.elect_preferred(partition)).then(lambda _error: None)  # type: ignore[arg-type]

            def move(partition=partition, replicas=replicas, elect=elect) -> None:  # type: ignore[no-untyped-def]
                start(leadership.move(partition, replicas, may_resize=True)).then(elect)

            node.loop.call_soon(move)

    def _move(self) -> None:
        partition = self._any_partition()
        if partition is not None:
            nodes = [each.node_id for each in self._cluster.nodes]
            self._move_to(partition, self._random.sample(nodes, min(len(partition.replicas), 3)))

    def _any_partition(self) -> PartitionMetadata | None:
        node = self._leadership_of()
        if node is None or node.node is None:
            return None
        partitions = list(node.node.broker.image.partitions.values())
        return self._random.choice(partitions) if partitions else None

    def _move_to(self, partition: PartitionMetadata, replicas: list[int]) -> None:
        node = self._leadership_of()
        if node is None or node.node is None or node.loop is None:
            return
        leadership = node.node.broker.leadership
        known = node.node.broker.image.partitions.get(partition.partition_id)

        def move() -> None:
            if known is not None:
                start(leadership.move(known, replicas, may_resize=True)).then(lambda _error: None)

        node.loop.call_soon(move)

    def _round_trip(self) -> None:
        """A partition goes to one node, then to another, and then every machine starts again: what
        they read first is that it has left them.
        """
        partition = self._any_partition()
        if partition is None:
            return
        nodes = [each.node_id for each in self._cluster.nodes]
        here, there = self._random.sample(nodes, 2)
        for delay, replicas in ((0.0, [here]), (0.6, [there]), (1.2, [here])):
            self._world.after(delay, partial(self._move_to, partition, replicas))
        self._world.after(2.0, self._all_power)
