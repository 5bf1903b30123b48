"""Goal: faults that a test asks for are felt by clients as the real ones, and end with it.

Method: brokers and clusters in memory, raw requests with a short time-out, and confluent-kafka.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from dragoman.errors import DiskFullError
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


def test_full_disk_refuses_writes_and_serves_reads_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dragoman.log.store.CHECKPOINT_INTERVAL_S", 0.05)
    with EphemeralBroker() as broker:
        topic = broker.topic("t").create().write("a")
        broker.fill_disk()
        with pytest.raises(DiskFullError):
            topic.write("refused")
        topic.assert_values("a")
        broker.free_disk()
        # The producer tries again until there is room.
        assert produce(broker.bootstrap_servers, "b") == ""
        topic.assert_values("a", "b")


def test_disk_of_a_directory_has_no_faults(tmp_path: Path) -> None:
    with EphemeralBroker(storage="directory", directory=str(tmp_path)) as broker:
        with pytest.raises(ValueError, match="only a disk in memory"):
            broker.slow_disk(1)
        with pytest.raises(ValueError, match="in memory can be full"):
            broker.fill_disk()


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
