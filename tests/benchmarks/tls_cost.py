"""What TLS costs a node: handshakes per second, memory per connection, CPU of produced records.

    PYTHONPATH=tests python tests/benchmarks/tls_cost.py

One node as a process, with a P-256 certificate; memory and CPU are the kernel's figures for it.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from confluent_kafka import Producer

from nodes.process import ServedNode
from worlds.tls import MemoryPeer, TlsFiles, client_context

HALF_OPEN: Final = 10_000
IDLE: Final = 4_000
HANDSHAKES: Final = 2_000
RECORDS: Final = 300_000
_RECORD_BYTES: Final = 1_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_API_VERSIONS: Final = struct.pack(">ihhihh", 10, 18, 0, 7, -1, 0)[:14]


class Measured:
    """A node with a listener without TLS and one with it."""

    def __init__(self, root: Path, files: TlsFiles, *settings: str) -> None:
        arguments = [each for pair in files.settings.items() for each in ("--set", "=".join(pair))]
        self.node = ServedNode(
            *("--data", str(root), "--listen", "kafka=127.0.0.1:0"),
            *("--listen", "kafka-tls=127.0.0.1:0", "--set", "listener.kafka-tls.tls=required"),
            *("--set", "durability=os", *arguments),
            *(each for setting in settings for each in ("--set", setting)),
        )

    def __enter__(self) -> Measured:
        self.node.ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.node.stop()

    def resident_bytes(self) -> int:
        text = Path(f"/proc/{self.node.process.pid}/statm").read_text()
        return int(text.split()[1]) * resource.getpagesize()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.node.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def connect(self, listener: str = "kafka-tls") -> socket.socket:
        host, _, port = self.node.listeners[listener].rpartition(":")
        return socket.create_connection((host, int(port)), 30.0)


def half_open(root: Path, files: TlsFiles) -> str:
    """Each sends a hello, and nothing after the server's answer."""
    with Measured(root, files, f"memory.budget.bytes={8 << 30}") as measured:
        hello = MemoryPeer(client_context(files)).handshake()
        before, cpu = measured.resident_bytes(), measured.cpu_seconds()
        began = time.monotonic()
        peers = []
        for _ in range(HALF_OPEN):
            peer = measured.connect()
            peer.sendall(hello)
            peers.append(peer)
        answered = sum(bool(_answer(peer)) for peer in peers)
        took = time.monotonic() - began
        each = (measured.resident_bytes() - before) / HALF_OPEN
        cpu_ms = (measured.cpu_seconds() - cpu) / HALF_OPEN * 1000
        for peer in peers:
            peer.close()
    return (
        f"half-open handshakes: {answered} in {took:.1f} s, {each / 1024:.1f} KB each,"
        f" {cpu_ms:.2f} ms of CPU each"
    )


def _answer(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 16)
    except OSError:
        return b""


def idle(root: Path, files: TlsFiles) -> list[str]:
    found = []
    for listener in ("kafka", "kafka-tls"):
        with Measured(root / listener, files) as measured:
            context = client_context(files)
            before, cpu = measured.resident_bytes(), measured.cpu_seconds()
            peers: list[socket.socket] = []
            for _ in range(IDLE):
                peer = measured.connect(listener)
                if listener != "kafka":
                    peer = context.wrap_socket(peer, server_hostname="localhost")
                peer.sendall(_API_VERSIONS)
                assert peer.recv(1 << 16)
                peers.append(peer)
            each = (measured.resident_bytes() - before) / IDLE
            cpu_ms = (measured.cpu_seconds() - cpu) / IDLE * 1000
            found.append(
                f"idle connections on {listener}: {each / 1024:.1f} KB each, made with"
                f" {cpu_ms:.2f} ms of CPU each"
            )
            for peer in peers:
                peer.close()
    return found


def handshakes(root: Path, files: TlsFiles) -> str:
    with Measured(root, files) as measured:
        context = client_context(files)
        cpu, began = measured.cpu_seconds(), time.monotonic()
        for _ in range(HANDSHAKES):
            with context.wrap_socket(measured.connect(), server_hostname="localhost"):
                pass
        took, cpu = time.monotonic() - began, measured.cpu_seconds() - cpu
    return (
        f"full handshakes: {HANDSHAKES / took:.0f}/s with one client,"
        f" {cpu / HANDSHAKES * 1000:.2f} ms of the node's CPU each, {HANDSHAKES / cpu:.0f}/s of it"
    )


def produce(root: Path, files: TlsFiles) -> list[str]:
    found: list[str] = []
    spent: dict[str, list[float]] = {}
    with Measured(root, files) as measured:
        for listener in ("kafka", *("kafka", "kafka-tls") * 3):
            options = {"bootstrap.servers": measured.node.listeners[listener], "linger.ms": 5}
            if listener != "kafka":
                options |= {"security.protocol": "SSL", "ssl.ca.location": files.ca}
            producer = Producer(options)
            producer.produce("warm", b"x")
            producer.flush()
            cpu, began = measured.cpu_seconds(), time.monotonic()
            for number in range(RECORDS):
                producer.produce("produced", bytes(_RECORD_BYTES), partition=0)
                if number % 10_000 == 0:
                    producer.flush()
            producer.flush()
            took = time.monotonic() - began
            cpu = measured.cpu_seconds() - cpu
            found.append(
                f"produce on {listener}: {RECORDS * _RECORD_BYTES / took / 1e6:.0f} MB/s,"
                f" {cpu / RECORDS * 1e6:.2f} µs of the node's CPU per record"
            )
            spent.setdefault(listener, []).append(cpu)
    # Without the first, which writes to an empty journal.
    plain, encrypted = median(spent["kafka"][1:]), median(spent["kafka-tls"])
    return [*found[1:], f"CPU with TLS is {encrypted / plain:.2f} times that without"]


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="tls-cost-") as directory:
        root = Path(directory)
        files = TlsFiles(root)
        print(half_open(root / "half", files), flush=True)
        print(*idle(root / "idle", files), sep="\n", flush=True)
        print(handshakes(root / "handshakes", files), flush=True)
        print(*produce(root / "produce", files), sep="\n", flush=True)


if __name__ == "__main__":
    main()
