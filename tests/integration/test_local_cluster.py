"""Goal: `dragoman cluster up` runs nodes that found a cluster, and ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.api.values import ClusterStatus
from dragoman.cli.remote import Remote
from dragoman.client.rocketmq import BlockingRocketmqClient, Message
from nodes.ports import free_row
from nodes.process import SOURCE, WAIT_S


def sent_and_read(name_server: str) -> list[bytes]:
    """By a RocketMQ client that knows nothing but a name server."""
    with BlockingRocketmqClient(name_server) as client:
        with client.producer("local") as producer:
            producer.send(Message(topic="local", body=b"hello"))
        with client.pull_consumer("local") as reader:
            bodies = []
            for queue in reader.queues("local"):
                reader.seek(queue, 0)
                bodies += [each.body for each in reader.pull(queue).messages]
            return bodies


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_local_cluster_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    base = free_row(20)
    command = ["cluster", "up", "-n", "2", "--data", str(tmp_path), "--port-base", str(base)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    try:
        assert process.stdout is not None
        said = dict(process.stdout.readline().split() for _ in range(9))
        assert said["kafka"] == f"127.0.0.1:{base},127.0.0.1:{base + 10}"
        assert said["rocketmq"] == f"127.0.0.1:{base + 8},127.0.0.1:{base + 18}"
        assert said["rocketmq-broker"] == f"127.0.0.1:{base + 9},127.0.0.1:{base + 19}"
        assert sent_and_read(said["rocketmq"].partition(",")[0]) == [b"hello"]
        first, _, _ = said["http"].partition(",")
        status = Remote(f"http://{first}").get("/api/v1/cluster", ClusterStatus)
        assert [(node.node_id, node.alive) for node in status.nodes] == [(1, True), (2, True)]
        process.send_signal(number)
        _, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    lines = err.splitlines()
    assert {line.partition(" | ")[0] for line in lines} == {"node 1", "node 2"}
    assert "node 1 | ready" in lines


def test_too_many_nodes_are_refused(tmp_path: Path) -> None:
    command = ["cluster", "up", "-n", "10", "--data", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "dragoman.cli.main", *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "expected 1 to 9 nodes" in ran.stderr
