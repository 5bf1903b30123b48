"""A RocketMQ connection to a world: commands in and out, over the real channel and session."""

from __future__ import annotations

from functools import partial

import msgspec

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, Connection, encode
from dragoman.protocols.rocketmq.constants import IS_ONE_WAY, Request, Serialization
from dragoman.protocols.rocketmq.handlers.service import RocketmqService
from dragoman.protocols.rocketmq.handlers.session import RocketmqSession
from dragoman.protocols.rocketmq.messages import Message, decode_messages, encode_properties
from worlds.broker import Pipe, World

ADDRESS = ("127.0.0.1", 10911)
BROKER = "dragoman-1"
#: Properties that consumers find in every message, because the broker adds them.
BROKERS_OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}


class RocketmqPipe(Pipe):
    def __init__(
        self,
        world: World,
        language: str = "JAVA",
        serialization: Serialization = Serialization.JSON,
        host: str = ADDRESS[0],
    ) -> None:
        service = RocketmqService(world.broker, world.budget, lambda _: (host, ADDRESS[1]))
        super().__init__(world, partial(RocketmqSession, service=service), ADDRESS)
        self.language = language
        self.serialization = serialization
        self.connection = Connection()
        self._opaque = 0
        #: Requests of the broker that the test has not read yet.
        self.pushed: list[Command] = []

    def send(
        self, code: int, fields: dict[str, object] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        """Without letting the broker's turn end; the number of the request."""
        self._opaque += 1
        command = Command(
            code=code,
            opaque=self._opaque,
            flag=flag,
            language=self.language,
            fields={name: str(value) for name, value in (fields or {}).items()},
            body=body,
            serialization=self.serialization,
        )
        self.feed(encode(command))
        return self._opaque

    def tell(self, code: int, fields: dict[str, object], body: bytes = b"") -> None:
        self.send(code, fields, body, IS_ONE_WAY)
        self.world.settle()

    def replies(self) -> dict[int, Command]:
        """What has come back since the last call, by number."""
        found = {}
        for each in self.connection.receive_data(self.received()):
            each.body = bytes(each.body)
            if each.is_response:
                found[each.opaque] = each
            else:
                self.pushed.append(each)
        return found

    def answer(self, request: Command, body: bytes = b"", code: int = 0) -> None:
        self.feed(encode(Command(code=code, opaque=request.opaque, flag=1, body=body)))
        self.world.settle()

    def ask(self, code: int, fields: dict[str, object] | None = None, body: bytes = b"") -> Command:
        number = self.send(code, fields, body)
        self.world.settle()
        replies = self.replies()
        assert number in replies, f"request {code} is not answered"
        return replies[number]

    def ok(self, code: int, fields: dict[str, object] | None = None, body: bytes = b"") -> Command:
        reply = self.ask(code, fields, body)
        assert reply.code == 0, (reply.code, reply.remark)
        return reply

    def refused(
        self, code: int, fields: dict[str, object] | None = None, body: bytes = b""
    ) -> tuple[int, str]:
        reply = self.ask(code, fields, body)
        assert reply.code != 0
        assert reply.remark
        return reply.code, reply.remark

    # ---- what clients do

    def put(
        self,
        topic: str,
        body: bytes = b"v",
        properties: dict[str, str] | None = None,
        queue: int = 0,
        **fields: object,
    ) -> Command:
        return self.ask(
            Request.SEND_MESSAGE,
            send_fields(topic, properties, queue) | fields,
            body,
        )

    def create(self, topic: str, queues: int = 4) -> None:
        self.world.create(topic, queues)

    def beat(
        self,
        client_id: str,
        group: str = "",
        topics: dict[str, str] | None = None,
        producer: str = "",
        kind: str = "TAG",
    ) -> Command:
        subscriptions = [
            bodies.SubscriptionData(topic=topic, sub_string=text, expression_type=kind)
            for topic, text in (topics or {}).items()
        ]
        consumers = [bodies.ConsumerData(group_name=group, subscription_data_set=subscriptions)]
        beat = bodies.HeartbeatData(
            client_id=client_id,
            producer_data_set=[bodies.ProducerData(group_name=producer)] if producer else [],
            consumer_data_set=consumers if group else [],
        )
        return self.ask(Request.HEART_BEAT, {}, bodies.encode(beat))

    def ids(self, group: str) -> list[str]:
        reply = self.ok(Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return bodies.decode(reply.body, bodies.ConsumerIds).consumer_id_list

    def pull(self, topic: str, offset: int = 0, queue: int = 0, **fields: object) -> Command:
        return self.ask(Request.PULL_MESSAGE, pull_fields(topic, offset, queue) | fields)

    def messages(
        self, topic: str, offset: int = 0, queue: int = 0, **fields: object
    ) -> list[Message]:
        reply = self.pull(topic, offset, queue, **fields)
        return decode_messages(reply.body)


def send_fields(
    topic: str, properties: dict[str, str] | None = None, queue: int = 0
) -> dict[str, object]:
    return {
        "producerGroup": "pg",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": 1000,
        "flag": 0,
        "properties": encode_properties(properties or {}).decode(),
    }


def pull_fields(topic: str, offset: int = 0, queue: int = 0) -> dict[str, object]:
    return {
        "consumerGroup": "g",
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def table(reply: Command) -> dict[str, object]:
    found = msgspec.json.decode(reply.body)
    assert isinstance(found, dict)
    return found
