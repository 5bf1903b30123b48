"""Goal: bodies are spelt as on the wire, and what clients send differently means the same."""

from __future__ import annotations

import json as standard

import msgspec
import pytest

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    BrokerData,
    ConsumeFrom,
    ConsumerConnection,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    QueueData,
    SubscriptionData,
    TopicRouteData,
    decode,
    encode,
)

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


def test_a_route_is_that_of_the_specification() -> None:
    route = TopicRouteData(
        queue_datas=[QueueData(broker_name="broker-a")],
        broker_datas=[
            BrokerData(
                broker_name="broker-a",
                cluster="DefaultCluster",
                broker_addrs={"0": "10.0.0.1:10911"},
            )
        ],
    )
    assert decode(ROUTE, TopicRouteData) == route
    assert standard.loads(encode(route)) == standard.loads(ROUTE)
    assert b" " not in encode(route)


def test_routes_of_java_have_bare_keys_and_nulls() -> None:
    odd = ROUTE.replace(b'"0":', b"0:").replace(
        b'"filterServerTable":{}', b'"filterServerTable":null'
    )
    assert decode(odd, TopicRouteData) == decode(ROUTE, TopicRouteData)


@pytest.mark.parametrize(
    ("kind", "model", "start", "version"),
    [
        (b'"CONSUME_PASSIVELY"', b'"CLUSTERING"', b'"CONSUME_FROM_FIRST_OFFSET"', b"5"),
        (b"1", b"1", b"4", b'"5"'),
        (b'"1"', b'"1"', b'"4"', b"5"),
    ],
)
def test_heartbeats_mean_the_same_however_they_are_spelt(
    kind: bytes, model: bytes, start: bytes, version: bytes
) -> None:
    data = (
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":%s,"messageModel":%s,"consumeFromWhere":%s,"unitMode":false,'
        b'"subscriptionDataSet":[{"topic":"T","subString":"a || b","codeSet":[0,0],'
        b'"tagsSet":null,"subVersion":%s,"unknown":{}}]}]}' % (kind, model, start, version)
    )
    beat = decode(data, HeartbeatData)
    (consumer,) = beat.consumer_data_set
    assert (beat.client_id, beat.producer_data_set) == ("c", [])
    assert consumer.consume_type is ConsumeType.PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFrom.FIRST_OFFSET
    assert consumer.subscription_data_set == [
        SubscriptionData(topic="T", sub_string="a || b", code_set=[0, 0], sub_version=5)
    ]


@pytest.mark.parametrize("bad", [b"7", b"-1", b'"SOMEHOW"', b"true", b'"99999999999"'])
def test_an_enumeration_has_no_other_values(bad: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(b'{"consumeType":%s}' % bad, ConsumerConnection)


def test_queues_sort_as_java_sorts_them() -> None:
    queues = [
        MessageQueue(topic=topic, broker_name=broker, queue_id=number)
        for topic in "BA"
        for broker in "ba"
        for number in (10, 9)
    ]
    assert [(q.topic, q.broker_name, q.queue_id) for q in sorted(queues)] == [
        (topic, broker, number) for topic in "AB" for broker in "ab" for number in (9, 10)
    ]


def test_a_key_that_is_no_queue_is_refused() -> None:
    with pytest.raises(DecodeError):
        bodies.by_queue({"T-b-0": 1})
    with pytest.raises(DecodeError):
        bodies.by_queue({'{"topic":"T"}': 1})


def test_names_with_capitals_are_those_of_the_wire() -> None:
    written = (
        encode(bodies.LockedBatch(lock_ok_mq_set=[]))
        + encode(bodies.ConsumeStatus())
        + encode(bodies.ProcessQueueInfo())
    )
    for name in (b"lockOKMQSet", b"pullRT", b"consumeOKTPS", b"cachedMsgSizeInMiB", b"droped"):
        assert b'"%s":' % name in written


@pytest.mark.parametrize(
    "kind",
    [
        each
        for each in vars(bodies).values()
        if isinstance(each, type) and issubclass(each, bodies.Body)
    ],
)
def test_every_body_with_its_defaults_reads_back(kind: type[msgspec.Struct]) -> None:
    values: dict[object, object] = {
        MessageQueue: MessageQueue(topic="T", broker_name="b", queue_id=1),
        bodies.BrokerData: bodies.BrokerData(broker_name="b"),
    }
    needed: dict[str, object] = {
        each.name: values.get(each.type, "x")
        for each in msgspec.structs.fields(kind)
        if each.required
    }
    body = kind(**needed)
    assert decode(encode(body), kind) == body


def test_lines_are_read_and_written() -> None:
    assert bodies.read_lines(b"# a comment\na=1\r\nb = x=y \nnothing\n") == {"a": "1", "b": "x=y"}
    assert bodies.write_lines({"a": "1", "b": "x=y"}) == b"a=1\nb=x=y\n"
    with pytest.raises(DecodeError):
        bodies.read_lines(b"\xff=1")
