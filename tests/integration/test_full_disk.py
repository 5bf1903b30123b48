"""Goal: a node whose disk is full reports it, costs the others nothing, and returns with room.

Method: nodes as processes, one of them on a small file system of its own that is filled and emptied
under a stock producer. The same on simulated disks is in `tests/simulation/test_full_disk.py`.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewTopic, TopicPartition
from nodes.cluster import ServedCluster
from nodes.full_disk import SmallDisk, launcher, reason_against
from nodes.process import WAIT_S

pytestmark = pytest.mark.skipif(bool(reason_against()), reason=reason_against())

TOPIC = "t"
VICTIM = 3
# The journal needs room for three files of its own, whatever else there is.
SIZE_MIB = 320


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 3, "--set", "log.segment.bytes=1048576") as cluster:
        cluster.launchers[VICTIM] = launcher(cluster.data(VICTIM), SIZE_MIB)
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            client.create_topic(NewTopic(name=TOPIC, partitions=3, replication_factor=3))
        yield cluster


def readiness(cluster: ServedCluster, node: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{cluster.url(node)}/readyz", timeout=WAIT_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Load:
    """A stock producer that keeps sending, and its outcomes."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = 0
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
            }
        )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors.append(str(error))

    def write(self, count: int) -> None:
        """Returns when all are acknowledged."""
        for number in range(count):
            self._producer.produce(
                TOPIC, bytes(10_000), partition=number % 3, on_delivery=self._delivered
            )
            self._producer.poll(0)
        assert not self._producer.flush(WAIT_S)


def wait_for_readiness(cluster: ServedCluster, load: Load, wanted: tuple[int, str]) -> None:
    """A node learns that its disk is full by writing; a little at a time, for what is written
    meanwhile must find room on it later.
    """
    deadline = time.monotonic() + WAIT_S
    for turn in count():
        if (found := readiness(cluster, VICTIM)) == wanted:
            return
        assert time.monotonic() < deadline, (found, cluster.nodes[VICTIM].log[-5:])
        if turn % 20 == 0:
            load.write(30)


def test_a_node_with_a_full_disk_is_not_ready_until_there_is_room(three: ServedCluster) -> None:
    load = Load(three.bootstrap())
    load.write(30)
    assert readiness(three, VICTIM) == (200, "ready\n")
    disk = SmallDisk(three.nodes[VICTIM], three.data(VICTIM))
    disk.fill()
    wait_for_readiness(three, load, (503, "not ready: the disk is full\n"))
    three.wait(lambda status: status.under_replicated > 0)
    # It stays away while there is no room, and the other nodes continue.
    for _ in range(10):
        load.write(100)
        assert readiness(three, VICTIM)[0] == 503
    assert not three.status(VICTIM).ready
    disk.empty()
    wait_for_readiness(three, load, (200, "ready\n"))
    three.wait_in_sync(VICTIM)
    assert load.errors == []
    with BlockingKafkaClient(three.bootstrap()) as client:
        wanted = {TopicPartition(TOPIC, n): LATEST for n in range(3)}
        ends = [each.offset for each in client.list_offsets(wanted).values()]
    assert sum(ends) == load.acknowledged
