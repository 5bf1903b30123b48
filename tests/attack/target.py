"""What is attacked: one node or three, as processes, watched from outside."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dragoman.cli.status import CommandError
from nodes.cluster import ServedCluster
from worlds.tls import TlsFiles
from worlds.tokens import AUDIENCE, jwk, key_set, rsa_key

#: The topic that good clients write to.
BYSTANDER_TOPIC = "bystander"
LISTENERS = ("rocketmq", "rocketmq-broker", "cursus", "minibroker", "mlog", "any")
_SAMPLE_S = 0.05
_CONNECT_S = 10.0
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Target:
    """A cluster of `count` nodes. Node 1 is the one that is attacked."""

    def __init__(
        self,
        root: Path,
        count: int,
        *,
        source: str | None = None,
        limits: tuple[str, ...] = (),
        with_tls: bool = False,
    ) -> None:
        """`source` is another version's `src` folder; `limits` goes in front of the interpreter,
        such as `("prlimit", "--nofile=200")`. `with_tls` adds the listener `kafka-tls`, allows TLS
        on `any`, and names the keys of bearer tokens.
        """
        self.count = count
        listeners, options = LISTENERS, ()
        if with_tls:
            listeners, options = (*LISTENERS, "kafka-tls"), _tls_options(root)
        self.cluster = ServedCluster(root, count, *options, listeners=listeners)
        version = () if source is None else ("env", f"PYTHONPATH={source}")
        for node in range(1, count + 1):
            self.cluster.launchers[node] = (*limits, *version, sys.executable)
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self.peak_bytes = 0
        #: Lines that follow the attack's figures.
        self.notes: list[str] = []
        self._open = ExitStack()

    def __enter__(self) -> Target:
        self._open.enter_context(self.cluster)
        self.cluster.start(*range(1, self.count + 1))
        self.cluster.wait_in_sync()
        self._sampler.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopping.set()
        if self._sampler.is_alive():
            self._sampler.join()
        self._open.__exit__(None, None, None)

    # ---- the way in

    def address(self, listener: str, node: int = 1) -> tuple[str, int]:
        host, _, port = self.cluster.address(node, listener).rpartition(":")
        return host, int(port)

    def connect(self, listener: str, node: int = 1) -> socket.socket:
        connected = socket.create_connection(self.address(listener, node), _CONNECT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def keep(self, client: subprocess.Popen[str]) -> subprocess.Popen[str]:
        """A client that is ended together with the nodes."""
        self._open.enter_context(client)
        self._open.callback(client.kill)
        return client

    # ---- what it costs

    def resident_bytes(self, node: int = 1) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", self._proc(node, "status"))
        return 0 if found is None else int(found[1]) << 10

    def cpu_seconds(self, node: int = 1) -> float:
        fields = self._proc(node, "stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS if fields else 0.0

    def descriptors(self, node: int = 1) -> int:
        with suppress(OSError):
            return len(os.listdir(f"/proc/{self._pid(node)}/fd"))
        return 0

    def log_lines(self, node: int = 1) -> int:
        return len(self.cluster.nodes[node].log)

    def ended(self) -> list[int]:
        """Nodes whose process is gone."""
        return [
            number for number, node in self.cluster.nodes.items() if node.process.poll() is not None
        ]

    def leaders(self) -> dict[str, int]:
        """Who leads what, as any node that answers knows it: the metadata and every partition of
        the bystanders' topic.
        """
        for node in range(1, self.count + 1):
            with suppress(CommandError):
                found = {"metadata": self.cluster.status(node).controller or 0}
                with suppress(KafkaException):
                    found |= self._partition_leaders()
                return found
        return {}

    def _partition_leaders(self) -> dict[str, int]:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap(), "log_level": 0})
        topics = admin.list_topics(timeout=_CONNECT_S).topics
        if BYSTANDER_TOPIC not in topics:
            return {}
        partitions = topics[BYSTANDER_TOPIC].partitions.values()
        return {f"{BYSTANDER_TOPIC}-{each.id}": each.leader for each in partitions}

    def _pid(self, node: int) -> int:
        return self.cluster.nodes[node].process.pid

    def _proc(self, node: int, name: str) -> str:
        with suppress(OSError):
            return Path(f"/proc/{self._pid(node)}/{name}").read_text()
        return ""

    def _sample(self) -> None:
        while not self._stopping.wait(_SAMPLE_S):
            self.peak_bytes = max(self.peak_bytes, self.resident_bytes())


def _tls_options(root: Path) -> tuple[str, ...]:
    files = TlsFiles(root)
    keys = root / "keys.json"
    keys.write_bytes(key_set(jwk(rsa_key(0), "1")))
    settings = {
        **files.settings,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.kafka-tls.tls": "required",
        "listener.any.tls": "optional",
    }
    return tuple(each for pair in settings.items() for each in ("--set", "=".join(pair)))


def settle(holds: float) -> None:
    """Leave an attack standing for so many seconds."""
    time.sleep(holds)
