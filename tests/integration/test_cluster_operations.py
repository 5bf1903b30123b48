"""Goal: nodes join, leave and come back while the cluster serves, and nothing written is lost.

Method: nodes as processes; operators' requests through the HTTP API, records through Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.api.values import (
    ClusterStatus,
    Election,
    Moves,
    NewMoves,
    NewNode,
    Told,
    TopicDescription,
    Transfer,
)
from dragoman.cli import cluster as cli
from dragoman.cli.status import CommandError
from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from dragoman.protocols.mlog.handlers import metadata_events as mlog
from dragoman.protocols.mlog.handlers.metadata_events import decode_event
from nodes.cluster import ServedCluster
from nodes.process import WAIT_S

TOPIC = "t"
OFFSETS = "__consumer_offsets"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path, 3) as cluster:
        cluster.start(1, 2, 3)
        yield cluster


def write(bootstrap: str, first: int, count: int) -> None:
    with BlockingKafkaClient(bootstrap) as client:
        records = [NewRecord(value=b"%d" % (first + n), partition=0) for n in range(count)]
        client.produce_records(TOPIC, records)


def read(bootstrap: str) -> list[bytes | None]:
    with BlockingKafkaClient(bootstrap) as client:
        where = TopicPartition(TOPIC, 0)
        end = client.list_offsets({where: LATEST})[where].offset
        found: list[bytes | None] = []
        with client.reader({where: 0}) as reader:
            while len(found) < end:
                found += [each.value for each in reader.next_records()]
        return found


def values(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def roles(status: ClusterStatus) -> dict[int, str]:
    return {each.node_id: each.role for each in status.nodes}


def add(cluster: ServedCluster, node: int) -> Told:
    wanted = NewNode(node_id=node, address=cluster.address(node, "peer"))
    return cluster.remote().post("/api/v1/cluster/nodes", wanted, Told)


def remove(cluster: ServedCluster, node: int) -> str:
    """Ask again while the node that is to go hands the lead of the metadata over."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return cluster.remote().remove(f"/api/v1/cluster/nodes/{node}", Told).detail
        except CommandError as error:
            if "hands that over" not in str(error) or time.monotonic() > deadline:
                raise


def move(cluster: ServedCluster, wanted: NewMoves) -> None:
    cluster.remote().post("/api/v1/cluster/moves", wanted, Moves)
    cluster.wait(lambda status: not status.moving)


def test_a_node_waits_until_it_is_added_takes_replicas_and_leaves(three: ServedCluster) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
    write(three.bootstrap(), 0, 100)
    fourth = three.begin(4, cluster=[*three.founders, three.name(4)])
    add(three, 4)
    fourth.ready()
    three.wait(lambda status: roles(status).get(4) == "voter")
    move(three, NewMoves(topic=TOPIC, partition=0, nodes=(4, 2, 3)))
    write(three.bootstrap(), 100, 100)
    assert read(three.bootstrap()) == values(200)
    with pytest.raises(CommandError, match=r"node 4 holds 1 replica \(t-0\): move that away"):
        remove(three, 4)
    move(three, NewMoves(drain=4))
    remove(three, 4)
    three.wait(lambda status: 4 not in roles(status))
    assert read(three.bootstrap()) == values(200)


def test_a_wiped_disk_is_refused_until_the_node_is_added_again(three: ServedCluster) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
    write(three.bootstrap(), 0, 100)
    three.nodes[3].kill()
    three.wipe(3)
    third = three.begin(3)
    write(three.bootstrap(), 100, 100)
    three.wait_for_log(3, "dragoman cluster remove 3")
    assert "out of the quorum" in remove(three, 3)
    add(three, 3)
    third.ready()
    three.wait_in_sync()
    assert read(three.bootstrap()) == values(200)


