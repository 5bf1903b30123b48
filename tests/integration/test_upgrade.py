"""Goal: a cluster is upgraded node by node while clients write, and tells what it uses meanwhile.

Method: nodes as processes; a newer release is this one with one feature level more
(`tests/nodes/newer_release.py`). A stock producer writes all the time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.checker import judge, read_all
from chaos.clients import KAFKA_TOPIC, PARTITIONS, KafkaWriter
from dragoman.api.values import ClusterStatus, Moves, NewMoves, NewNode, Told
from dragoman.cli.status import CommandError
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from dragoman.log.node import FEATURE_LEVEL
from nodes.cluster import ServedCluster
from nodes.process import WAIT_S

OLD, NEW = FEATURE_LEVEL, FEATURE_LEVEL + 1
NEWER = "nodes.newer_release"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        yield cluster


def levels(status: ClusterStatus) -> tuple[int, list[int | None]]:
    return status.feature_level, [each.feature_level for each in status.nodes]


def write_what_is_new(cluster: ServedCluster) -> None:
    """Ask node 1 for something that the newer release has an event for and the older has not."""
    cluster.remote(1).post("/api/v1/cluster/moves", NewMoves(throttle=1_000_000), Moves)


def upgrade(cluster: ServedCluster, node: int) -> None:
    assert cluster.nodes[node].stop() == 0
    cluster.modules[node] = NEWER
    cluster.start(node)
    cluster.wait_in_sync(node)


def grown(writer: KafkaWriter, count: int) -> None:
    """Until so many more are acknowledged."""
    wanted = len(writer.acknowledged) + count
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if len(writer.acknowledged) >= wanted:
            return
        pause.wait(0.02)
    pytest.fail(f"{writer.name} is not answered")


def test_nodes_are_upgraded_one_by_one_under_a_producer(three: ServedCluster) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        new = NewTopic(name=KAFKA_TOPIC, partitions=PARTITIONS, replication_factor=3)
        client.create_topic(new)
    writer = KafkaWriter("w", three.bootstrap(), 0)
    writer.start()
    grown(writer, 20)
    upgrade(three, 1)
    upgrade(three, 2)
    assert levels(three.status(1)) == (OLD, [NEW, NEW, OLD])
    with pytest.raises(CommandError, match=f"the cluster uses {OLD}: upgrade node 3 first"):
        write_what_is_new(three)
    grown(writer, 20)
    # A node can go back as long as the others have not all been upgraded.
    three.nodes[2].stop()
    del three.modules[2]
    three.start(2)
    three.wait_in_sync(2)
    assert levels(three.status(3)) == (OLD, [NEW, OLD, OLD])
    upgrade(three, 2)
    upgrade(three, 3)
    for node in (1, 2, 3):
        three.wait(lambda status: levels(status) == (NEW, [NEW, NEW, NEW]), node)
    write_what_is_new(three)
    grown(writer, 20)
    writer.stop()
    writer.join()
    log = read_all(three.bootstrap(), {KAFKA_TOPIC: PARTITIONS})
    assert judge(log, [writer], []) == []
    # Now there is no way back.
    three.nodes[2].stop()
    del three.modules[2]
    older = three.begin(2)
    assert older.finish() == 2
    assert f"uses feature level {NEW}, this release knows {OLD}" in older.log[-1]


def test_an_older_node_cannot_be_added_to_a_newer_cluster(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 1) as cluster:
        cluster.modules[1] = NEWER
        cluster.start(1)
        cluster.wait(lambda status: status.feature_level == NEW)
        older = cluster.begin(2, cluster=[*cluster.founders, cluster.name(2)])
        wanted = NewNode(node_id=2, address=cluster.address(2, "peer"))
        cluster.remote().post("/api/v1/cluster/nodes", wanted, Told)
        assert older.finish() == 1
        assert any(
            f"the cluster uses feature level {NEW}, this release knows {OLD}" in line
            for line in older.log
        )
