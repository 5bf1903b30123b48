"""Three nodes that begin as the release before, and the audit logs that they write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dragoman.cli.remote import Remote
from nodes.cluster import ServedCluster
from nodes.process import ServedNode

NODES = (1, 2, 3)
LISTENERS = ("mlog", "minibroker", "cursus")


class LockedCluster(ServedCluster):
    def __init__(self, root: Path, before: Path) -> None:
        """`before` has the sources of the release before."""
        super().__init__(root, len(NODES), listeners=LISTENERS)
        self._before = before
        self._upgraded: dict[int, tuple[str, ...]] = {}

    def begin(self, node: int, *options: str, cluster: list[str] | None = None) -> ServedNode:
        if node in self._upgraded:
            self.launchers.pop(node, None)
            options = (*self._upgraded[node], *options)
        else:
            self.launchers[node] = ("env", f"PYTHONPATH={self._before}", sys.executable)
        return super().begin(node, *options, cluster=cluster)

    def upgrade(self, node: int, *options: str) -> None:
        """Restart a node with this source, and with these options from now on."""
        self._upgraded[node] = options
        self.restart(node)

    def restart(self, node: int) -> None:
        assert self.nodes[node].stop() == 0, self.nodes[node].log
        self.start(node)
        self.wait_in_sync(node)

    def remote(self, node: int = 1) -> Remote:
        if node in self._upgraded:
            return Remote(f"unix:{self.data(node)}")
        return super().remote(node)

    def audited(self) -> Iterator[dict[str, Any]]:
        """The lines of all audit logs."""
        for node in NODES:
            for path in sorted(self.data(node).glob("audit.log*")):
                yield from map(msgspec.json.decode, path.read_bytes().splitlines())
