"""`dragoman cluster up`: the nodes of a cluster on this machine, one process each.

Each node has its own data directory and its own ports on the loopback address. The nodes' output is
printed line by line, prefixed with the node id. Signals are forwarded to all nodes, and the command
exits after the last node. Nodes are not restarted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dragoman.cli.status import USAGE, CommandError, say
from dragoman.operating_system.platforms import require_unix

_HOST = "127.0.0.1"
#: Listeners of a node, as offsets from its first port. RocketMQ clients before 4.5.1 also connect
#: to the port two below a broker's, so that port stays free.
_LISTENERS = {
    "kafka": 0,
    "cursus": 1,
    "minibroker": 2,
    "mlog": 3,
    "any": 4,
    "http": 5,
    "peer": 6,
    "rocketmq": 8,
    "rocketmq-broker": 9,
}
_PORTS_PER_NODE = 10
_NODES_MAX = 9
#: The consoles of the nodes, one port after the other, behind all their other listeners.
_CONSOLES = _PORTS_PER_NODE * _NODES_MAX


def up(
    *,
    n: Annotated[int, Parameter(name=["-n", "--nodes"])] = 3,
    data: Path = Path("dragoman-cluster"),
    port_base: int = 19090,
) -> int:
    """Run a cluster on this machine, one process per node, until it is interrupted.

    Parameters
    ----------
    n
        Number of nodes.
    data
        Parent of the nodes' data directories.
    port_base
        First port of node 1. The ports of each further node start ten higher; the consoles are at
        ports 90 and following from this one.

    Examples
    --------
    dragoman cluster up -n 3 --data cluster-data
    """
    if not 1 <= n <= _NODES_MAX:
        raise CommandError(f"-n: expected 1 to {_NODES_MAX} nodes, got {n}", USAGE)
    if not 1 <= port_base <= 65_535 - _CONSOLES - n:
        raise CommandError(f"--port-base: {port_base} leaves no room for {n} nodes", USAGE)
    return _Nodes(n, data, port_base).run()


class _Nodes:
    def __init__(self, count: int, data: Path, port_base: int) -> None:
        self._numbers = range(1, count + 1)
        self._data = data
        self._key = data / "cluster.key"
        self._port_base = port_base
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._ready: set[int] = set()
        self._lock = threading.Lock()

    def run(self) -> int:
        # Closing the terminal stops the nodes, too, unless the command was started with nohup.
        require_unix("a cluster of nodes on this machine")
        ends = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            ends.append(signal.SIGHUP)
        handlers = {number: signal.signal(number, self._forward) for number in ends}
        try:
            self._make_key()
            for number in self._numbers:
                self._processes[number] = self._start(number)
            readers = [
                threading.Thread(target=self._relay, args=(number,)) for number in self._numbers
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        statuses = [process.wait() for process in self._processes.values()]
        return int(any(statuses))

    def _make_key(self) -> None:
        """Make the key that encrypts the cluster's secrets, the first time."""
        if not self._key.exists():
            from dragoman.offline import add_cluster_key

            try:
                self._data.mkdir(parents=True, mode=0o700, exist_ok=True)
            except OSError as error:
                raise CommandError(f"--data: {self._data}: {error.strerror}", USAGE) from None
            add_cluster_key(str(self._key))

    def _address(self, node: int, listener: str) -> str:
        if listener == "console":
            return f"{_HOST}:{self._port_base + _CONSOLES + node - 1}"
        first = self._port_base + _PORTS_PER_NODE * (node - 1)
        return f"{_HOST}:{first + _LISTENERS[listener]}"

    def _start(self, node: int) -> subprocess.Popen[str]:
        cluster = ",".join(f"{each}@{self._address(each, 'peer')}" for each in self._numbers)
        listen = [
            argument
            for name in (*_LISTENERS, "console")
            for argument in ("--listen", f"{name}={self._address(node, name)}")
        ]
        directory = str(self._data / f"node-{node}")
        options = ["--data", directory, "--node-id", str(node), "--cluster", cluster, *listen]
        options += ["--set", f"cluster.key.file={self._key}"]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dragoman.cli.main", "serve", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Otherwise a signal from the terminal would reach the node twice.
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def _relay(self, node: int) -> None:
        process = self._processes[node]
        assert process.stdout is not None
        for line in process.stdout:
            with self._lock:
                self._say(f"node {node} | {line.rstrip()}")
                if line.strip() == "ready":
                    self._ready.add(node)
                    if len(self._ready) == len(self._numbers):
                        self._announce()
        status = process.wait()
        if status:
            with self._lock:
                self._say(f"node {node} | ended with status {status}")

    def _say(self, message: str) -> None:
        # Nodes serve their clients, whether or not their output is read.
        with suppress(OSError):
            say(message)

    def _announce(self) -> None:
        for name in (*_LISTENERS, "console"):
            if name != "peer":
                nodes = ",".join(self._address(each, name) for each in self._numbers)
                with suppress(OSError):
                    print(f"{name} {nodes}", flush=True)

    def _forward(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            # SIGHUP would kill a node.
            number = signal.SIGTERM
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(number)
