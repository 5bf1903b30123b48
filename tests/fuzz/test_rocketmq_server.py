"""Goal: whatever RocketMQ clients send, a node stays up, serves the others and keeps its log whole.

Method: seeded requests of every number with any fields and bodies, in both serialisations, whole or
mutated, and plain garbage, each on a connection of its own to a world. A client with manners is
asked throughout; every whole request is answered, nothing may be logged as an error, and no memory
may stay taken. `DRAGOMAN_FUZZ_ROUNDS` multiplies the work.
"""

from __future__ import annotations

import logging
import os
import random

import pytest

from dragoman.errors import EncodeError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import LANGUAGES, Request, Serialization
from dragoman.protocols.rocketmq.handlers.node import node_of
from dragoman.protocols.rocketmq.messages import BatchedMessage, encode_batch
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe, pull_fields, send_fields

ROUNDS = int(os.environ.get("DRAGOMAN_FUZZ_ROUNDS", "1"))
CASES = 2500
TOPICS = ("T", "T", "T", "U", "%RETRY%g", "%DLQ%g", "TBW102", "nope", "a b", "__rocketmq_state", "")
NAMES = """
    topic defaultTopic group consumerGroup producerGroup groupName srcGroup destGroup compareGroup
    filterGroups clientId clientID clientAddr queueId queueOffset offset timestamp beginTimestamp
    endTimestamp maxNum key msgId index count isForce cleanOffset readable perm readQueueNums
    writeQueueNums order attributes topicFilterType topicSysFlag topicSeq maxTopicNum namespace
    value brokerName cluster statsName statsKey commitOffset suspendTimeoutMillis maxMsgNums
    sysFlag subscription subVersion expressionType originMsgId delayLevel tranStateTableOffset
    commitLogOffset commitOrRollback boundaryType isOrder topicList username subject mode properties
    _UNIQUE_KEY_QUERY batch reconsumeTimes maxReconsumeTimes bornTimestamp flag
""".split()  # noqa: SIM905
VALUES = """
    T U g h c1 nope 0 1 2 -1 6 64 4294967296 9223372036854775807 9223372036854775808 x true false
    null + - , ; a=b +a=b -a SINGLE_TAG TAG SQL92 * a||b n>1 ( %RETRY%g dragoman-1 DefaultCluster
    TOPIC_PUT_NUMS C0A8010A109214DAD5DC075BCD150007 7F00000100002A9F0000001000000000 ü UPPER
    99999999999999999999999 1e5
""".split()  # noqa: SIM905


#: With these, most requests have what they need.
SOUND = {
    "topic": "T",
    "group": "g",
    "consumerGroup": "g",
    "producerGroup": "pg",
    "groupName": "g",
    "srcGroup": "g",
    "destGroup": "h",
    "clientId": "c1",
    "clientID": "c2",
    "queueId": "0",
    "queueOffset": "0",
    "timestamp": "-1",
    "key": "x",
    "index": "0",
    "count": "5",
    "namespace": "n",
    "value": "v",
    "brokerName": "dragoman-1",
    "cluster": "DefaultCluster",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "T",
    "commitOffset": "0",
    "offset": "0",
    "delayLevel": "1",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "msgId": "7F00000100002A9F0000001000000000",
    "mode": "PULL",
    "strategyName": "AVG",
    "username": "u",
    "subject": "User:u",
}
#: The short names of the second form of a send.
SHORT = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}


def any_fields(rng: random.Random) -> dict[str, str]:
    fields: dict[str, str] = {}
    match rng.randrange(5):
        case 0:
            fields = {name: str(value) for name, value in send_fields("T").items()}
        case 1:
            fields = {name: str(value) for name, value in pull_fields("T").items()}
        case 2:
            fields = SHORT | {"i": "KEYS\x01k\x02"}
        case 3:
            fields = dict(SOUND)
    for _ in range(rng.choice((0, 0, 1, 3))):
        fields[rng.choice(NAMES)] = rng.choice(VALUES)
    if rng.random() < 0.2:
        fields["topic"] = rng.choice(TOPICS)
    return fields


