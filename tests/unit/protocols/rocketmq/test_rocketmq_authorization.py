"""Goal: no request of RocketMQ's gets past the authorizer.

Method: a world with topics, groups and messages whose authorizer then forbids everything: each
request is refused, or shows nothing; the same requests are answered when all is allowed.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import World
from worlds.rocketmq import RocketmqPipe, pull_fields, send_fields


class Rules(AllowAll):
    def __init__(self) -> None:
        self.forbids = False

    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        assert caller.name
        assert name or resource is Resource.CLUSTER, (operation, resource)
        return not self.forbids


QUEUE = {"topic": "T", "queueId": 0}
GROUP = {"group": "g", "consumerGroup": "g"}
#: Requests that are refused as a whole.
REFUSED: dict[Request, dict[str, object]] = {
    Request.SEND_MESSAGE: send_fields("T"),
    Request.PULL_MESSAGE: pull_fields("T"),
    Request.QUERY_MESSAGE: {"topic": "T", "key": "k"},
    Request.QUERY_CONSUMER_OFFSET: QUEUE | GROUP,
    Request.UPDATE_CONSUMER_OFFSET: QUEUE | GROUP | {"commitOffset": 1},
    Request.UPDATE_AND_CREATE_TOPIC: {
        "topic": "T",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 4,
    },
    Request.DELETE_TOPIC_IN_BROKER: {"topic": "T"},
    Request.GET_TOPIC_CONFIG: {"topic": "T"},
    Request.GET_TOPIC_STATS_INFO: {"topic": "T"},
    Request.GET_ROUTEINFO_BY_TOPIC: {"topic": "T"},
    Request.GET_BROKER_CONFIG: {},
    Request.UPDATE_BROKER_CONFIG: {"num.partitions": 7},
    Request.GET_NAMESRV_CONFIG: {},
    Request.UPDATE_NAMESRV_CONFIG: {"num.partitions": 7},
    Request.GET_BROKER_RUNTIME_INFO: {},
    Request.SEARCH_OFFSET_BY_TIMESTAMP: QUEUE | {"timestamp": 0},
    Request.GET_MAX_OFFSET: QUEUE,
    Request.GET_MIN_OFFSET: QUEUE,
    Request.GET_EARLIEST_MSG_STORETIME: QUEUE,
    Request.GET_CONSUMER_LIST_BY_GROUP: GROUP,
    Request.PUT_KV_CONFIG: {"namespace": "n", "key": "j", "value": "v"},
    Request.GET_KV_CONFIG: {"namespace": "n", "key": "k"},
    Request.DELETE_KV_CONFIG: {"namespace": "n", "key": "k"},
    Request.GET_KVLIST_BY_NAMESPACE: {"namespace": "n"},
    Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "g", "consumeEnable": "false"},
    Request.GET_SUBSCRIPTIONGROUP_CONFIG: GROUP,
    Request.DELETE_SUBSCRIPTIONGROUP: {"groupName": "g"},
    Request.UPDATE_AND_GET_GROUP_FORBIDDEN: GROUP | {"topic": "T", "readable": "false"},
    Request.GET_CONSUMER_CONNECTION_LIST: GROUP,
    Request.GET_PRODUCER_CONNECTION_LIST: {"producerGroup": "pg"},
    Request.GET_ALL_PRODUCER_INFO: {},
    Request.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "dragoman-1"},
    Request.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "dragoman-1"},
    Request.GET_CONSUME_STATS: GROUP,
    Request.INVOKE_BROKER_TO_RESET_OFFSET: GROUP | {"topic": "T", "timestamp": -1},
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: GROUP | {"topic": "T"},
    Request.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": "T"},
    Request.QUERY_CONSUME_TIME_SPAN: GROUP | {"topic": "T"},
    Request.CLEAN_EXPIRED_CONSUMEQUEUE: {},
    Request.DELETE_EXPIRED_COMMITLOG: {},
    Request.CLEAN_UNUSED_TOPIC: {},
    Request.GET_CONSUMER_RUNNING_INFO: GROUP | {"clientId": "c1"},
    Request.QUERY_CORRECTION_OFFSET: {"topic": "T"},
    Request.CLONE_GROUP_OFFSET: {"srcGroup": "g", "destGroup": "h"},
    Request.QUERY_CONSUME_QUEUE: QUEUE | {"index": 0, "count": 1},
    Request.QUERY_TOPICS_BY_CONSUMER: GROUP,
    Request.QUERY_SUBSCRIPTION_BY_CONSUMER: GROUP | {"topic": "T"},
    Request.SET_MESSAGE_REQUEST_MODE: GROUP | {"topic": "T", "mode": "PULL"},
    Request.REGISTER_TOPIC_IN_NAMESRV: {"topic": "V"},
}
BODIES = {
    Request.REGISTER_TOPIC_IN_NAMESRV: {"queueDatas": [{"brokerName": "b"}]},
}
#: Lists that are empty then, and where.
EMPTY = {
    Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: "topicList",
    Request.GET_ALL_TOPIC_CONFIG: "topicConfigTable",
    Request.GET_ALL_CONSUMER_OFFSET: "offsetTable",
    Request.GET_BROKER_CONSUME_STATS: "consumeStatsList",
}
WAITING = (
    Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Request.GET_CONSUMER_RUNNING_INFO,
)


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def pipe(rules: Rules) -> RocketmqPipe:
    made = RocketmqPipe(World(authorizer=rules))
    made.create("T", 1)
    made.put("T", b"v", {"KEYS": "k"})
    made.beat("c1", "g", {"T": "*"}, producer="pg")
    made.ok(Request.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "g"} | QUEUE | {"commitOffset": 1})
    made.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    return made


@pytest.mark.parametrize("code", REFUSED, ids=lambda code: code.name)
def test_request_is_refused(pipe: RocketmqPipe, rules: Rules, code: Request) -> None:
    rules.forbids = True
    body = msgspec.json.encode(BODIES[code]) if code in BODIES else b""
    refused, remark = pipe.refused(code, REFUSED[code], body)
    assert refused == Response.NO_PERMISSION, remark
    assert "ANONYMOUS may not" in remark
    rules.forbids = False
    if code not in WAITING:
        assert pipe.ask(code, REFUSED[code], body).code != Response.NO_PERMISSION


@pytest.mark.parametrize("code", EMPTY, ids=lambda code: code.name)
def test_list_is_empty(pipe: RocketmqPipe, rules: Rules, code: Request) -> None:
    def shown() -> object:
        return msgspec.json.decode(tool.ok(code).body, type=dict)[EMPTY[code]]

    tool = RocketmqPipe(pipe.world, "GO")
    assert shown()
    rules.forbids = True
    assert not shown()


def test_groups_are_hidden(pipe: RocketmqPipe, rules: Rules) -> None:
    pipe.ok(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "configured"})
    rules.forbids = True
    reply = pipe.ok(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    shown = msgspec.json.decode(reply.body, type=dict)
    assert shown["subscriptionGroupTable"] == {}


def test_message_is_not_viewed(pipe: RocketmqPipe, rules: Rules) -> None:
    (message,) = pipe.messages("T")
    rules.forbids = True
    fields: dict[str, object] = {"offset": message.physical_offset}
    hidden = pipe.refused(Request.VIEW_MESSAGE_BY_ID, fields)
    missing = pipe.refused(Request.VIEW_MESSAGE_BY_ID, {"offset": 1 << 50})
    # The refusal names no topic, because the request has named none.
    assert hidden[0] == missing[0] == Response.SYSTEM_ERROR
    assert hidden[1].rpartition(" ")[0] == missing[1].rpartition(" ")[0]
