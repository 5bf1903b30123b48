"""Goal: assertions about topics and groups hold for what clients did, wait for what is to come, and
say what was there instead.

Method: records are written by the kit and by confluent-kafka; assertions that must fail get little
time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dragoman.broker.errors import InvalidReplicationFactor, TopicExists
from dragoman.testing import EphemeralBroker

SOON = 0.1


@pytest.fixture(scope="module")
def shared() -> Iterator[EphemeralBroker]:
    with EphemeralBroker() as broker:
        yield broker


def commit(broker: EphemeralBroker, group: str, *positions: tuple[str, int, int]) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(*each) for each in positions], asynchronous=False)
    consumer.close()


def test_written_records_are_those_that_are_read(shared: EphemeralBroker) -> None:
    topic = shared.topic("written").create(partitions=2, config={"retention.ms": "-1"})
    topic.write("a", b"b", key="k", partition=1, headers={"h": "x"}).write(None)
    records = topic.records()
    assert [(each.partition, each.offset, each.key, each.value) for each in records] == [
        (0, 0, None, None),
        (1, 0, b"k", b"a"),
        (1, 1, b"k", b"b"),
    ]
    assert records[1].headers == (("h", b"x"),)
    assert records[1].timestamp_ms > 0
    assert topic.values() == [None, b"a", b"b"]


def test_keys_choose_the_partitions_of_kafkas_clients(shared: EphemeralBroker) -> None:
    topic = shared.topic("keyed").create(partitions=5)
    settings = {"bootstrap.servers": shared.bootstrap_servers, "partitioner": "murmur2"}
    producer = Producer(settings)
    for key in ("alice", "bob", "carol"):
        producer.produce("keyed", key=key, value="of the client")
        topic.write("of the kit", key=key)
    assert producer.flush(30) == 0
    places = {(each.key, each.partition) for each in topic.records()}
    assert len(places) == 3


def test_topic_that_exists_is_not_created_again(shared: EphemeralBroker) -> None:
    shared.topic("once").create()
    with pytest.raises(TopicExists):
        shared.topic("once").create()


def test_too_few_nodes_for_a_topic_is_an_error_in_the_end(
    shared: EphemeralBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.testing.assertions.WAIT_SECONDS", SOON)
    with pytest.raises(InvalidReplicationFactor):
        shared.topic("replicated").create(replicas=3)


def test_assertion_holds_for_records_of_a_client_that_come_later(shared: EphemeralBroker) -> None:
    producer = Producer({"bootstrap.servers": shared.bootstrap_servers})
    waiting = threading.Thread(target=lambda: shared.topic("later").assert_values("1", "2"))
    waiting.start()
    for value in ("1", "2"):
        producer.produce("later", value=value)
        assert producer.flush(30) == 0
    waiting.join()
    assert len(shared.topic("later").wait_for(2)) == 2


def test_aborted_records_do_not_count(shared: EphemeralBroker) -> None:
    settings = {"bootstrap.servers": shared.bootstrap_servers, "transactional.id": "t"}
    producer = Producer(settings)
    producer.init_transactions(30)
    for value, end in (("lost", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transactions", value=value)
        producer.flush(30)
        end(30)
    shared.topic("transactions").assert_values("kept")


def test_other_values_are_named(shared: EphemeralBroker) -> None:
    topic = shared.topic("others").create().write("a", "x", key="k")
    with pytest.raises(AssertionError) as failure:
        topic.assert_values("a", "b", "c", timeout_s=SOON)
    assert str(failure.value).splitlines() == [
        "topic 'others' has other values than expected",
        "  expected 3: 'a', 'b', 'c'",
        "  found 2:",
        "    partition 0, offset 0: key 'k', 'a'",
        "    partition 0, offset 1: key 'k', 'x'",
        "  missing: 'b', 'c'",
        "  unexpected: 'x'",
    ]


def test_order_counts_within_a_partition_only(shared: EphemeralBroker) -> None:
    one = shared.topic("ordered").create().write("a", "b")
    with pytest.raises(AssertionError, match="the order differs"):
        one.assert_values("b", "a")
    two = shared.topic("unordered").create(partitions=2)
    two.write("a", partition=0).write("b", partition=1)
    two.assert_values("b", "a")
    with pytest.raises(AssertionError, match="unexpected: 'b'"):
        two.assert_values("a", "a")


def test_too_few_records_are_shown(shared: EphemeralBroker) -> None:
    with pytest.raises(
        AssertionError, match=r"too few records after 0.1 s\n.*at least 1\n.*found 0"
    ):
        shared.topic("nowhere").wait_for(1, timeout_s=SOON)
    many = shared.topic("many").create().write(*map(str, range(30)), b"\xff")
    with pytest.raises(AssertionError, match="… and 11 more"):
        many.wait_for(32, timeout_s=SOON)


def test_offsets_and_lag_are_those_that_a_client_committed(shared: EphemeralBroker) -> None:
    shared.topic("read").create(partitions=2).write("a", "b", "c").write("d", partition=1)
    group = shared.group("readers")
    assert (group.offsets("read"), group.lag("read")) == ({}, 4)
    commit(shared, "readers", ("read", 0, 2))
    group.assert_offsets("read", {0: 2})
    assert group.lag("read") == 2
    commit(shared, "readers", ("read", 0, 3), ("read", 1, 1))
    group.assert_caught_up("read")


def test_group_that_is_behind_is_described(shared: EphemeralBroker) -> None:
    shared.topic("slow").create(partitions=2).write("a", "b")
    commit(shared, "slow-readers", ("slow", 0, 1))
    group = shared.group("slow-readers")
    with pytest.raises(AssertionError, match=r"behind in 'slow' .*\n.*: partition 0: 1$"):
        group.assert_caught_up("slow", timeout_s=SOON)
    with pytest.raises(AssertionError, match=r"expected \{0: 2\}\n  found    \{0: 1\}"):
        group.assert_offsets("slow", {0: 2}, timeout_s=SOON)


def test_broker_with_users_lets_the_test_in() -> None:
    with EphemeralBroker(users={"alice": "secret"}) as broker:
        broker.topic("t").create().write("a").assert_values("a")
        assert broker.group("g").lag("t") == 1


def test_stopped_broker_is_no_witness() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        EphemeralBroker().topic("t").records()
