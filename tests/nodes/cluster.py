"""The nodes of a cluster as processes of their own, on one machine, with ports that stay."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.api.values import ClusterStatus
from dragoman.cli.remote import Remote
from dragoman.cli.status import CommandError
from nodes.ports import HOST, free_ports
from nodes.process import WAIT_S, ServedNode

_LISTENERS = ("peer", "kafka", "http")
_LOOK_S = 0.02


class ServedCluster:
    """Nodes 1 to `count`, not started; more may be named later."""

    def __init__(
        self,
        root: Path,
        count: int,
        *options: str,
        listeners: tuple[str, ...] = (),
        etcd_port: int | None = None,
        etcd_url: str = "",
    ):
        """With an etcd, that of the test wheel: nodes learn from it where the others are."""
        self.root = root
        self._options = options
        self._has_etcd = etcd_port is not None or bool(etcd_url)
        if self._has_etcd:
            etcd = ("--etcd", etcd_url or f"http://127.0.0.1:{etcd_port}")
            self._options += (*etcd, "--set", "metadata.etcd.allow.bad.version=true")
        self._listeners = (*_LISTENERS, *listeners)
        self._ports = free_ports()
        self._addresses: dict[int, dict[str, str]] = {}
        named = [self.name(node) for node in range(1, count + 1)]
        self.founders = [] if self._has_etcd else named
        self.nodes: dict[int, ServedNode] = {}
        #: What nodes are started with, where that is not the interpreter alone.
        self.launchers: dict[int, Sequence[str]] = {}
        #: The module that runs them, which may stand for another release.
        self.modules: dict[int, str] = {}

    def __enter__(self) -> ServedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.process.poll() is None:
                # A paused node would not be killed before it is resumed.
                node.signal(signal.SIGCONT)
            node.kill()

    # ---- names and places

    def address(self, node: int, listener: str) -> str:
        if node not in self._addresses:
            found = {name: f"{HOST}:{next(self._ports)}" for name in self._listeners}
            self._addresses[node] = found
        return self._addresses[node][listener]

    def name(self, node: int) -> str:
        """As `--cluster` and `cluster add` want it."""
        return f"{node}@{self.address(node, 'peer')}"

    def data(self, node: int) -> Path:
        return self.root / f"node-{node}"

    def bootstrap(self, listener: str = "kafka") -> str:
        return ",".join(self.address(node, listener) for node in sorted(self._addresses))

    def url(self, node: int) -> str:
        return f"http://{self.address(node, 'http')}"

    def remote(self, node: int = 1) -> Remote:
        return Remote(self.url(node))

    # ---- lives

    def begin(self, node: int, *options: str, cluster: list[str] | None = None) -> ServedNode:
        """Start a node, alone if `cluster` is empty, and do not wait for it."""
        named = self.founders if cluster is None else cluster
        listen = [
            argument
            for name in self._listeners
            if name != "peer" or self._has_etcd
            for argument in ("--listen", f"{name}={self.address(node, name)}")
        ]
        arguments = ["--data", str(self.data(node)), "--node-id", str(node), *listen]
        if named:
            arguments += ["--cluster", ",".join(named)]
        launcher = self.launchers.get(node, (sys.executable,))
        started = ServedNode(
            *arguments,
            *self._options,
            *options,
            launcher=launcher,
            module=self.modules.get(node, "dragoman.cli.main"),
        )
        self.nodes[node] = started
        return started

    def start(self, *nodes: int, cluster: list[str] | None = None) -> None:
        for node in nodes:
            self.begin(node, cluster=cluster)
        for node in nodes:
            self.nodes[node].ready()

    def wipe(self, node: int) -> None:
        shutil.rmtree(self.data(node))

    # ---- what it says

    def wait_for_log(self, node: int, text: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not any(text in line for line in self.nodes[node].log):
            assert time.monotonic() < deadline, f"{text!r} is not in {self.nodes[node].log}"
            time.sleep(_LOOK_S)

    def status(self, node: int = 1) -> ClusterStatus:
        return self.remote(node).get("/api/v1/cluster", ClusterStatus)

    def wait(self, holds: Callable[[ClusterStatus], bool], node: int = 1) -> ClusterStatus:
        """Wait until a node reports such a status."""
        deadline = time.monotonic() + WAIT_S
        last: object = None
        while time.monotonic() < deadline:
            try:
                status = self.status(node)
            except CommandError as error:
                last = error
            else:
                if holds(status):
                    return status
                last = status
            time.sleep(_LOOK_S)
        logs = {number: each.log[-20:] for number, each in self.nodes.items()}
        raise AssertionError(f"node {node} says {last}; {logs}")

    def wait_in_sync(self, node: int = 1) -> ClusterStatus:
        """Until everybody is there and has everything."""

        def holds(status: ClusterStatus) -> bool:
            is_whole = not (status.under_replicated or status.leaderless or status.moving)
            return is_whole and all(
                each.alive and each.role in ("voter", "etcd") for each in status.nodes
            )

        return self.wait(holds, node)
