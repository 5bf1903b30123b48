"""Nodes as services of systemd, and what their runbooks call them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy_check.command import ENVIRONMENT, ROOT, output_of
from nodes.cluster import ServedCluster
from nodes.ports import free_ports
from nodes.process import ServedNode

_PROGRAM = (sys.executable, "-m", "dragoman.cli.main")
_PYTHON = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "src")}


def dragoman(
    *words: str, standard_input: str | None = None, more: Mapping[str, str] | None = None
) -> str:
    environment = {**_PYTHON, **(more or {})}
    return output_of((*_PROGRAM, *words), standard_input=standard_input, environment=environment)


def attempt(*words: str) -> None:
    """A command that may fail."""
    subprocess.run((*_PROGRAM, *words), capture_output=True, env=_PYTHON, timeout=60)


class NodeService:
    """A node that `begin` starts, with the log of all its lives."""

    def __init__(self, begin: Callable[[], ServedNode], current: Callable[[], ServedNode]) -> None:
        self._begin = begin
        self._current = current
        self._before: list[str] = []

    @property
    def is_running(self) -> bool:
        return self._current().process.poll() is None

    @property
    def pid(self) -> int:
        return self._current().process.pid

    @property
    def log(self) -> Sequence[str]:
        return [*self._before, *self._current().log]

    def start(self) -> None:
        if not self.is_running:
            self._before += self._current().log
            self._begin().ready()

    def stop(self) -> None:
        if self.is_running:
            self._current().stop()

    def kill(self) -> None:
        self._current().kill()

    def reload(self) -> None:
        self._current().signal(signal.SIGHUP)

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)


def service_of(cluster: ServedCluster, node: int) -> NodeService:
    return NodeService(lambda: cluster.begin(node), lambda: cluster.nodes[node])


def variables_of(cluster: ServedCluster, node: int, by: int) -> dict[str, str]:
    """The names of the runbooks' introduction; commands go to the node `by`."""
    return {
        "DRAGOMAN_SERVER": cluster.url(by),
        "BOOTSTRAP": cluster.bootstrap(),
        "ADDRESS": cluster.address(node, "http"),
        "PORT": cluster.address(node, "kafka").rpartition(":")[2],
        "NODE": str(node),
        "DIR": str(cluster.data(node)),
    }


class SingleNode:
    """A node on its own, which may be started again on the same ports."""

    def __init__(self, data: Path, *options: str, launcher: Sequence[str] = (sys.executable,)):
        ports = free_ports()
        self.http, self.kafka = (f"127.0.0.1:{next(ports)}" for _ in range(2))
        self.data = data
        self._options = (
            *("--data", str(data), *options),
            *("--listen", f"http={self.http}", "--listen", f"kafka={self.kafka}"),
        )
        self.launcher = launcher
        self.node = self._begin()
        self.service = NodeService(self._begin, lambda: self.node)

    def _begin(self) -> ServedNode:
        self.node = ServedNode(*self._options, launcher=self.launcher)
        return self.node

    def __enter__(self) -> SingleNode:
        try:
            self.node.ready()
        except BaseException:
            self.node.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.node.signal(signal.SIGCONT)
        self.node.kill()

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def variables(self, **more: str) -> dict[str, str]:
        return {
            "DRAGOMAN_SERVER": self.url,
            "BOOTSTRAP": self.kafka,
            "ADDRESS": self.http,
            "PORT": self.kafka.rpartition(":")[2],
            "NODE": "1",
            "DIR": str(self.data),
            **more,
        }
