"""What a RocketMQ client library is asked to do, in the few terms that all of them share.

Every library is behind a program of ours that is asked over JSON lines (`remote_client.py`):

    send(topic, messages, way) -> [[queue, offset], …]    by sync, one-way, async or batch
    consumer(group, topic, options) -> number
    transact(topic, message, decision, by_question)       to commit or to rollback

A message is `[body, tags, keys, properties, delay level, queue]`; -1 is a queue or an offset that
is not known, or does not matter. A consumer has `poll() -> deliveries` and `close()`. Its options:
`model` (clustering, broadcasting), `style` (push, pull), `orderly`, `expression` in a `language`
(TAG, SQL92), `refused` (how many times a body that begins with "refuse" is handed back before it is
taken), `attempts_max` (retries before the dead letters; -1 leaves it to the broker). It begins at
the first offset if it can be asked to, else where its group has committed.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from client import SECONDS_MAX, Client, Unsupported
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from remote_client import Program, Remote

from dragoman.protocols.rocketmq.codec import Command, Connection, encode
from dragoman.protocols.rocketmq.constants import Request, Response

QUEUES = 4


class Message(NamedTuple):
    body: str
    tags: str = ""
    keys: str = ""
    properties: Mapping[str, str] = {}
    delay_level: int = 0
    queue: int = -1


class Delivery(NamedTuple):
    topic: str
    #: -1 where the library does not say.
    queue: int
    offset: int
    body: str
    tags: str
    keys: str
    properties: Mapping[str, str]


class Consumer(Remote):
    def _call(self, name: str, *arguments: object) -> Any:
        return self._polled() if name == "poll" else super()._call(name, *arguments)

    def _polled(self) -> list[Delivery]:
        return [Delivery(*each) for each in self._program.ask("poll", self._number, ())]


class RocketmqClient(Client):
    listeners = ("rocketmq", "rocketmq-broker", "kafka")
    #: Ways to send, options of consumers and other things that the library has.
    has: frozenset[str] = frozenset()

    #: Where a broker that demands signatures refuses a message: what the library then raises.
    refusals: Mapping[str, str] = {}
    #: The way to send a message that will be refused.
    once = "sync"

    def __init__(self, servers: str, key: tuple[str, str] | None = None) -> None:
        """`key` is the access key and the secret key that sign the library's requests."""
        super().__init__(servers)
        # Libraries write logs, and some of their commands results.
        self._home = tempfile.TemporaryDirectory(prefix="dragoman-interop-")
        self._program = Program([*self.command(servers), *(key or ())], self._home.name)

    def command(self, servers: str) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        self._program.end()
        self._home.cleanup()

    def needs(self, *things: str) -> None:
        missing = set(things) - self.has
        if missing:
            raise Unsupported(", ".join(missing))

    # ---- by the library

    def send(self, topic: str, messages: Sequence[Message], way: str = "sync") -> list[list[int]]:
        self.needs(way)
        placed: list[list[int]] = self._program.ask("send", 0, (topic, messages, way))
        return placed

    def consumer(self, group: str, topic: str, **options: object) -> Consumer:
        given = {
            "model": "clustering",
            "style": "push",
            "orderly": False,
            "language": "TAG",
            "expression": "*",
            "refused": 0,
            "attempts_max": -1,
        } | options
        self.needs(str(given["model"]), str(given["style"]), str(given["language"]))
        if given["orderly"]:
            self.needs("orderly")
        number = self._program.ask("consumer", 0, (group, topic, given))
        return Consumer(self._program, number)

    def transact(self, topic: str, message: Message, decision: str, by_question: bool) -> None:
        self.needs("transactions")
        self._program.ask("transact", 0, (topic, message, decision, by_question))

    # ---- by other means, for what a library cannot do itself

    def make_topic(self, topic: str, *groups: str) -> None:
        """With groups that begin at its first offsets."""
        for made in self._admin.create_topics([NewTopic(topic, QUEUES)]).values():
            made.result()
        for group in groups:
            self.make_group(topic, group)

    def make_group(self, topic: str, group: str, queues: int = QUEUES) -> None:
        """One that begins at the topic's first offsets."""
        for queue in range(queues):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
            code = self._ask(Request.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": "0"})
            assert code == Response.SUCCESS, code

    def set_attempts_max(self, group: str, count: int) -> None:
        """For clients that leave it to the broker how often they try."""
        config = json.dumps({"groupName": group, "retryMaxTimes": count}).encode()
        code = self._ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)
        assert code == Response.SUCCESS, code

    def has_topic(self, topic: str) -> bool:
        code = self._ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return code == Response.SUCCESS

    def _ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> int:
        """What the broker answers to a request of ours."""
        host, _, port = self.broker.address("rocketmq-broker").rpartition(":")
        connection = Connection()
        with socket.create_connection((host, int(port)), SECONDS_MAX) as stream:
            stream.sendall(encode(Command(code=code, fields=fields, body=body)))
            while True:
                for response in connection.receive_data(stream.recv(1 << 16)):
                    return response.code

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": "0"})
