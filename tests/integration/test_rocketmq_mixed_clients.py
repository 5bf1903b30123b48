"""Goal: our RocketMQ client and the official one for C++ are members of the same groups: they read
each other's messages, and share queues without a gap or an overlap, in order too.

Method: a broker in this process, PyPI's `rocketmq` in another. Groups have committed where they
begin; messages are sent when both members have their share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("rocketmq.client", reason="it has wheels for Linux on x86-64 only")

from rocketmq_client import Message as TheirMessage
from rocketmq_python_client import RocketmqPythonClient

from dragoman.client.rocketmq import (
    BlockingPushConsumer,
    BlockingRocketmqAdmin,
    BlockingRocketmqClient,
    Message,
    ReceivedMessage,
    TopicConfig,
)
from dragoman.testing import EphemeralBroker

WAIT_S = 120.0


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def theirs() -> Iterator[RocketmqPythonClient]:
    with EphemeralBroker(listeners=RocketmqPythonClient.listeners) as broker:
        client = RocketmqPythonClient(broker.address("rocketmq"))
        client.broker = broker
        try:
            yield client
        finally:
            client.close()


@pytest.fixture
def ours(theirs: RocketmqPythonClient) -> Iterator[BlockingRocketmqClient]:
    with BlockingRocketmqClient(theirs.broker.address("rocketmq")) as client:
        yield client


def made(theirs: RocketmqPythonClient, topic: str) -> None:
    """With four queues, and a group of the same name that begins at its start."""
    with BlockingRocketmqAdmin(theirs.broker.address("rocketmq")) as admin:
        admin.create_topic(TopicConfig(topic_name=topic))
        for queue in admin.examine_topic_stats(topic):
            admin.update_consume_offset(queue, topic, 0)


def share(consumer: BlockingPushConsumer, topic: str) -> int:
    return sum(each.topic == topic for each in consumer.assigned)


def test_each_reads_what_the_other_wrote(
    theirs: RocketmqPythonClient, ours: BlockingRocketmqClient
) -> None:
    made(theirs, "exchange")
    large = "large " * 2000
    theirs.send("exchange", [TheirMessage("small", "a", "k"), TheirMessage(large, "a", "k")])
    found: list[ReceivedMessage] = []
    with ours.push_consumer("exchange", {"exchange": "a"}, found.append):
        wait_until(lambda: len(found) == 2)
    assert {each.body.decode() for each in found} == {"small", large}
    assert {(each.tags, tuple(each.keys)) for each in found} == {("a", ("k",))}
    made(theirs, "back")
    with ours.producer("p") as producer:
        for body in ("small", large):
            producer.send(Message(topic="back", body=body.encode(), tags="b", keys=["k"]))
        producer.send_batch([Message(topic="back", body=b"in a batch", tags="b", keys=["k"])] * 2)
    read = theirs.consumer("back", "back")
    came = []

    def have_come() -> bool:
        came.extend(read.poll())
        return len(came) == 4

    try:
        wait_until(have_come)
    finally:
        read.close()
    assert sorted(each.body for each in came) == ["in a batch", "in a batch", large, "small"]
    assert {(each.tags, each.keys) for each in came} == {("b", "k")}


@pytest.mark.parametrize("is_orderly", [False, True])
def test_members_of_both_share_a_group(
    theirs: RocketmqPythonClient, ours: BlockingRocketmqClient, is_orderly: bool
) -> None:
    topic = f"shared-{is_orderly}"
    made(theirs, topic)
    mine: list[bytes] = []
    found: list[str] = []

    def listen(message: ReceivedMessage) -> None:
        mine.append(message.body)

    with ours.push_consumer(topic, {topic: "*"}, listen, is_orderly=is_orderly) as consumer:
        assert share(consumer, topic) == 4
        other = theirs.consumer(topic, topic, orderly=is_orderly)
        try:
            # The broker tells this member of the other one.
            wait_until(lambda: share(consumer, topic) == 2)
            with ours.producer("p") as producer:
                for number in range(40):
                    message = Message(topic=topic, body=b"%d" % number, sharding_key=str(number))
                    producer.send(message)

            def have_come() -> bool:
                found.extend(each.body for each in other.poll())
                return len(mine) + len(found) >= 40

            wait_until(have_come)
        finally:
            other.close()
        # The other has left, and its queues are this member's again.
        wait_until(lambda: share(consumer, topic) == 4)
    assert mine
    assert found
    assert sorted([int(each) for each in mine] + [int(each) for each in found]) == list(range(40))
