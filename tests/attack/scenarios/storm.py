"""Clients with TLS and logins that lose their connections at once, and come back at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from attack.scenarios.requests import Client
from attack.target import BYSTANDER_TOPIC, Target
from dragoman.api.values import TopicDescription
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from lockdown.operator import Operator

_USER = "fleet"
_PASSWORD = "comes back at once"
_LISTENER = "kafka-tls"


class Storm:
    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._fleet: subprocess.Popen[str] | None = None

    def prepare(self, target: Target) -> None:
        """A login is required from now on, and all clients are there."""
        root = target.cluster.root
        password = root / "password.txt"
        password.write_text(_PASSWORD)
        password.chmod(0o600)
        operator = Operator(target.cluster.data(1))
        operator.types("user", "create", _USER, "--new-password", f"file:{password}")
        operator.sets(f"listener.{_LISTENER}.authentication=required")
        self._fleet = target.keep(self._start(root, password, target))
        self._next_line()

    def strike(self, target: Target) -> str:
        assert self._fleet is not None
        assert self._fleet.stdin is not None
        before, events = _epochs(target), _metadata(target).high_watermark
        self._fleet.stdin.write("\n")
        self._fleet.stdin.flush()
        found = json.loads(self._next_line())
        after, events = _epochs(target), _metadata(target).high_watermark - events
        return (
            f"{found['clients']} clients, half back after {found['half_s']:.1f} s, all after "
            f"{found['all_s']:.1f} s in {found['attempts']} attempts, {found['cpu_s']:.1f} s of "
            f"their own CPU; leader epochs {before} before, {after} after, {events} metadata events"
        )

    def _start(self, root: Path, password: Path, target: Target) -> subprocess.Popen[str]:
        addresses = target.cluster.bootstrap(_LISTENER).split(",")
        words = [str(root / "ca.pem"), _USER, str(password), str(self._clients), *addresses]
        return subprocess.Popen(
            [sys.executable, "-m", "attack.fleet", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _next_line(self) -> str:
        assert self._fleet is not None
        assert self._fleet.stdout is not None
        line = self._fleet.stdout.readline()
        if not line:
            raise RuntimeError("the clients did not come back")
        return line


def _epochs(target: Target) -> list[int]:
    """Each election raises one of these: of the metadata, and of the bystanders' partitions."""
    topic = target.cluster.remote().get(f"/api/v1/topics/{BYSTANDER_TOPIC}", TopicDescription)
    return [_metadata(target).leader_epoch, *(each.leader_epoch for each in topic.partitions)]


def _metadata(target: Target) -> m.DescribeQuorumResponsePartition:
    """Who leads the metadata since when, and how many events it has."""
    partition = m.DescribeQuorumRequestPartition(partition_index=0)
    topic = m.DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
    with Client(target) as client:
        answer = client.ask(m.DescribeQuorumRequest(topics=[topic]), 0)
    if answer is None:
        raise RuntimeError("no answer about the quorum")
    return codec.decode(m.DescribeQuorumResponse, 0, answer, 5).topics[0].partitions[0]


_storm = Storm(2000)
ATTACKS = (("storm: 2,000 reconnect", _storm.strike, (), (3,), True, _storm.prepare),)
