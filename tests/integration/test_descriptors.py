"""Goal: clients that hold every descriptor end no node: the log writes, others are turned away, and
health probes are answered.

Method: a served process that may have few, and more idle connections than that.
"""

from __future__ import annotations

import http.client
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

from nodes.process import ServedNode
from protocols.kafka_socket import KafkaSocket
from worlds.broker import batch_of

NOFILE = 200
IDLE = 400


def _is_served(node: ServedNode) -> bool:
    with KafkaSocket(node.bootstrap_servers) as client:
        try:
            return client.produce("t", batch_of(b"after")).error_code == 0
        except ConnectionError:
            return False


def _http_address(node: ServedNode) -> tuple[str, int]:
    host, _, port = node.listeners["http"].rpartition(":")
    return host, int(port)


def _is_alive(node: ServedNode) -> bool:
    """As a probe of an orchestrator asks, on a connection of its own."""
    connection = http.client.HTTPConnection(*_http_address(node), timeout=60)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except ConnectionError:
        return False
    finally:
        connection.close()


def test_more_idle_connections_than_descriptors(tmp_path: Path) -> None:
    node = ServedNode(
        *("--data", str(tmp_path), "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"),
        launcher=("prlimit", f"--nofile={NOFILE}", sys.executable),
    )
    with node.ready(), ExitStack() as sockets:
        host, _, port = node.bootstrap_servers.rpartition(":")
        client = sockets.enter_context(KafkaSocket(node.bootstrap_servers))
        client.create_topic("t", 60)
        idle = [
            sockets.enter_context(socket.create_connection((host, int(port)))) for _ in range(IDLE)
        ]
        quiet = [
            sockets.enter_context(socket.create_connection(_http_address(node)))
            for _ in range(NOFILE)
        ]
        # All that are accepted in one turn of the loop have a descriptor until the next one.
        while not _is_alive(node):
            pass
        # Each partition has a segment file, and the last of the idle ones are turned away.
        for partition in range(60):
            batch = batch_of(bytes(100_000))
            assert client.produce("t", batch, partition).error_code == 0
            assert _is_alive(node)
        idle[-1].settimeout(60)
        assert idle[-1].recv(1) == b""
        client.metadata()
        for each in idle + quiet:
            each.close()
        # The node may accept a connection before it knows that the earlier ones are closed.
        while not _is_served(node):
            pass
        refusals = [line for line in node.log if "refusing" in line]
        assert 0 < len(refusals) <= 10
        assert node.stop() == 0


def test_limit_that_changes_counts_at_once(tmp_path: Path) -> None:
    # Lowered, which needs no rights; an operator would raise it.
    node = ServedNode("--data", str(tmp_path), "--listen", "kafka=127.0.0.1:0")
    with node.ready(), ExitStack() as sockets:
        _, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (NOFILE, hard))
        host, _, port = node.bootstrap_servers.rpartition(":")
        for _ in range(NOFILE):
            sockets.enter_context(socket.create_connection((host, int(port))))
        node.wait_for_log("files are open, and the log may need the others")
