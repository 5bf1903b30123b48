"""What goes wrong with nodes on callbacks: power, disks, connections, the controller, operators."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from random import Random

from dragoman.errors import LogStoppedError
from dragoman.log.batch import LENGTH_PREFIX_BYTES, UNCHECKED_PREFIX_BYTES, WALK
from dragoman.log.partition import PartitionLog
from dragoman.outcome import ignore
from dragoman.replication.messages import ControlReply
from simulation.harness import faults
from simulation.replication.cluster import Cluster
from simulation.replication.metadata import CONTROLLER
from simulation.replication.node import Node

_DONE = ControlReply(outcomes=())


class Faults(faults.Faults):
    _cluster: Cluster

    def __init__(self, cluster: Cluster) -> None:
        kinds = {
            "power in operation": self._power_in_operation,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._isolate,
            "stop": self._stop,
            "wipe": self._wipe,
            "flip": self._flip_alone_or_not,
            "controller": cluster.metadata.replace_controller,
            "delete records": self._delete_records,
            "move": self._move,
            "elect": self._elect,
        }
        super().__init__(cluster, kinds, (0.3, 0.8, 2.0))
        random, network = self._random, cluster.network
        if random.random() < 0.5:
            network.loss_rate = random.choice((0.005, 0.03))
            self.chosen.append("loss")
        if random.random() < 0.5:
            network.late_rate = random.choice((0.005, 0.03))
            self.chosen.append("late")
        if random.random() < 0.3:
            network.slow_s = 0.05
            self.chosen.append("slow network")
        if random.random() < 0.3:
            # What a leader wants is decided on when it may not lead any more.
            network.late_rates[CONTROLLER] = 0.2
            self.chosen.append("late requests")
        for node in cluster.nodes:
            node.is_slow = random.random() < 0.4
        self._flips_indexes = random.random() < 0.5

    def heal(self) -> None:
        self._is_over = True
        cluster = self._cluster
        cluster.network.heal()
        cluster.network.loss_rate = cluster.network.late_rate = 0.0
        cluster.network.late_rates.clear()
        cluster.moved_bytes_per_s = 0
        cluster.network.slow_s = 0.003
        cluster.note("healed")
        for node in cluster.nodes:
            self._good_disk(node)
            node.disk.crash_at(0)
            if node.scheduler is not None:
                node.scheduler.resume()
            self._come_back(node)

    # ---- nodes

    def _come_back(self, node: Node) -> None:
        """Whatever has ended a process, it is started again."""
        if not node.is_up:
            node.is_slow = self._random.random() < 0.4
            node.start()
            self._cluster.note(f"node {node.node_id} is back: {node.is_up}")
        if not node.is_up:
            self._later(node)

    def _later(self, node: Node) -> None:
        delay = self._random.choice((0.01, 0.1, 0.5, 3.0))
        self._cluster.after(delay, lambda: self._come_back(node))

    def _watch(self, node: Node) -> None:
        if not node.is_up:
            self._cluster.note(f"node {node.node_id} is down")
            self._later(node)
        else:
            self._cluster.after(0.1, lambda: self._watch(node))

    def _power_in_operation(self) -> None:
        node = self._up()
        if node is not None:
            node.disk.crash_at(self._random.randint(1, 60))
            self._watch(node)

    def _pause(self) -> None:
        node = self._up()
        if node is not None and node.scheduler is not None:
            self._cluster.note(f"node {node.node_id} is paused")
            process = node.scheduler
            process.pause()
            self._cluster.after(self._random.choice((0.3, 1.0, 3.0)), process.resume)

    def _stop(self) -> None:
        node = self._up()
        if node is not None:
            node.stop()
            self._watch(node)

    # ---- network

    def _heal_later(self, seconds: tuple[float, ...]) -> None:
        self._cluster.after(self._random.choice(seconds), self._cluster.network.heal)

    def _cut(self) -> None:
        network = self._cluster.network
        source, target = self._random.sample(range(len(self._cluster.nodes) + 1), 2)
        network.cut(source, target)
        if self._random.random() < 0.5:
            network.cut(target, source)
        self._heal_later((0.5, 2.0, 4.0))

    def _isolate(self) -> None:
        """Isolate a node from all, from the controller only, or from the other nodes only; or let
        it receive nothing from the controller, which still receives its messages.
        """
        network, count = self._cluster.network, len(self._cluster.nodes)
        node = self._random.randint(1, count)
        if self._random.random() < 0.4:
            network.cut(CONTROLLER, node)
            self._heal_later((2.0, 4.0))
            return
        others = self._random.choice(([*range(count + 1)], [CONTROLLER], [*range(1, count + 1)]))
        for each in others:
            network.cut(node, each)
            network.cut(each, node)
        self._heal_later((1.0, 3.0))

    # ---- disks

    def _wipe(self) -> None:
        node = self._cluster.victim
        if node.is_up and self._is_budget_free():
            self._cluster.note(f"node {node.node_id} loses its disk")
            node.cut_power()
            node.wipe()
            self._later(node)

    def _flip_alone_or_not(self) -> None:
        if self._random.random() < 0.6:
            self._flip()
            return
        # The others are down, and known to be, when the victim comes back with what it has.
        for node in self._cluster.nodes:
            if node is not self._cluster.victim and node.is_up:
                node.cut_power()
                self._cluster.after(3.0, partial(self._come_back, node))
        self._cluster.after(2.0, self._flip)

    def _position_to_flip(self, image: Mapping[str, bytes], path: str) -> int | None:
        node, random = self._cluster.victim, self._random
        index = path.removesuffix(".log") + ".idx"
        if not image.get(index):
            return None
        if not self._flips_indexes:
            return random.randrange(len(image[path]))
        # Without its index, the segment is read from end to end at the next start. Headers have
        # no other check, so these stay as they are.
        node.disk.flip(index, random.randrange(min(20, len(image[index]))), random.randrange(8))
        return _position_in_records(image[path], random)

    # ---- operators

    def _delete_records(self) -> None:
        node = self._up()
        if node is None or node.scheduler is None or not hasattr(node, "replication"):
            return
        for leading in list(node.replication._leading.values()):
            node.scheduler.call_soon(self._delete_most, leading.replica.log)

    def _delete_most(self, log: PartitionLog) -> None:
        """Not what a producer may send again: a copy made anew knows only of what is in the log."""
        partition_id = log.identity.partition_id
        in_doubt = [
            offset for (where, _), offset in self._cluster.in_doubt.items() if where == partition_id
        ]
        with suppress(LogStoppedError):
            log.move_log_start(max(0, min([log.high_watermark - 3, *in_doubt])))

    def _elect(self) -> None:
        """Another leader for no reason, as when leaders are balanced."""
        image, controller = self._cluster.image, self._cluster.metadata.controller
        for partition in image.partitions.values():
            replicas = self._random.sample(partition.replicas, len(partition.replicas))
            move = partial(controller.controller.reassign, partition.partition_id, replicas)
            elect = partial(controller.controller.elect_preferred, partition)
            for decide in (move, elect):
                controller.decide(lambda each=decide: (each(), _DONE)).then(ignore)

    def _move(self) -> None:
        cluster = self._cluster
        image, controller = cluster.image, cluster.metadata.controller
        if not image.partitions:
            return
        partition = self._random.choice(list(image.partitions.values()))
        nodes = [each.node_id for each in cluster.nodes]
        factor = min(len(partition.replicas), 3)
        replicas = self._random.sample(nodes, factor)
        partition_id = partition.partition_id
        decide = partial(controller.controller.reassign, partition_id, replicas)
        controller.decide(lambda: (decide(), _DONE)).then(ignore)


def _position_in_records(data: bytes, random: Random) -> int:
    starts = [0]
    while starts[-1] < len(data):
        _, length, _ = WALK.unpack_from(data, starts[-1])
        starts.append(starts[-1] + length + LENGTH_PREFIX_BYTES)
    at = random.randrange(len(starts) - 1)
    return random.randrange(starts[at] + UNCHECKED_PREFIX_BYTES, min(starts[at + 1], len(data)))
