"""Goal: today's clients use consumer groups (KIP-848) against this broker: sharing, rebalances,
static members, patterns, restarts of the broker, and the way from the classic protocol. Method:
confluent-kafka with `group.protocol=consumer` and, for the classic side, `group.protocol=classic`,
over TCP against a broker in this process.

Nothing is timed: each step polls until what must come has come, and gives up after `PATIENCE_S`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from dragoman.cli.main import main
from dragoman.outcome import start
from dragoman.testing.ephemeral import EphemeralBroker

PATIENCE_S = 60.0
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}
#: The classic protocol leaves the interval to the client; the default is three seconds.
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 100}


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(settings=SETTINGS, listeners=("kafka",)) as running:
        yield running


def create(broker: EphemeralBroker, *topics: str, partitions: int = 6) -> None:
    admin = AdminClient(client_config(broker))
    new = [NewTopic(topic, partitions, 1) for topic in topics]
    for future in admin.create_topics(new).values():
        future.result(PATIENCE_S)


def client_config(broker: EphemeralBroker, **more: object) -> dict[str, object]:
    # Lost connections are part of these tests; they need no lines about them.
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **more}


def produce(
    broker: EphemeralBroker, topic: str, values: Sequence[int], partitions: int = 6
) -> None:
    producer = Producer(client_config(broker))
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(PATIENCE_S) == 0


class Member:
    """One consumer, and what it has read."""

    def __init__(self, broker: EphemeralBroker, *topics: str, **more: object) -> None:
        config = {
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
        self._consumer = Consumer(client_config(broker, **config))
        self._consumer.subscribe(list(topics))
        self.read: list[int] = []
        self.errors: list[str] = []

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is None:
            return
        if message.error() is not None:
            self.errors.append(str(message.error()))
            return
        self.read.append(int(message.value()))

    @property
    def assigned(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def poll_until(members: Sequence[Member], is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_reached():
        assert time.monotonic() < deadline, [
            (sorted(each.assigned), len(each.read), each.errors) for each in members
        ]
        for member in members:
            member.poll()


@contextmanager
def group(*members: Member) -> Iterator[None]:
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.close)
        yield


def shares(members: Sequence[Member]) -> list[int]:
    return sorted(len(member.assigned) for member in members)


def is_whole(members: Sequence[Member], count: int) -> bool:
    """Every partition is read by exactly one of them."""
    assigned = [partition for member in members for partition in member.assigned]
    return len(assigned) == len(set(assigned)) == count


def test_three_members_share_and_every_record_is_read_once(broker: EphemeralBroker) -> None:
    create(broker, "t")
    produce(broker, "t", range(600))
    first = Member(broker, "t")
    with group(first):
        poll_until([first], lambda: len(first.assigned) == 6 and len(first.read) == 600)
        first.commit()
        second, third = Member(broker, "t"), Member(broker, "t")
        members = [first, second, third]
        with group(second, third):
            poll_until(members, lambda: shares(members) == [2, 2, 2] and is_whole(members, 6))
            produce(broker, "t", range(600, 1200))
            poll_until(members, lambda: sum(len(each.read) for each in members) >= 1200)
            for member in members:
                member.commit()
            assert sorted(value for each in members for value in each.read) == list(range(1200))
        poll_until([first], lambda: len(first.assigned) == 6)
        produce(broker, "t", range(1200, 1206))
        poll_until([first], lambda: set(range(1200, 1206)) <= set(first.read))
        # What the others had committed was not read again.
        assert not set(second.read + third.read) & set(first.read)


def test_static_member_restarts_and_the_others_do_not_notice(broker: EphemeralBroker) -> None:
    create(broker, "t")
    one = Member(broker, "t", **{"group.instance.id": "one"})
    two = Member(broker, "t", **{"group.instance.id": "two"})
    with group(one):
        poll_until([one, two], lambda: shares([one, two]) == [3, 3] and is_whole([one, two], 6))
        epoch = group_epoch(broker)
        had = two.assigned
        two.close()
        two = Member(broker, "t", **{"group.instance.id": "two"})
        with group(two):
            poll_until([one, two], lambda: two.assigned == had)
            assert group_epoch(broker) == epoch


def group_epoch(broker: EphemeralBroker) -> int:
    node = broker._node
    assert node is not None
    consumer_group = node.broker.coordination.groups.table.consumer_group("g")
    assert consumer_group is not None
    return consumer_group.epoch


def test_pattern_finds_topics_that_are_made_later(broker: EphemeralBroker) -> None:
    create(broker, "orders-eu", "other", partitions=1)
    member = Member(broker, "^orders-.*")
    with group(member):
        poll_until([member], lambda: member.assigned == {("orders-eu", 0)})
        create(broker, "orders-us", partitions=1)
        poll_until([member], lambda: member.assigned == {("orders-eu", 0), ("orders-us", 0)})
        produce(broker, "orders-us", range(5), partitions=1)
        poll_until([member], lambda: sorted(member.read) == [0, 1, 2, 3, 4])


def test_bad_pattern_returns_invalid_regular_expression(broker: EphemeralBroker) -> None:
    create(broker, "t", partitions=1)
    # Back-references are fine with the client's own library, and not with RE2.
    member = Member(broker, r"^(a)\1")
    with group(member):
        poll_until([member], lambda: bool(member.errors))
        assert "INVALID_REGULAR_EXPRESSION" in member.errors[0] or "regular" in member.errors[0]


def test_new_partitions_are_shared(broker: EphemeralBroker) -> None:
    create(broker, "t", partitions=2)
    members = [Member(broker, "t"), Member(broker, "t")]
    with group(*members):
        poll_until(members, lambda: shares(members) == [1, 1] and is_whole(members, 2))
        node = broker._node
        assert node is not None
        topics = node.broker.topics
        node.listeners._loop.call_soon_threadsafe(lambda: start(topics.add_partitions("t", 6, ())))
        poll_until(members, lambda: shares(members) == [3, 3] and is_whole(members, 6))


def test_group_goes_on_after_a_restart_of_the_broker() -> None:
    with EphemeralBroker(storage="directory", settings=SETTINGS, listeners=("kafka",)) as broker:
        create(broker, "t")
        produce(broker, "t", range(60))
        members = [Member(broker, "t"), Member(broker, "t")]
        with group(*members):
            poll_until(members, lambda: shares(members) == [3, 3] and is_whole(members, 6))
            poll_until(members, lambda: sum(len(each.read) for each in members) >= 60)
            for member in members:
                member.commit()
            epoch = group_epoch(broker)
            had = [member.assigned for member in members]
            broker.restart()
            produce(broker, "t", range(60, 120))
            poll_until(members, lambda: sum(len(each.read) for each in members) >= 120)
            assert [member.assigned for member in members] == had
            assert group_epoch(broker) == epoch
            assert sorted(value for each in members for value in each.read) == list(range(120))
            for member in members:
                member.commit()


def test_members_move_from_the_classic_protocol_one_by_one(broker: EphemeralBroker) -> None:
    create(broker, "t")
    produce(broker, "t", range(60))
    classic = {**CLASSIC, "partition.assignment.strategy": "range"}
    old = Member(broker, "t", **classic)
    poll_until([old], lambda: len(old.assigned) == 6 and len(old.read) == 60)
    old.commit()
    new = Member(broker, "t")
    with group(new):
        poll_until([old, new], lambda: shares([old, new]) == [3, 3] and is_whole([old, new], 6))
        produce(broker, "t", range(60, 120))
        poll_until([old, new], lambda: len(old.read) + len(new.read) >= 120)
        assert sorted(old.read + new.read) == list(range(120))
        old.commit()
        new.commit()
        old.close()
        poll_until([new], lambda: len(new.assigned) == 6)
    back = Member(broker, "t", **classic)
    with group(back):
        produce(broker, "t", range(120, 126))
        poll_until([back], lambda: sorted(back.read) == list(range(120, 126)))


def test_cooperative_members_move_too_and_the_group_moves_back(broker: EphemeralBroker) -> None:
    create(broker, "t")
    strategy = {
        **CLASSIC,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    members = [Member(broker, "t", **strategy), Member(broker, "t", **strategy)]
    with group(*members):
        poll_until(members, lambda: shares(members) == [3, 3] and is_whole(members, 6))
        new = Member(broker, "t")
        everybody = [*members, new]
        poll_until(everybody, lambda: shares(everybody) == [2, 2, 2] and is_whole(everybody, 6))
        new.close()
        poll_until(members, lambda: shares(members) == [3, 3] and is_whole(members, 6))
        node = broker._node
        assert node is not None
        assert node.broker.coordination.groups.table.describe("g").kind == "classic"


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_http_and_command_line_show_what_members_read(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with EphemeralBroker(settings=SETTINGS) as broker:
        create(broker, "t", partitions=3)
        config = CLASSIC if protocol == "classic" else {}
        member = Member(broker, "t", **config)
        with group(member):
            poll_until([member], lambda: len(member.assigned) == 3)
            command = ["group", "describe", "g", "--server", broker.http_url]
            assert main([*command, "--output", "json"]) == 0
            (shown,) = json.loads(capsys.readouterr().out)["members"]
            assert shown["assignment"] == [{"topic": "t", "partitions": [0, 1, 2]}]
            assert main(command) == 0
            assert "t:0,1,2" in capsys.readouterr().out
