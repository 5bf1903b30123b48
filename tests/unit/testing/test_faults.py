"""Goal: faults that a test asks for are felt by clients as the real ones, and end with it.

Method: brokers and clusters in memory, raw requests with a short time-out, and confluent-kafka.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from dragoman.testing import EphemeralBroker, EphemeralCluster
from dragoman.testing.faults import across


def produce(servers: str, value: str, timeout_ms: int = 60_000) -> str:
    """Produce a record with acks=all; the error, or nothing."""
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "message.timeout.ms": timeout_ms,
            "socket.timeout.ms": min(timeout_ms, 10_000),
        }
    )
    producer.produce(
        "t", value=value, on_delivery=lambda error, _: errors.append(error.name() if error else "")
    )
    producer.flush(60)
    return errors[0]


def others_than(cluster: EphemeralCluster, node: int) -> str:
    return ",".join(
        each.bootstrap_servers for number, each in cluster.nodes.items() if number != node
    )


def test_paused_broker_answers_nothing_until_it_resumes() -> None:
    with EphemeralBroker() as broker:
        broker.topic("t").create()
        broker.pause()
        assert produce(broker.bootstrap_servers, "a", timeout_ms=300) == "_MSG_TIMED_OUT"
        with pytest.raises(RuntimeError, match="paused"):
            broker.topic("t").records()
        broker.resume()
        assert produce(broker.bootstrap_servers, "b") == ""
        assert b"b" in broker.topic("t").values()


def test_paused_broker_can_be_stopped() -> None:
    with EphemeralBroker() as broker:
        broker.pause()
        with pytest.raises(RuntimeError, match="paused already"):
            broker.pause()
    with pytest.raises(RuntimeError, match="not running"):
        broker.pause()


def test_writes_take_as_long_as_the_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with EphemeralBroker() as broker:
        topic = broker.topic("t").create()
        monkeypatch.setattr("dragoman.testing.faults.sleep", waited.append)
        broker.slow_disk(30)
        topic.write("a")
        assert set(waited) == {30}
        waited.clear()
        broker.slow_disk(0)
        topic.write("b").assert_values("a", "b")
        assert not waited


def test_disk_of_a_directory_cannot_be_slow() -> None:
    with pytest.raises(ValueError, match="only a disk in memory"):
        EphemeralBroker(storage="directory").slow_disk(1)


def test_paused_leader_is_replaced() -> None:
    with EphemeralCluster() as cluster:
        cluster.topic("t").create(partitions=1, replicas=3).write("a")
        leader = cluster.leader("t")
        cluster.pause(leader)
        assert cluster.wait_for_leader("t", other_than=leader) != leader
        assert produce(others_than(cluster, leader), "b") == ""
        cluster.resume(leader)
        cluster.topic("t").assert_values("a", "b")


def test_isolated_leader_loses_its_partitions_and_follows_after_the_cut() -> None:
    with EphemeralCluster() as cluster:
        cluster.topic("t").create(partitions=1, replicas=3).write("a")
        leader = cluster.leader("t")
        cluster.isolate(leader)
        assert cluster.wait_for_leader("t", other_than=leader) != leader
        assert produce(others_than(cluster, leader), "b") == ""
        cluster.heal()
        cluster.nodes[leader].topic("t").assert_values("a", "b")


def test_cut_is_between_the_parts_and_not_within() -> None:
    ports = {1: 11, 2: 12, 3: 13}
    assert across([1, 2], ports) == {1: {3: 13}, 2: {3: 13}, 3: {1: 11, 2: 12}}
    assert across([], ports) == {1: {}, 2: {}, 3: {}}
