"""Three nodes as processes that reach each other through a network which can be cut."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from chaos.network import Network
from nodes.cluster import ServedCluster
from nodes.process import ServedNode

NODES = (1, 2, 3)


class ChaosCluster(ServedCluster):
    def __init__(
        self,
        root: Path,
        *,
        listeners: tuple[str, ...],
        etcd_port: int | None = None,
        before: Path | None = None,
    ) -> None:
        """With `before`, the sources of another version, each start of a node changes its version.

        The first starts give node 2 this version and the others the other one.
        """
        self._before = before
        self._starts: Counter[int] = Counter()
        super().__init__(root, len(NODES), listeners=listeners, etcd_port=etcd_port)
        self.network = Network()
        self._fronts = {node: next(self._ports) for node in NODES}
        for node, port in self._fronts.items():
            self.network.place(node, port, self.address(node, "peer"))

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        self.network.close()

    def begin(self, node: int, *options: str, cluster: list[str] | None = None) -> ServedNode:
        assert cluster is None
        named = [
            self.name(node) if each == node else f"{each}@127.0.0.1:{port}"
            for each, port in self._fronts.items()
        ]
        self.network.up(node)
        if self._before is not None:
            self._starts[node] += 1
            is_before = (node + self._starts[node]) % 2 == 0
            environment = ("env", f"PYTHONPATH={self._before}") if is_before else ()
            self.launchers[node] = (*environment, sys.executable)
        advertise = ("--advertise", f"peer=127.0.0.1:{self._fronts[node]}")
        return super().begin(node, *advertise, *options, cluster=None if self._has_etcd else named)

    def kill(self, node: int) -> None:
        # First: a peer that dials again at once shall be refused, as without a proxy.
        self.network.down(node)
        self.nodes[node].kill()