def any_body(rng: random.Random) -> bytes:
    match rng.randrange(9):
        case 0:
            return rng.randbytes(rng.randrange(60))
        case 1:
            return encode_batch([BatchedMessage(0, b"b" * rng.randrange(9), b"KEYS\x01k\x02")] * 2)
        case 2:
            return bodies.encode(
                bodies.HeartbeatData(client_id=rng.choice(("c1", "c2", "")) or "-")
            )
        case 3:
            config = bodies.TopicConfig(topic_name=rng.choice(TOPICS), perm=rng.randrange(20))
            return bodies.encode(bodies.TopicConfigList(topic_config_list=[config]))
        case 4:
            group = bodies.SubscriptionGroupConfig(group_name=rng.choice(("g", "h", "a b", "")))
            return bodies.encode(group)
        case 5:
            queues = [
                bodies.MessageQueue(topic="T", broker_name="b", queue_id=rng.randrange(-1, 9))
            ]
            lock = bodies.LockBatch(consumer_group="g", client_id="c1", mq_set=queues)
            return bodies.encode(lock)
        case 6:
            return "\n".join(f"{rng.choice(NAMES)}={rng.choice(VALUES)}" for _ in range(3)).encode()
        case 7:
            wanted = bodies.QueryAssignment(topic="T", consumer_group="g", client_id="c1")
            return bodies.encode(wanted)
        case _:
            return b""


def any_request(rng: random.Random) -> Command:
    return Command(
        code=rng.choice(list(Request)) if rng.random() < 0.97 else rng.randrange(-5, 5000),
        opaque=rng.randrange(1 << 31),
        language=rng.choice(LANGUAGES),
        version=rng.randrange(600),
        fields=any_fields(rng),
        body=any_body(rng),
        serialization=rng.choice(list(Serialization)),
    )


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(3):
            case 0:
                changed[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 1:
                del changed[at : at + rng.randrange(1, 5)]
            case _:
                changed[at : at + 1] = rng.randbytes(1)
    return bytes(changed)


def is_kept_waiting(request: Command) -> bool:
    """Requests that may wait for messages, or for a client that does not answer."""
    waits = (
        Request.PULL_MESSAGE,
        Request.LITE_PULL_MESSAGE,
        Request.GET_CONSUMER_RUNNING_INFO,
        Request.CONSUME_MESSAGE_DIRECTLY,
        Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        # Unknown outcomes have no answer.
        Request.END_TRANSACTION,
    )
    return request.code in waits


@pytest.mark.timeout(120 * ROUNDS)
def test_node_survives_malformed_requests(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random("fuzz rocketmq")
    world = World()
    polite = RocketmqPipe(world)
    polite.create("canary", 1)
    with caplog.at_level(logging.WARNING):
        for number in range(CASES * ROUNDS):
            for name in ("T", "U"):
                if name not in world.broker.image.topics:
                    polite.create(name, 2)
                    polite.put(name, b"v", {"KEYS": "g T x"})
            if number % 20 == 0:
                polite.beat("c1", "g", {"T": "*"})
            try_one(rng, world)
            if number % 50 == 0:
                assert polite.put("canary", b"%d" % number).code == 0
                (message,) = polite.messages("canary", offset=number // 50)
                assert message.body == b"%d" % number
                world.advance(1)
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert not errors, [(each.name, each.getMessage(), each.exc_info) for each in errors[:3]]
    for channel in list(world.channels.open):
        channel.connection_lost(None)
    world.advance(400.0)
    assert node_of(world.broker).searches == 0
    assert world.budget.used == 0
    again = RocketmqPipe(world.reopened(kill=True))
    assert [each.body for each in again.messages("canary")][:2] == [b"0", b"50"]


def try_one(rng: random.Random, world: World) -> None:
    pipe = RocketmqPipe(world)
    request = any_request(rng)
    try:
        data = encode(request)
    except EncodeError:
        # A binary header has no place for large numbers.
        return
    is_whole = rng.random() < 0.7
    if not is_whole:
        data = mutated(rng, data) if rng.random() < 0.8 else rng.randbytes(60)
    pipe.feed(data)
    world.settle()
    if is_whole:
        assert not pipe.channel.is_closing, request
        assert is_kept_waiting(request) or request.opaque in pipe.replies(), request
    if rng.random() < 0.9:
        pipe.lose()
