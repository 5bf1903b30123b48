"""Goal: each of RocketMQ's requests needs exactly the rights in the table below.

Method: as for Kafka's requests. Topics with the retries of a group need rights on the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers import clients
from dragoman.protocols.rocketmq.handlers.service import REQUESTS
from dragoman.protocols.rocketmq.handlers.session import RocketmqSession
from dragoman.security.access import CLUSTER_NAME, Resource
from worlds.broker import World
from worlds.rights import Guard, Need, Right, need, others
from worlds.rocketmq import RocketmqPipe, pull_fields, send_fields
from worlds.stacks import no_stack_left

RESOURCES: Final = (
    (Resource.TOPIC, "t"),
    (Resource.TOPIC, "%RETRY%g"),
    (Resource.TOPIC, "fresh"),
    (Resource.TOPIC, "bystander"),
    (Resource.GROUP, "g"),
    (Resource.GROUP, "h"),
    (Resource.CLUSTER, CLUSTER_NAME),
)
QUEUE: Final = {"topic": "t", "queueId": 0}
GROUP: Final = {"group": "g", "consumerGroup": "g"}


class Stage:
    """A world with the resources of the table, a consumer and a producer, and one connection."""

    def __init__(self) -> None:
        self.world = World()
        self.pipe = RocketmqPipe(self.world, "GO")
        self.pipe.create("t", 1)
        self.pipe.create("bystander", 1)
        self.pipe.put("t", b"v", {"KEYS": "k"})
        self.pipe.beat("c1", "g", {"t": "*"}, producer="pg")
        self.pipe.ok(Request.UPDATE_CONSUMER_OFFSET, GROUP | QUEUE | {"commitOffset": 1})
        self.pipe.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
        (message,) = self.pipe.messages("t")
        self.physical = message.physical_offset
        self.guard = Guard(self.world)

    def without_fresh(self) -> None:
        if "fresh" in self.world.broker.image.topics:
            self.pipe.ok(Request.DELETE_TOPIC_IN_BROKER, {"topic": "fresh"})

    def with_fresh(self) -> None:
        if "fresh" not in self.world.broker.image.topics:
            self.pipe.create("fresh", 1)


def _nothing(_: Stage) -> None:
    return None


#: Whether the answer, None while there is none, shows that the request was refused.
Sees = Callable[[Command | None], bool]


def no_permission(answer: Command | None) -> bool:
    return answer is not None and answer.code == Response.NO_PERMISSION


def hidden(answer: Command | None) -> bool:
    """For requests that name no topic: as if there were no such message."""
    return answer is not None and answer.code == Response.SYSTEM_ERROR


def lacks(text: str) -> Sees:
    def sees(answer: Command | None) -> bool:
        assert answer is not None
        return no_permission(answer) or text not in bytes(answer.body).decode()

    return sees


class Row(NamedTuple):
    needs: str = ""
    fields: dict[str, object] = {}
    body: msgspec.Struct | dict[str, object] | None = None
    sees: Sees = no_permission
    prepare: Callable[[Stage], None] = _nothing
    #: Fields that only the stage knows.
    more: Callable[[Stage], dict[str, object]] = lambda _: {}

    @property
    def all_needs(self) -> list[Need]:
        return [need(each) for each in self.needs.split(",") if each]


def _at(stage: Stage) -> dict[str, object]:
    return {"offset": stage.physical}


def _beat() -> msgspec.Struct:
    subscription = bodies.SubscriptionData(topic="t", sub_string="*")
    consumer = bodies.ConsumerData(group_name="g", subscription_data_set=[subscription])
    return bodies.HeartbeatData(client_id="c1", consumer_data_set=[consumer])


_TOPIC_CONFIG: Final[dict[str, object]] = {
    "topic": "fresh",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
}
_SHOWN: Final = Row("describe topic t", sees=lacks('"t"'))
_CLUSTER_DESCRIBE: Final = Row("describe cluster")
_ANYBODY: Final = Row()
_SENT: Final = send_fields("t")
_SENT_SHORT: Final = {
    short: _SENT[long]
    for short, long in {
        "a": "producerGroup",
        "b": "topic",
        "c": "defaultTopic",
        "d": "defaultTopicQueueNums",
        "e": "queueId",
        "f": "sysFlag",
        "g": "bornTimestamp",
        "h": "flag",
        "i": "properties",
    }.items()
}
#: The topic in the key of a table, as the Go client reads it.
_IN_KEY: Final = r"\"t\""
R: Final = Request
#: Requests whose rights the tests of users and rules show.
ELSEWHERE: Final = {
    *(each for each in R if each.name.startswith("AUTH_")),
    R.UPDATE_AND_CREATE_ACL_CONFIG,
    R.DELETE_ACL_CONFIG,
    R.GET_BROKER_CLUSTER_ACL_INFO,
    R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
} & {R(each) for each in REQUESTS}
ROWS: Final[dict[Request, list[Row]]] = {
    R.SEND_MESSAGE: [
        Row("write topic t", _SENT),
        # Consumers send what they have not processed; the topic is the group's.
        Row("read group g", send_fields("%RETRY%g")),
        Row(
            "write topic fresh,create topic fresh|create cluster",
            send_fields("fresh"),
            prepare=Stage.without_fresh,
        ),
        Row("write topic t", send_fields("t", {"DELAY": "18"})),
        Row("write topic t", send_fields("t", {"TRAN_MSG": "true"}) | {"sysFlag": 4}),
    ],
    R.SEND_MESSAGE_V2: [Row("write topic t", _SENT_SHORT)],
    R.SEND_BATCH_MESSAGE: [Row("write topic t", _SENT_SHORT)],
    R.SEND_REPLY_MESSAGE: [Row("write topic t", _SENT)],
    R.SEND_REPLY_MESSAGE_V2: [Row("write topic t", _SENT_SHORT)],
    R.CONSUMER_SEND_MSG_BACK: [
        Row("read group g", GROUP, more=_at),
        Row("read topic t", GROUP, sees=hidden, more=_at),
    ],
    R.END_TRANSACTION: [],
    R.RESUME_CHECK_HALF_MESSAGE: [Row("alter cluster", {"msgId": "0" * 32})],
    R.PULL_MESSAGE: [
        Row("read topic t,read group g", pull_fields("t")),
        Row("read group g", pull_fields("%RETRY%g")),
    ],
    R.LITE_PULL_MESSAGE: [Row("read topic t,read group g", pull_fields("t"))],
    R.QUERY_CONSUMER_OFFSET: [Row("describe group g,describe topic t", GROUP | QUEUE)],
    R.UPDATE_CONSUMER_OFFSET: [
        Row("read group g,read topic t", GROUP | QUEUE | {"commitOffset": 1})
    ],
    R.SEARCH_OFFSET_BY_TIMESTAMP: [Row("describe topic t", QUEUE | {"timestamp": 0})],
    R.GET_MAX_OFFSET: [Row("describe topic t", QUEUE)],
    R.GET_MIN_OFFSET: [Row("describe topic t", QUEUE)],
    R.GET_EARLIEST_MSG_STORETIME: [Row("describe topic t", QUEUE)],
    R.HEART_BEAT: [Row("read group g,read topic t", body=_beat())],
    # Only of what the connection itself has announced.
    R.UNREGISTER_CLIENT: [Row("", {"clientID": "nobody", "consumerGroup": "g"})],
    R.GET_CONSUMER_LIST_BY_GROUP: [Row("describe group g", GROUP)],
    R.CHECK_CLIENT_CONFIG: [Row("", body={})],
    R.LOCK_BATCH_MQ: [
        Row("read group g", body={"consumerGroup": "g", "clientId": "c1"}),
    ],
    R.UNLOCK_BATCH_MQ: [Row("read group g", body={"consumerGroup": "g", "clientId": "c1"})],
    R.QUERY_ASSIGNMENT: [
        Row(
            "read group g,read topic t",
            body={
                "topic": "t",
                "consumerGroup": "g",
                "clientId": "c1",
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            },
        )
    ],
    R.SET_MESSAGE_REQUEST_MODE: [
        Row(
            "alter_configs group g,describe topic t",
            body={"topic": "t", "consumerGroup": "g", "mode": "PULL"},
        )
    ],
    R.GET_ROUTEINFO_BY_TOPIC: [
        Row("describe topic t", {"topic": "t"}),
        Row("describe group g", {"topic": "%RETRY%g"}),
        Row("", {"topic": "TBW102"}),
    ],
    R.GET_BROKER_CLUSTER_INFO: [_ANYBODY],
    R.UPDATE_AND_CREATE_TOPIC: [
        Row("create topic fresh|create cluster", _TOPIC_CONFIG, prepare=Stage.without_fresh),
        Row("alter topic t", _TOPIC_CONFIG | {"topic": "t"}),
    ],
    R.UPDATE_AND_CREATE_TOPIC_LIST: [
        Row(
            "create topic fresh|create cluster",
            body={
                "topicConfigList": [
                    {"topicName": "fresh", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
                ]
            },
            prepare=Stage.without_fresh,
        )
    ],
    R.DELETE_TOPIC_IN_BROKER: [
        Row("delete topic fresh", {"topic": "fresh"}, prepare=Stage.with_fresh)
    ],
    R.GET_ALL_TOPIC_CONFIG: [_SHOWN],
    R.GET_TOPIC_CONFIG: [Row("describe topic t", {"topic": "t"})],
    R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: [_ANYBODY],
    R.GET_TOPIC_STATS_INFO: [Row("describe topic t", {"topic": "t"})],
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: [_SHOWN],
    R.GET_TOPICS_BY_CLUSTER: [_SHOWN._replace(fields={"cluster": "DefaultCluster"})],
    R.GET_SYSTEM_TOPIC_LIST_FROM_NS: [_ANYBODY],
    # No topic of the stage is of these kinds.
    R.GET_UNIT_TOPIC_LIST: [_ANYBODY],
    R.GET_HAS_UNIT_SUB_TOPIC_LIST: [_ANYBODY],
    R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: [_ANYBODY],
    R.DELETE_TOPIC_IN_NAMESRV: [Row("", {"topic": "t"})],
    R.REGISTER_TOPIC_IN_NAMESRV: [
        Row(
            "create topic fresh|create cluster",
            {"topic": "fresh"},
            {"queueDatas": [{"brokerName": "b", "readQueueNums": 1}]},
            prepare=Stage.without_fresh,
        )
    ],
    R.PUT_KV_CONFIG: [Row("alter_configs cluster", {"namespace": "n", "key": "j", "value": "v"})],
    R.GET_KV_CONFIG: [Row("describe_configs cluster", {"namespace": "n", "key": "k"})],
    R.DELETE_KV_CONFIG: [Row("alter_configs cluster", {"namespace": "n", "key": "none"})],
    R.GET_KVLIST_BY_NAMESPACE: [Row("describe_configs cluster", {"namespace": "n"})],
    R.WIPE_WRITE_PERM_OF_BROKER: [Row("alter_configs cluster", {"brokerName": "none"})],
    R.ADD_WRITE_PERM_OF_BROKER: [Row("alter_configs cluster", {"brokerName": "none"})],
    R.GET_NAMESRV_CONFIG: [Row("describe_configs cluster")],
    R.UPDATE_NAMESRV_CONFIG: [Row("alter_configs cluster", {"num.partitions": "1"})],
    R.GET_BROKER_MEMBER_GROUP: [Row("", {"brokerName": "dragoman-1"})],
    # Refused to everybody, with the code of a refusal by rules.
    R.REGISTER_BROKER: [],
    R.UNREGISTER_BROKER: [],
    R.QUERY_DATA_VERSION: [],
    R.BROKER_HEARTBEAT: [],
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: [Row("alter_configs group h", {"groupName": "h"})],
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: [
        Row("alter_configs group h", body={"groupConfigList": [{"groupName": "h"}]})
    ],
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: [Row("describe group g", sees=lacks('"g"'))],
    R.GET_SUBSCRIPTIONGROUP_CONFIG: [Row("describe_configs group g", GROUP)],
    R.DELETE_SUBSCRIPTIONGROUP: [Row("delete group h", {"groupName": "h"})],
    R.UPDATE_AND_GET_GROUP_FORBIDDEN: [
        Row("describe_configs group g,describe topic t", GROUP | {"topic": "t"}),
        Row(
            "alter_configs group g,describe topic t",
            GROUP | {"topic": "t", "readable": "true"},
        ),
    ],
    R.QUERY_TOPIC_CONSUME_BY_WHO: [
        Row("describe topic t", {"topic": "t"}),
        Row("describe topic t,describe group g", {"topic": "t"}, sees=lacks('"g"')),
    ],
    R.QUERY_TOPICS_BY_CONSUMER: [
        Row("describe group g", GROUP),
        Row("describe group g,describe topic t", GROUP, sees=lacks('"t"')),
    ],
    R.QUERY_SUBSCRIPTION_BY_CONSUMER: [
        Row("describe group g,describe topic t", GROUP | {"topic": "t"})
    ],
    R.GET_CONSUMER_CONNECTION_LIST: [
        Row("describe group g", GROUP),
        Row("describe group g,describe topic t", GROUP, sees=lacks('"t"')),
    ],
    R.GET_PRODUCER_CONNECTION_LIST: [Row("describe cluster", {"producerGroup": "pg"})],
    R.GET_ALL_PRODUCER_INFO: [_CLUSTER_DESCRIBE],
    R.GET_CONSUMER_RUNNING_INFO: [Row("describe group g", GROUP | {"clientId": "c1"})],
    R.CONSUME_MESSAGE_DIRECTLY: [
        Row(
            "read group g,describe group g,read topic t",
            GROUP | {"clientId": "c1", "msgId": "0" * 32, "topic": "t"},
        ),
    ],
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: [
        Row("describe group g,describe topic t", GROUP | {"topic": "t"})
    ],
    R.GET_CONSUME_STATS: [
        Row("describe group g,describe topic t", GROUP | {"topic": "t"}),
        Row("describe group g,describe topic t", GROUP, sees=lacks(_IN_KEY)),
    ],
    R.GET_BROKER_CONSUME_STATS: [Row("describe group g,describe topic t", sees=lacks(_IN_KEY))],
    R.QUERY_CONSUME_TIME_SPAN: [Row("describe group g,describe topic t", GROUP | {"topic": "t"})],
    R.GET_ALL_CONSUMER_OFFSET: [Row("describe group g,describe topic t", sees=lacks("t@g"))],
    R.GET_ALL_DELAY_OFFSET: [_ANYBODY],
    R.QUERY_CORRECTION_OFFSET: [Row("describe topic t", {"topic": "t"})],
    R.INVOKE_BROKER_TO_RESET_OFFSET: [
        Row("read group g,read topic t", GROUP | {"topic": "t", "timestamp": -1})
    ],
    R.CLONE_GROUP_OFFSET: [
        Row("describe group g,read group h", {"srcGroup": "g", "destGroup": "h"})
    ],
    R.QUERY_MESSAGE: [Row("read topic t", {"topic": "t", "key": "k"})],
    R.VIEW_MESSAGE_BY_ID: [Row("read topic t", sees=hidden, more=_at)],
    R.QUERY_CONSUME_QUEUE: [
        Row("read topic t,describe topic t", QUEUE | {"index": 0, "count": 1}),
        Row(
            "read topic t,describe topic t,describe group g",
            QUEUE | GROUP | {"index": 0},
            sees=lacks('"subString"'),
        ),
    ],
    R.GET_BROKER_CONFIG: [Row("describe_configs cluster")],
    R.UPDATE_BROKER_CONFIG: [Row("alter_configs cluster", {"num.partitions": "1"})],
    R.GET_BROKER_RUNTIME_INFO: [_CLUSTER_DESCRIBE],
    R.VIEW_BROKER_STATS_DATA: [
        Row("describe topic t", {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"})
    ],
    R.CLEAN_EXPIRED_CONSUMEQUEUE: [Row("alter cluster")],
    R.DELETE_EXPIRED_COMMITLOG: [Row("alter cluster")],
    R.CLEAN_UNUSED_TOPIC: [Row("alter cluster")],
}


def test_every_request_has_a_row() -> None:
    assert sorted([*ROWS, *ELSEWHERE]) == sorted(REQUESTS)


CASES: Final = [(code, index) for code, rows in ROWS.items() for index in range(len(rows))]


@pytest.mark.parametrize(("code", "index"), CASES, ids=lambda each: getattr(each, "name", each))
def test_request_needs_exactly_these_rights(code: Request, index: int) -> None:
    stage, case = Stage(), ROWS[code][index]
    body = b"" if case.body is None else msgspec.json.encode(case.body)
    if isinstance(case.body, msgspec.Struct):
        body = bodies.encode(case.body)

    def is_refused(*denied: Right) -> bool:
        case.prepare(stage)
        with stage.guard.without(denied):
            number = stage.pipe.send(code, case.fields | case.more(stage), body)
            stage.world.settle()
            return case.sees(stage.pipe.replies().get(number))

    for each in case.all_needs:
        assert is_refused(*each), each
        with no_stack_left():
            is_refused(*each)
        if len(each) > 1:
            assert not any(map(is_refused, each)), "one of these rights suffices"
    kept = [] if case.sees is no_permission else [need("read group g"), need("read topic t")]
    refused = [each for each in others(RESOURCES, [*case.all_needs, *kept]) if is_refused(each)]
    assert refused == []


# ---- at once


@pytest.mark.parametrize("words", ["read topic t", "read group g"])
def test_long_poll_ends_with_the_right(words: str) -> None:
    stage = Stage()
    held = pull_fields("t", 1) | {"sysFlag": 6, "suspendTimeoutMillis": 15_000}
    number = stage.pipe.send(Request.PULL_MESSAGE, held)
    stage.world.settle()
    with stage.guard.without(need("read topic bystander")):
        assert stage.pipe.replies() == {}
    with stage.guard.without(need(words)):
        answer = stage.pipe.replies()[number]
    assert answer.code == Response.NO_PERMISSION
    assert len(stage.world.broker.grants) == 0
    # The connection and its reader serve the next pull.
    assert stage.pipe.pull("t", 0).code == Response.SUCCESS


def test_end_of_a_transaction_needs_the_right_to_write() -> None:
    stage = Stage()
    sent = stage.pipe.ok(
        Request.SEND_MESSAGE,
        send_fields("t", {"TRAN_MSG": "true", "PGROUP": "pg"}) | {"sysFlag": 4},
        b"half",
    )
    physical = int(sent.fields["msgId"].split(",")[0][-16:], 16)

    def end() -> Command:
        return stage.pipe.ask(
            Request.END_TRANSACTION,
            {
                "producerGroup": "pg",
                "commitLogOffset": physical,
                "tranStateTableOffset": sent.fields["queueOffset"],
                "commitOrRollback": 8,
            },
        )

    for denied in (need("write topic t"),):
        with stage.guard.without(denied):
            refused = end()
    assert refused.code == Response.SYSTEM_ERROR
    # The refusal does not say which topic the half is for.
    assert refused.remark == "Find prepared transaction message failed"
    assert end().code == Response.SUCCESS


def test_delayed_message_is_delivered_when_the_right_was_taken_after_it_was_sent() -> None:
    stage = Stage()
    stage.pipe.ok(Request.SEND_MESSAGE, send_fields("t", {"DELAY": "1"}), b"late")
    with stage.guard.without(need("write topic t")):
        stage.world.advance(5)
        stage.world.settle()
    assert [each.body for each in stage.pipe.messages("t")] == [b"v", b"late"]


def test_producer_that_may_not_write_is_not_asked_about_a_half() -> None:
    stage = Stage()
    half = send_fields("t", {"TRAN_MSG": "true", "PGROUP": "pg"}) | {"sysFlag": 4}
    stage.pipe.ok(Request.SEND_MESSAGE, half, b"half")

    def asked() -> bool:
        """Whether the broker asks within some minutes, in which the producer is there."""
        stage.pipe.pushed.clear()
        for _ in range(10):
            stage.pipe.beat("c1", producer="pg")
            stage.world.advance(30)
            stage.pipe.replies()
        return any(each.code == Request.CHECK_TRANSACTION_STATE for each in stage.pipe.pushed)

    with stage.guard.without(need("write topic t")):
        assert not asked()
    assert asked()


def test_group_with_an_escaped_dot_has_no_way_to_the_retries_of_another() -> None:
    stage = Stage()
    back = {"group": "a%2Eb", "offset": str(stage.physical), "delayLevel": "-1"}
    with stage.guard.without(need("read group a.b")):
        refused = stage.pipe.ask(Request.CONSUMER_SEND_MSG_BACK, back)
        beaten = stage.pipe.beat("c9", "a%2Eb", {"t": "*"})
    assert refused.code == beaten.code == Response.NO_PERMISSION
    assert not stage.world.broker.image.topics.keys() & {"%RETRY%a.b", "%DLQ%a.b"}
    assert stage.pipe.beat("c9", "a%2Eb", {"t": "*"}).code == Response.SUCCESS


def test_retries_of_a_group_that_begins_like_an_escaped_dot_need_the_right_on_the_group() -> None:
    stage = Stage()
    assert stage.pipe.beat("c9", "2Easy", {"t": "*"}).code == Response.SUCCESS
    assert "%RETRY%2Easy" in stage.world.broker.image.topics
    pull = pull_fields("%RETRY%2Easy") | {"consumerGroup": "2Easy"}
    with stage.guard.without(need("read topic %RETRY.asy")):
        assert stage.pipe.ask(Request.PULL_MESSAGE, pull).code != Response.NO_PERMISSION
    with stage.guard.without(need("read group 2Easy")):
        assert stage.pipe.ask(Request.PULL_MESSAGE, pull).code == Response.NO_PERMISSION


def test_producers_need_no_right_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "ROCKETMQ_PRODUCERS_PER_USER_MAX", 3)
    stage = Stage()
    assert stage.pipe.beat("c1", producer="pg").code == Response.SUCCESS
    other = RocketmqPipe(stage.world)
    for name in ("p1", "p2", "p1"):
        assert other.beat("c2", producer=name).code == Response.SUCCESS
    assert other.beat("c2", producer="p3").code == Response.SYSTEM_BUSY
    other.lose()
    stage.world.settle()
    for name in ("p3", "p4"):
        assert stage.pipe.beat("c1", producer=name).code == Response.SUCCESS
    assert stage.pipe.beat("c1", producer="p5").code == Response.SYSTEM_BUSY


def test_connection_forgets_the_clients_that_have_left() -> None:
    stage = Stage()
    session = stage.pipe.channel._session
    assert isinstance(session, RocketmqSession)
    before = len(session.on_gone)
    for number in range(5):
        name = f"x{number}"
        stage.pipe.beat(name, "g", {"t": "*"}, producer=name)
        leave = {"clientID": name, "consumerGroup": "g", "producerGroup": name}
        stage.pipe.ok(Request.UNREGISTER_CLIENT, leave)
    assert len(session.on_gone) == before
