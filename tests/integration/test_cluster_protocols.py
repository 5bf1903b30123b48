"""Goal: whichever node clients of any protocol are given, they reach every partition and group.

Method: pairs of protocols against a cluster of three nodes; the first client knows one node, the
second another, partitions and groups are spread over all of them. Then a node is killed under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

import pytest

from dragoman.testing import EphemeralCluster
from kafka_socket import KafkaSocket
from protocol_speakers import GROUP_SPEAKERS, PARTITIONS, SPEAKERS, Member, Place, Record, Speaker

LISTENERS = ("kafka", "minibroker", "cursus", "mlog")
VALUES = [b"%d" % number for number in range(12)]
_numbers = count()


def neighbours(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Each with itself and with the next: which nodes they come to matters more here than whom
    they meet, which `test_protocol_matrix` has for all pairs.
    """
    names = list(kinds)
    return [pair for n, name in enumerate(names) for pair in ((name, name), (names[n - 1], name))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(listeners=LISTENERS) as started:
        yield started


@pytest.fixture
def topic(cluster: EphemeralCluster) -> str:
    name = f"topic-{next(_numbers)}"
    with KafkaSocket(cluster.nodes[1].bootstrap_servers) as client:
        client.create_topic(name, PARTITIONS)
    for node in cluster.nodes.values():
        # Answered when the node knows the topic: others hear of it a moment later.
        with KafkaSocket(node.bootstrap_servers) as client:
            client.metadata(name)
    return name


def speaker_at(cluster: EphemeralCluster, kind: str, first: int) -> Speaker:
    """One that tries a node first; those whose protocol cannot point elsewhere know them all."""
    speaker = GROUP_SPEAKERS[kind]
    order = sorted(cluster.nodes, key=lambda node: (node != first, node))
    return speaker(",".join(cluster.nodes[node].address(speaker.name) for node in order))


@pytest.mark.parametrize(("writer_kind", "reader_kind"), neighbours(SPEAKERS))
def test_what_is_written_by_one_node_is_read_by_another(
    cluster: EphemeralCluster, topic: str, writer_kind: str, reader_kind: str
) -> None:
    with (
        speaker_at(cluster, writer_kind, 1) as writer,
        speaker_at(cluster, reader_kind, 2) as reader,
    ):
        written = [
            writer.write(topic, Record(value, b"k%d" % number), number % PARTITIONS)
            for number, value in enumerate(VALUES)
        ]
        leaders = {cluster.leader(topic, partition) for partition in range(PARTITIONS)}
        assert leaders == {1, 2, 3}
        for partition in range(PARTITIONS):
            there = [each for each in written if each.place.partition == partition]
            assert [each.place.offset for each in there] == list(range(len(there)))
            expected = [(each.place, reader.shown(each.stored)) for each in there]
            assert reader.read(topic, Place(partition, 0), len(there)) == expected


def fill(cluster: EphemeralCluster, topic: str, per_partition: int) -> set[Place]:
    with speaker_at(cluster, "kafka", 3) as writer:
        return {
            writer.write(topic, Record(b"%d" % number), number % PARTITIONS).place
            for number in range(per_partition * PARTITIONS)
        }


def taken(member: Member, number: int) -> list[Place]:
    return [member.take() for _ in range(number)]


@pytest.mark.parametrize(("first_kind", "second_kind"), neighbours(GROUP_SPEAKERS))
def test_a_group_goes_on_at_another_node(
    cluster: EphemeralCluster, topic: str, first_kind: str, second_kind: str
) -> None:
    everything = fill(cluster, topic, 4)
    with (
        speaker_at(cluster, first_kind, 1) as first,
        speaker_at(cluster, second_kind, 2) as second,
    ):
        member = first.join(topic, topic)
        before = taken(member, 7)
        member.commit()
        member.leave()
        member = second.join(topic, topic)
        after = taken(member, len(everything) - len(before))
        member.leave()
        assert sorted(before + after) == sorted(everything), "each once, over both"
