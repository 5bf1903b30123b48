"""Goal: a producer of librdkafka sends the offsets of its transaction after a node was killed.

Method: a cluster in this process. The coordinator of a group is killed between two transactions
whose offsets belong to that group. In between, the producer asks for the metadata.

librdkafka (2.16, its issue 5511) gives up a node that Metadata does not list any more, keeps it as
the coordinator of the group all the same, and waits for it without end: the request never leaves
the client. So a node that is fenced stays listed for a while.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dragoman.protocols.kafka import messages as m
from dragoman.testing import EphemeralCluster
from protocols.kafka_socket import KafkaSocket

PATIENCE_S = 60.0
TOPIC = "t"
GROUP, TRANSACTION = 0, 1


@pytest.fixture
def cluster() -> Iterator[EphemeralCluster]:
    with EphemeralCluster(listeners=("kafka",)) as started:
        admin = AdminClient(config_of(started))
        new = NewTopic(TOPIC, 3, replication_factor=3)
        admin.create_topics([new])[TOPIC].result(PATIENCE_S)
        yield started


def config_of(cluster: EphemeralCluster, **more: object) -> dict[str, object]:
    # Lost connections are part of this test; they need no lines about them.
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **more}


def coordinator(cluster: EphemeralCluster, kind: int, key: str) -> int:
    """The first answer may be that the internal topic is still being created."""
    request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    with KafkaSocket(cluster.nodes[1].bootstrap_servers) as client:
        while True:
            (found,) = client.ask(request, 4, m.FindCoordinatorResponse).coordinators
            if found.error_code == 0:
                return found.node_id


def name_at(cluster: EphemeralCluster, kind: int, node: int) -> str:
    """Of a group or a transaction that a node coordinates."""
    return next(
        f"name-{number}"
        for number in count()
        if coordinator(cluster, kind, f"name-{number}") == node
    )


def wait_until_fenced(cluster: EphemeralCluster, node: int, witness: int) -> None:
    with KafkaSocket(cluster.nodes[witness].bootstrap_servers) as client:
        described = {node}
        while node in described:
            answer = client.ask(m.DescribeClusterRequest(), 1, m.DescribeClusterResponse)
            described = {each.broker_id for each in answer.brokers}


def commit(producer: Producer, consumer: Consumer, offset: int) -> None:
    """One transaction with a record and an offset.

    The offsets are sent in a thread, because librdkafka does not keep to the timeout (its issue
    5456).
    """
    producer.begin_transaction()
    producer.produce(TOPIC, b"%d" % offset)
    sent = threading.Event()

    def send_offsets() -> None:
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata()
        )
        sent.set()

    threading.Thread(target=send_offsets, daemon=True).start()
    assert sent.wait(PATIENCE_S), "send_offsets_to_transaction hangs"
    producer.commit_transaction(PATIENCE_S)


@pytest.mark.parametrize("ends", ["kill", "stop"])
def test_offsets_are_sent_after_the_coordinator_of_their_group_is_gone(
    cluster: EphemeralCluster, ends: str
) -> None:
    victim = next(node for node in (2, 3) if node != cluster.controller())
    group = name_at(cluster, GROUP, victim)
    consumer = Consumer(config_of(cluster, **{"group.id": group}))
    name = name_at(cluster, TRANSACTION, 1)
    producer = Producer(config_of(cluster, **{"transactional.id": name}))
    producer.init_transactions(PATIENCE_S)
    commit(producer, consumer, 1)
    getattr(cluster, ends)(victim)
    wait_until_fenced(cluster, victim, 1)
    # Several answers: the client gives a node up a moment after it has gone from one of them.
    for _ in range(5):
        producer.list_topics(timeout=PATIENCE_S)
    commit(producer, consumer, 2)
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)
    assert found.offset == 2
    consumer.close()
