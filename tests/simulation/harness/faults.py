"""What goes wrong in one run: every seed switches on a random subset of faults (swarm).

Fault budget: only one node, the *victim*, ever loses its disk or gets flipped bits, and only while
another one has all that is committed and may lead. What fails then is a bug and not arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from dragoman.cluster.metadata import MIN_INSYNC
from dragoman.testing.sim.faults import DiskFaults
from simulation.harness.cluster import ReplicatedCluster


class Faults:
    """Faults of every cluster of replicated partitions; subclasses add those of their nodes."""

    def __init__(
        self,
        cluster: ReplicatedCluster,
        kinds: Mapping[str, Callable[[], None]],
        paces: Sequence[float],
    ) -> None:
        self._cluster = cluster
        self._random = random = Random(cluster.random.getrandbits(64))
        every = {
            "power": self._power,
            "kill": self._kill,
            "all power": self._all_power,
            "flip": self._flip,
            "sync error": self._sync_error,
            **kinds,
        }
        self.chosen = sorted(random.sample(sorted(every), random.randint(2, 8)))
        self._kinds = {name: every[name] for name in self.chosen}
        #: Seconds between two faults, on average.
        self._pace = random.choice(paces)
        self._is_over = False

    def config(self) -> dict[str, str]:
        """With `min.insync.replicas` 1, a disk that is lost before the controller knows, and the
        restart of the only other copy, are more than replication promises to survive."""
        return {MIN_INSYNC: "2"} if {"wipe", "flip"} & set(self.chosen) else {}

    def begin(self) -> None:
        self._next()

    def _next(self) -> None:
        self._cluster.after(self._random.expovariate(1 / self._pace), self._happen)

    def _happen(self) -> None:
        if not self._is_over:
            name = self._random.choice(sorted(self._kinds))
            self._cluster.note(f"fault: {name}")
            self._kinds[name]()
            self._next()

    def heal(self) -> None:
        raise NotImplementedError

    # ---- nodes

    def _up(self) -> Any:
        """Any node that is up, or None."""
        up = [each for each in self._cluster.nodes if each.is_up]
        return self._random.choice(up) if up else None

    def _watch(self, node: Any) -> None:
        """A fault has ended the process of a node, or may end it."""

    def _come_back(self, node: Any) -> None:
        raise NotImplementedError

    def _power(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"node {node.node_id} loses power")
            node.cut_power()
            self._watch(node)

    def _all_power(self) -> None:
        for node in self._cluster.nodes:
            if node.is_up:
                node.cut_power()
                self._watch(node)

    def _kill(self) -> None:
        node = self._up()
        if node is not None:
            self._cluster.note(f"node {node.node_id} is killed")
            node.kill()
            self._watch(node)

    # ---- disks

    def _sync_error(self) -> None:
        node = self._up()
        if node is not None:
            node.disk.faults = DiskFaults(sync_error_rate=self._random.choice((0.02, 0.2)))
            self._cluster.after(2.0, lambda: self._good_disk(node))
            self._watch(node)

    def _good_disk(self, node: Any) -> None:
        node.disk.faults = DiskFaults()
        node.disk.capacity_bytes = DiskFaults().capacity_bytes

    def _is_budget_free(self) -> bool:
        """Another node has all that is committed, and may lead."""
        victim = self._cluster.victim.node_id
        return all(
            set(each.in_sync) | set(each.eligible) > {victim}
            for each in self._cluster.main_partitions()
            if victim in each.replicas
        )

    def _flip(self) -> None:
        """Flips a bit in a log of the victim; half of the time the node goes down as well."""
        node, random = self._cluster.victim, self._random
        if self._is_over or not node.is_up or not self._is_budget_free():
            return
        ids = {str(each.partition_id) for each in self._cluster.main_partitions()}
        image = node.disk.image()
        files = [
            path
            for path, data in image.items()
            if path.startswith("partitions/") and path.endswith(".log") and data
            if path.split("/")[1].partition("-")[0] in ids
        ]
        if not files:
            return
        path = random.choice(files)
        position = self._position_to_flip(image, path)
        if position is None:
            return
        node.disk.flip(path, position, random.randrange(8))
        self._cluster.note(f"node {node.node_id}: a bit of {path} is flipped")
        self._cluster.checker.flipped(node, int(path.split("/")[1].partition("-")[0]))
        if random.random() < 0.5:
            node.cut_power()
            self._cluster.after(0.05, lambda: self._come_back(node))

    def _position_to_flip(self, image: Mapping[str, bytes], path: str) -> int | None:
        return self._random.randrange(len(image[path]))
