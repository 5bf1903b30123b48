"""Signed requests of every RocketMQ client, against a broker that demands them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from remote_client import RemoteError
from rocketmq_client import Message, RocketmqClient
from rocketmq_operations import collect

from dragoman.security.access import Operation, Resource
from dragoman.testing import EphemeralBroker
from nodes.users import add_user, allow, enforce

ALICE = ("alice", "alice-12345678")
BOB = ("bob", "bob-12345678")
QUEUES = 4


@contextmanager
def _broker(topic: str, *listeners: str) -> Iterator[EphemeralBroker]:
    """One whose listeners demand signatures. Alice may write and read the topic as one group, Bob
    may only see its route.
    """
    settings = {f"listener.{each}.authentication": "required" for each in listeners}
    with EphemeralBroker(settings=settings, listeners=RocketmqClient.listeners) as broker:
        for name, secret in (ALICE, BOB):
            add_user(broker, name, secret=secret)
        enforce(
            broker,
            # The other listeners demand nothing: by them the topic is made, and routes are read.
            allow("User:ANONYMOUS", Operation.ALL, Resource.TOPIC),
            allow("User:ANONYMOUS", Operation.ALL, Resource.GROUP),
            # What RocketMQ calls PUB and SUB on the topic, and SUB on the group.
            allow("User:alice", Operation.WRITE, Resource.TOPIC, topic),
            allow("User:alice", Operation.READ, Resource.TOPIC, topic),
            allow("User:alice", Operation.READ, Resource.GROUP, f"reads-{topic}"),
        )
        ToolsOnly(broker).make_topic(topic, f"reads-{topic}")
        yield broker


class ToolsOnly(RocketmqClient):
    """What is done by other means than a library."""

    def __init__(self, broker: EphemeralBroker) -> None:
        self.broker = broker

    def make_group(self, topic: str, group: str, queues: int = QUEUES) -> None:
        """By Kafka's protocol, because the broker demands signatures of RocketMQ's."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.cimpl import Consumer

        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        places = [TopicPartition(topic, queue, 0) for queue in range(queues)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@contextmanager
def _signing(
    client: RocketmqClient, broker: EphemeralBroker, key: tuple[str, str] | None
) -> Iterator[RocketmqClient]:
    signer = type(client)(broker.address("rocketmq"), key)
    signer.broker = broker
    try:
        yield signer
    finally:
        signer.close()


def signed(client: RocketmqClient, topic: str) -> None:
    """On the name server and the broker: routes, messages, and a consumer's pulls."""
    both = ("rocketmq", "rocketmq-broker")
    with _broker(topic, *both) as broker, _signing(client, broker, ALICE) as signer:
        sent = [Message(f"signed {number}") for number in range(QUEUES)]
        signer.send(topic, sent)
        consumer = signer.consumer(f"reads-{topic}", topic)
        try:
            came = collect(consumer, [each.body for each in sent])
        finally:
            consumer.close()
        assert len(came) == len(sent), came


def _refused(client: RocketmqClient, topic: str, key: tuple[str, str] | None, why: str) -> None:
    raised = "nothing"
    with _broker(topic, "rocketmq-broker") as broker, _signing(client, broker, key) as signer:
        try:
            signer.send(topic, [Message("refused")], signer.once)
        except RemoteError as error:
            raised = str(error)
    assert re.search(client.refusals[why], raised), raised


def wrong_secret(client: RocketmqClient, topic: str) -> None:
    _refused(client, topic, ("alice", "alice-87654321"), "wrong")


def unknown_key(client: RocketmqClient, topic: str) -> None:
    _refused(client, topic, ("nobody", "alice-12345678"), "wrong")


def unsigned(client: RocketmqClient, topic: str) -> None:
    _refused(client, topic, None, "unsigned")


def no_right(client: RocketmqClient, topic: str) -> None:
    _refused(client, topic, BOB, "no right")


OPERATIONS = {
    "signed: routes, messages, consumers": signed,
    "refused: a wrong secret": wrong_secret,
    "refused: an unknown access key": unknown_key,
    "refused: unsigned": unsigned,
    "refused: without the right": no_right,
}
SECTION = {"RocketMQ: signatures": OPERATIONS}
