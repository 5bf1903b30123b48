"""Three nodes as processes that reach each other through a network which can be cut."""

from __future__ import annotations

from pathlib import Path

from chaos.network import Network
from nodes.cluster import ServedCluster
from nodes.process import ServedNode

NODES = (1, 2, 3)


class ChaosCluster(ServedCluster):
    def __init__(
        self, root: Path, *, listeners: tuple[str, ...], etcd_port: int | None = None
    ) -> None:
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
        advertise = ("--advertise", f"peer=127.0.0.1:{self._fronts[node]}")
        return super().begin(node, *advertise, *options, cluster=None if self._has_etcd else named)

    def kill(self, node: int) -> None:
        # First: whoever dials it again at once shall find nobody, as without a proxy.
        self.network.down(node)
        self.nodes[node].kill()