def test_a_dead_node_is_given_up_with_one_command(
    three: ServedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
        client.create_topic(NewTopic(name="u", partitions=1, replication_factor=2))
    three.wait(lambda status: status.topics == 2)
    move(three, NewMoves(topic="u", partition=0, nodes=(3, 1)))
    write(three.bootstrap(), 0, 100)
    three.nodes[3].kill()
    three.wait(lambda status: not status.nodes[2].alive)
    cli.remove(3, server=three.url(1))
    three.wait(lambda status: set(roles(status)) == {1, 2} and not status.under_replicated)
    for topic in (TOPIC, "u"):
        assert set(map(frozenset, replicas(three, topic))) == {frozenset((1, 2))}
    capsys.readouterr()
    cli.mlog_events(server=three.url(1))
    events = [decode_event(each.encode()) for each in capsys.readouterr().out.splitlines()]
    nodes = [each.node_id for each in events if isinstance(each, mlog.NodeAdded)]
    made = {each.topic: each.replicas for each in events if isinstance(each, mlog.TopicCreated)}
    assert nodes == ["node-1", "node-2"]
    assert made.keys() == {TOPIC, "u"}
    write(three.bootstrap(), 100, 100)
    assert read(three.bootstrap()) == values(200)


def replicas(cluster: ServedCluster, topic: str) -> set[tuple[int, ...]]:
    found = cluster.remote().get(f"/api/v1/topics/{topic}", TopicDescription)
    return {tuple(each.replicas) for each in found.partitions}


def copies(cluster: ServedCluster, topic: str) -> set[int]:
    return set(map(len, replicas(cluster, topic)))


def test_a_single_node_becomes_three_and_one_again(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 3) as cluster:
        kafka = cluster.address(1, "kafka")
        cluster.start(1, cluster=[])
        with BlockingKafkaClient(kafka) as client:
            client.create_topic(NewTopic(name=TOPIC, partitions=1))
            client.commit_offsets("g", {TopicPartition(TOPIC, 0): 7})
        write(kafka, 0, 100)
        assert cluster.nodes[1].stop() == 0

        cluster.start(1, cluster=cluster.founders[:1])
        for node in (2, 3):
            cluster.begin(node)
            add(cluster, node)
            cluster.nodes[node].ready()
            cluster.wait(lambda status, node=node: roles(status).get(node) == "voter")  # type: ignore[misc]
        status = cluster.wait(lambda status: not status.moving)
        assert copies(cluster, OFFSETS) == {3}, "the broker's own topics by themselves"
        assert [(each.topic, each.copies) for each in status.few_copies] == [(TOPIC, 1)]
        move(cluster, NewMoves(nodes=(1, 2, 3), factor=3))
        assert not cluster.status().few_copies
        write(cluster.bootstrap(), 100, 100)
        cluster.nodes[1].kill()
        assert read(cluster.bootstrap()) == values(200)

        cluster.start(1)
        cluster.wait_in_sync()
        move(cluster, NewMoves(nodes=(1,), factor=1))
        assert copies(cluster, OFFSETS) == {1}
        cluster.remote().post("/api/v1/cluster/transfers", Transfer(metadata_to=1), Told)
        cluster.wait(lambda status: status.controller == 1)
        for node in (2, 3):
            remove(cluster, node)
        for node in (1, 2, 3):
            cluster.nodes[node].stop()
        cluster.start(1, cluster=[])
        write(kafka, 200, 100)
        assert read(kafka) == values(300)
        assert roles(cluster.status()) == {1: "voter"}


def test_a_throttled_move_waits_and_goes_on_when_it_may(three: ServedCluster) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=1))
    for start in range(0, 300, 100):
        write(three.bootstrap(), start, 100)
    first = next(each.node_id for each in three.status().nodes if each.leads)
    others = [each for each in (1, 2, 3) if each != first]
    wanted = NewMoves(topic=TOPIC, partition=0, nodes=(first, *others), throttle=1)
    three.remote().post("/api/v1/cluster/moves", wanted, Moves)
    # One batch goes, and the next would be due in hours.
    write(three.bootstrap(), 300, 100)
    assert three.status().moving == 1
    three.remote().post("/api/v1/cluster/moves", NewMoves(throttle=0), Moves)
    three.wait_in_sync()
    assert read(three.bootstrap()) == values(400)


def test_an_unclean_election_is_asked_for_and_stays_visible(three: ServedCluster) -> None:
    with BlockingKafkaClient(three.bootstrap()) as client:
        client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
    write(three.bootstrap(), 0, 100)
    move(three, NewMoves(topic=TOPIC, partition=0, nodes=(3, 2)))
    three.remote().post("/api/v1/cluster/elections", Election(topic=TOPIC), Told)
    three.nodes[2].stop()
    write(three.bootstrap(), 100, 50)
    three.nodes[3].kill()
    three.start(2)
    unclean = Election(topic=TOPIC, partition=0, unclean_node=2)
    three.wait(lambda status: status.leaderless == 1)
    told = three.remote().post("/api/v1/cluster/elections", unclean, Told)
    assert "what it lacked is lost" in told.detail
    assert read(three.bootstrap()) == values(100)
    three.start(3)
    status = three.wait_in_sync(3)
    assert [each.unclean_epoch is not None for each in status.attention] == [True]
    assert read(three.bootstrap()) == values(100)
