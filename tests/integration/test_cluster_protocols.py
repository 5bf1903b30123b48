"""Goal: whichever node clients of any protocol are given, they reach every partition and group.

Method: pairs of protocols against a cluster of three nodes; the first client knows one node, the
second another, partitions and groups are spread over all of them. Then a node is killed under them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Self

import pytest

from dragoman.client.cursus import CursusClient
from dragoman.client.minibroker import BlockingMinibrokerClient
from dragoman.protocols.cursus.codec import decode_batch
from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralCluster
from protocols.clients import (
    GROUP_SPEAKERS,
    PARTITIONS,
    SPEAKERS,
    WAIT_S,
    Member,
    Place,
    Record,
    Speaker,
)
from protocols.kafka_socket import KafkaSocket

LISTENERS = ("kafka", "minibroker", "cursus", "mlog", "rocketmq", "rocketmq-broker")
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


class CursusSocket:
    """A client that asks and listens, and does nothing else."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._file = self._socket.makefile("rb")

    def ask(self, text: str) -> bytes:
        self._socket.sendall(struct.pack(">I", len(text)) + text.encode())
        (size,) = struct.unpack(">I", self._file.read(4))
        return self._file.read(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


def only_at(cluster: EphemeralCluster, kind: str, node: int) -> Speaker:
    """One that knows a single node and follows redirects only."""
    speaker = GROUP_SPEAKERS[kind]
    return speaker(cluster.nodes[node].address(speaker.name))


def test_a_minibroker_client_of_one_node_reaches_all_partitions_and_groups(
    cluster: EphemeralCluster, topic: str
) -> None:
    """It would wait 250 ms for every `not leader`, and has nowhere to go."""
    with only_at(cluster, "minibroker", 1) as client, only_at(cluster, "minibroker", 2) as other:
        records = [Record(value, b"k%d" % number) for number, value in enumerate(VALUES)]
        written = {client.write(topic, each, 0).place for each in records}
        assert {place.partition for place in written} == set(range(PARTITIONS))
        groups = [f"{topic}-{number}" for number in range(6)]
        for group in groups:
            client.commit(topic, group, Place(0, 1))
            other.commit(topic, group, Place(1, 1))
    with only_at(cluster, "kafka", 3) as reader:
        for group in groups:
            assert [reader.committed(topic, group, part) for part in range(2)] == [1, 1]


def test_cursus_publishes_at_any_node_and_redirects_readers(
    cluster: EphemeralCluster, topic: str
) -> None:
    """Text, and batches of an idempotent producer that goes from node to node, as a client does
    that only knows one address, and another one after that."""
    sent: dict[int, list[bytes]] = {}
    for number in range(18):
        partition, payload = number % PARTITIONS, b"%d" % number
        with CursusSocket(cluster.nodes[1 + number % 3].address("cursus")) as client:
            where = f"topic={topic} partition={partition} producerId=p{partition}"
            for _ in range(2):
                # The second is a repeat.
                counted = f"isIdempotent=true seqNum={number // PARTITIONS + 1} acks=-1"
                told = client.ask(f"PUBLISH {where} {counted} message={number}")
                assert told.startswith(b'{"status":"OK"'), told
            sent.setdefault(partition, []).append(payload)
            plain = client.ask(f"PUBLISH {where} message=plain")
            assert plain.startswith(b'{"status":"OK"'), plain
            sent[partition].append(b"plain")
    for partition, expected in sent.items():
        leader = cluster.leader(topic, partition)
        read = f"CONSUME topic={topic} partition={partition} offset=0 member=m"
        with CursusSocket(cluster.nodes[leader].address("cursus")) as client:
            batch = decode_batch(client.ask(read))
            assert [each.payload for each in batch.messages] == expected
        with CursusSocket(cluster.nodes[leader % 3 + 1].address("cursus")) as client:
            where = cluster.nodes[leader].address("cursus").encode()
            assert client.ask(read) == b"ERROR: NOT_LEADER LEADER_IS " + where


async def test_a_cursus_transaction_spans_partitions_and_a_group_of_all_nodes(
    cluster: EphemeralCluster, topic: str
) -> None:
    everything = await asyncio.to_thread(fill, cluster, topic, 1)
    addresses = cluster.addresses("cursus")
    async with CursusClient(addresses) as client:
        for number in range(3):
            name = f"{topic}-{number}"
            async with client.consumer(topic, name) as consumer:
                taken = [await consumer.take(WAIT_S) for _ in everything]
                assert all(taken)
                async with client.transaction(name) as transaction:
                    for partition in range(PARTITIONS):
                        await transaction.publish(topic, b"t%d" % number, partition=partition)
                    await transaction.send_offsets(consumer)
            ends = await client.offsets(topic)
            assert [each.latest for each in ends] == [1 + 2 * (number + 1)] * PARTITIONS
            everything |= {Place(part, 1 + 2 * number) for part in range(PARTITIONS)}
    with only_at(cluster, "kafka", 2) as reader:
        for number in range(3):
            committed = reader.committed(topic, f"{topic}-{number}", 0)
            assert committed == max(1, 2 * number)


def move(cluster: EphemeralCluster, topic: str, partition: int, node: int) -> None:
    wanted = m.AlterPartitionReassignmentsRequestPartition(partition, [node])
    request = m.AlterPartitionReassignmentsRequest(
        topics=[m.AlterPartitionReassignmentsRequestTopic(topic, [wanted])]
    )
    deadline = time.monotonic() + WAIT_S
    with KafkaSocket(cluster.nodes[node].bootstrap_servers) as client:
        client.ask(request, 0, m.AlterPartitionReassignmentsResponse)
    for each in cluster.nodes.values():
        # Also where it led before: who writes there meanwhile is left in doubt.
        with KafkaSocket(each.bootstrap_servers) as client:
            while (found := held(client.metadata(topic), partition)) != (node, [node]):
                assert time.monotonic() < deadline, found


def held(metadata: m.MetadataResponse, partition: int) -> tuple[int, list[int]]:
    parts = metadata.topics[0].partitions
    (found,) = (each for each in parts if each.partition_index == partition)
    return found.leader_id, found.replica_nodes


def test_a_minibroker_reader_goes_on_while_replicas_are_moved(
    cluster: EphemeralCluster, topic: str
) -> None:
    """At each node, of which one has the replica at first and each of them once."""
    with ExitStack() as stack:
        clients = [
            stack.enter_context(BlockingMinibrokerClient(node.address("minibroker")))
            for node in cluster.nodes.values()
        ]
        readers = [stack.enter_context(each.subscribe(topic, 0, 0)) for each in clients]
        key = next(
            b"%d" % n for n in range(99) if clients[0].publish(topic, b"", b"%d" % n).partition == 0
        )
        found = [[reader.next(WAIT_S)] for reader in readers]
        for node in (1, 2, 3, 1):
            move(cluster, topic, 0, node)
            placed = [each.publish(topic, b"%d" % node, key) for each in clients]
            for reader, records in zip(readers, found, strict=True):
                records += [reader.next(WAIT_S) for _ in placed]
        for records in found:
            offsets = [each.offset for each in records if each is not None]
            assert offsets == list(range(1 + 4 * len(clients)))
