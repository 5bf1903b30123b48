"""Goal: nodes whose metadata is in etcd are a cluster like any other, and outlive etcd's troubles.

Method: nodes as processes over the etcd of the test wheel; stock clients write and read while
nodes and etcd are killed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from dragoman.api import values
from dragoman.api.values import NewNode, Told, TopicDescription, Transfer
from dragoman.cli.status import CommandError
from dragoman.client.kafka import BlockingKafkaClient, NewTopic
from nodes.cluster import ServedCluster
from nodes.etcd import RealEtcd
from nodes.ports import free_ports
from nodes.process import WAIT_S

TOPIC = "t"
NODES = (1, 2, 3)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[RealEtcd]:
    """One that may be killed."""
    directory = tmp_path / "etcd"
    directory.mkdir()
    etcd = RealEtcd(directory)
    yield etcd
    etcd.stop()


@pytest.fixture
def three(tmp_path: Path, own_etcd: RealEtcd) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 3, etcd_port=own_etcd.port) as cluster:
        cluster.start(*NODES)
        yield cluster


class Writer(threading.Thread):
    """Writes numbers to one partition with `acks=all`, each until it is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.acknowledged: list[int] = []
        self.refused: list[KafkaError] = []
        self._progress = threading.Condition()
        self._is_over = False
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )

    def run(self) -> None:
        number = 0
        while not self._is_over:
            self._producer.produce(TOPIC, str(number), partition=0, on_delivery=self._told)
            self._producer.flush(WAIT_S)
            number += 1

    def _told(self, error: KafkaError | None, message: Message) -> None:
        with self._progress:
            if error is not None:
                self.refused.append(error)
            else:
                value = message.value()
                assert value is not None
                self.acknowledged.append(int(value))
            self._progress.notify_all()

    def wait_for_more(self, count: int = 20) -> None:
        """Until so many more are acknowledged: it makes progress."""
        with self._progress:
            wanted = len(self.acknowledged) + count
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= wanted, WAIT_S)

    def finish(self) -> list[int]:
        self._is_over = True
        self.join(WAIT_S)
        assert not self.refused
        return self.acknowledged


@pytest.fixture
def writer(three: ServedCluster) -> Iterator[Writer]:
    create(three, TOPIC)
    started = Writer(three.bootstrap())
    started.start()
    started.wait_for_more()
    yield started
    started._is_over = True
    started.join(WAIT_S)


def create(cluster: ServedCluster, name: str) -> None:
    with BlockingKafkaClient(cluster.bootstrap()) as client:
        client.create_topic(NewTopic(name=name, partitions=1, replication_factor=3))


def leader(cluster: ServedCluster, node: int) -> int:
    topic = cluster.remote(node).get(f"/api/v1/topics/{TOPIC}", TopicDescription)
    found = topic.partitions[0].leader
    assert found is not None
    return found


def controller(cluster: ServedCluster, node: int) -> int:
    found = cluster.wait(lambda status: status.controller is not None, node).controller
    assert found is not None
    return found


