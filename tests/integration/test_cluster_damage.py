"""Goal: damage on the disk of one node costs the cluster nothing that was acknowledged.

Method: nodes as processes; bytes of a node's files are changed while it is down. Whatever role the
node has when the damage is found, clients read everything, and the node gets it back from others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.api.values import Election, Moves, NewMoves, NewNode, Told, TopicDescription
from dragoman.client.kafka import LATEST, BlockingKafkaClient, NewRecord, NewTopic, TopicPartition
from nodes.cluster import ServedCluster

TOPIC = "t"
COUNT = 2000
VALUES = [b"%06d" % n * 20 for n in range(COUNT)]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ServedCluster]:
    # Small segments: most are closed, and only some are damaged.
    with ServedCluster(tmp_path, 3, "--set", "log.segment.bytes=65536") as cluster:
        cluster.start(1, 2, 3)
        with BlockingKafkaClient(cluster.bootstrap()) as client:
            client.create_topic(NewTopic(name=TOPIC, partitions=1, replication_factor=3))
            for start in range(0, COUNT, 100):
                records = [NewRecord(value=each, partition=0) for each in VALUES[start:][:100]]
                client.produce_records(TOPIC, records)
        cluster.wait_in_sync()
        yield cluster


def lead(cluster: ServedCluster, node: int) -> None:
    """Make a node the leader: the first of the replicas, and then the preferred one."""
    others = [each for each in (1, 2, 3) if each != node]
    remote = cluster.remote()
    wanted = NewMoves(topic=TOPIC, partition=0, nodes=(node, *others))
    remote.post("/api/v1/cluster/moves", wanted, Moves)
    cluster.wait_in_sync()
    remote.post("/api/v1/cluster/elections", Election(topic=TOPIC), Told)
    found = remote.get(f"/api/v1/topics/{TOPIC}", TopicDescription)
    assert found.partitions[0].leader == node


def read(cluster: ServedCluster) -> list[bytes | None]:
    with BlockingKafkaClient(cluster.bootstrap()) as client:
        where = TopicPartition(TOPIC, 0)
        end = client.list_offsets({where: LATEST})[where].offset
        found: list[bytes | None] = []
        with client.reader({where: 0}) as reader:
            while len(found) < end:
                found += [each.value for each in reader.next_records()]
        return found


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def first_segment(cluster: ServedCluster, node: int) -> Path:
    segments = (cluster.data(node) / "partitions").glob(f"*-{TOPIC}-0/*.log")
    return min(segments)


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_a_damaged_segment_is_copied_again(three: ServedCluster, leads: bool) -> None:
    victim = 3
    three.nodes[victim].stop()
    segment = first_segment(three, victim)
    flip(segment, segment.stat().st_size // 2)
    three.start(victim)
    three.wait_in_sync(victim)
    if leads:
        lead(three, victim)
    assert read(three) == VALUES
    three.wait_in_sync(victim)
    assert read(three) == VALUES


def journal(cluster: ServedCluster, node: int) -> tuple[Path, int]:
    """The journal file that has been written, and how far."""
    files = sorted((cluster.data(node) / "journal").iterdir())
    sizes = {each: len(each.read_bytes().rstrip(b"\0")) for each in files}
    return max(sizes.items(), key=lambda each: each[1])


def test_damage_in_the_journal_costs_nothing(three: ServedCluster) -> None:
    victim = 3
    three.nodes[victim].kill()
    path, size = journal(three, victim)
    flip(path, size * 2 // 3)
    three.start(victim)
    three.wait_in_sync(victim)
    lead(three, victim)
    assert read(three) == VALUES


def test_damage_in_the_metadata_is_cured_with_an_empty_directory(three: ServedCluster) -> None:
    """What a node has voted for cannot be copied from others: it has to come in anew."""
    victim = 3
    three.nodes[victim].kill()
    path, _ = journal(three, victim)
    flip(path, 4096 + 100)
    node = three.begin(victim)
    assert node.finish() == 2
    assert "dragoman cluster remove 3" in node.log[-1]
    assert read(three) == VALUES
    three.wait(lambda status: not status.nodes[victim - 1].alive)
    three.remote().remove(f"/api/v1/cluster/nodes/{victim}", Told)
    three.wipe(victim)
    wanted = NewNode(node_id=victim, address=three.address(victim, "peer"))
    three.remote().post("/api/v1/cluster/nodes", wanted, Told)
    three.start(victim)
    three.wait_in_sync(victim)
    lead(three, victim)
    assert read(three) == VALUES