def reader(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        value = message.value()
        assert value is not None
        found.append(int(value))
    consumer.commit(asynchronous=False)
    return found


def test_stock_clients_go_on_when_leaders_are_killed(three: ServedCluster, writer: Writer) -> None:
    consumer = reader(three.bootstrap())
    seen = read(consumer, 10)
    consumer.close()
    for choose in (leader, controller, leader):
        victim = choose(three, 1)
        three.nodes[victim].kill()
        writer.wait_for_more()
        three.start(victim)
        three.wait_in_sync(victim)
    acknowledged = writer.finish()
    consumer = reader(three.bootstrap())
    seen += read(consumer, len(acknowledged) - len(seen))
    consumer.close()
    assert seen == acknowledged


# ---- etcd's troubles


def test_writes_go_on_while_etcd_is_away_and_topics_are_made_again_after(
    three: ServedCluster, own_etcd: RealEtcd, writer: Writer
) -> None:
    own_etcd.kill()
    own_etcd.start()
    writer.wait_for_more()
    own_etcd.kill()
    wanted = values.NewTopic(name="meanwhile")
    with pytest.raises(CommandError, match="unknown"):
        three.remote().post("/api/v1/topics", wanted, values.TopicDescription)
    writer.wait_for_more()
    own_etcd.start()
    three.wait_in_sync()
    create(three, "after")
    writer.wait_for_more()
    three.nodes[leader(three, 1)].kill()
    writer.wait_for_more()
    acknowledged = writer.finish()
    consumer = reader(three.bootstrap())
    assert read(consumer, len(acknowledged)) == acknowledged
    consumer.close()


def test_etcd_that_has_lost_its_data_stops_the_nodes_and_is_refused(
    three: ServedCluster, own_etcd: RealEtcd
) -> None:
    own_etcd.kill()
    shutil.rmtree(own_etcd.directory / "data")
    own_etcd.start()
    for node in NODES:
        assert three.nodes[node].finish() == 1
        assert any("etcd has lost metadata" in line for line in three.nodes[node].log)
    again = three.begin(1)
    assert again.finish() == 2
    assert "and the metadata in etcd is none; look at metadata.etcd.endpoints" in again.log[-1]


# ---- one node, and starts that fail


def test_a_single_node_outlives_its_own_death_and_that_of_etcd(
    tmp_path: Path, own_etcd: RealEtcd
) -> None:
    with ServedCluster(tmp_path, 1, etcd_port=own_etcd.port) as cluster:
        cluster.start(1)
        writer = Writer(cluster.bootstrap())
        writer.start()
        writer.wait_for_more()
        cluster.nodes[1].kill()
        own_etcd.kill()
        waiting = cluster.begin(1)
        cluster.wait_for_log(1, "Connection refused")
        own_etcd.start()
        waiting.ready()
        writer.wait_for_more()
        assert cluster.nodes[1].stop() == 0
        cluster.start(1)
        writer.wait_for_more()
        acknowledged = writer.finish()
        consumer = reader(cluster.bootstrap())
        assert read(consumer, len(acknowledged)) == acknowledged
        consumer.close()


def test_a_node_that_waits_for_etcd_can_be_stopped(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 1, etcd_port=next(free_ports())) as cluster:
        node = cluster.begin(1)
        cluster.wait_for_log(1, "Connection refused")
        assert node.stop() == 0


def test_an_etcd_that_may_lose_metadata_is_refused(tmp_path: Path, etcd: RealEtcd) -> None:
    given = ("--set", "metadata.etcd.allow.bad.version=false")
    with ServedCluster(tmp_path, 1, etcd_port=etcd.port) as cluster:
        node = cluster.begin(1, *given)
        assert node.finish() == 2
        assert "etcd 3.5.1 may lose metadata" in node.log[-1]


# ---- what operators do


def test_nodes_join_by_being_started_and_leave_by_being_removed(three: ServedCluster) -> None:
    three.start(4)
    found = three.wait(lambda status: len(status.nodes) == 4)
    assert {each.role for each in found.nodes} == {"etcd"}
    remote = three.remote(2)
    wanted = NewNode(node_id=5, address="127.0.0.1:1")
    with pytest.raises(CommandError, match="nodes join by themselves"):
        remote.post("/api/v1/cluster/nodes", wanted, Told)
    with pytest.raises(CommandError, match="which decides who leads it"):
        remote.post("/api/v1/cluster/transfers", Transfer(metadata_to=1), Told)
    with pytest.raises(CommandError, match="stop it first"):
        remote.remove("/api/v1/cluster/nodes/4", Told)
    assert three.nodes[4].stop() == 0
    three.wait(lambda status: not status.nodes[3].alive, node=2)
    remote.remove("/api/v1/cluster/nodes/4", Told)
    three.wait(lambda status: [each.node_id for each in status.nodes] == [1, 2, 3])


def test_a_node_with_a_new_disk_gets_its_copies_back(three: ServedCluster, writer: Writer) -> None:
    victim = leader(three, 1)
    three.nodes[victim].kill()
    three.wipe(victim)
    three.start(victim)
    three.wait_in_sync(victim)
    acknowledged = writer.finish()
    gone, other = (node for node in NODES if node != victim)
    assert three.nodes[gone].stop() == 0

    def has_taken_over(status: values.ClusterStatus) -> bool:
        """A controller that has just begun knows no live node and moves nothing: ask again."""
        if status.controller not in (victim, other):
            return False
        three.remote(victim).post("/api/v1/cluster/transfers", Transfer(relieve=other), Told)
        return leader(three, victim) == victim

    three.wait(has_taken_over, victim)
    consumer = reader(three.bootstrap())
    assert read(consumer, len(acknowledged)) == acknowledged
    consumer.close()
