"""Goal: the node answers RocketMQ's clients as the original does: codes, fields and remarks.

Method: connections to a broker on virtual time, with a disk in memory.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
import msgspec
import pytest

from dragoman import limits
from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import ForeignGroup
from dragoman.broker.groups.offsets import CommitRequest
from dragoman.config.settings import Settings
from dragoman.log.batch import Record, build_batch
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command, encode
from dragoman.protocols.rocketmq.constants import IS_ONE_WAY, Request, Response, Serialization
from dragoman.protocols.rocketmq.handlers import offsets, pull
from dragoman.protocols.rocketmq.handlers.names import physical_offset, split_physical
from dragoman.protocols.rocketmq.messages import (
    BatchedMessage,
    decode_messages,
    encode_batch,
    host_text,
    read_message_id,
)
from dragoman.types import GroupId
from worlds.broker import World
from worlds.rocketmq import BROKER, BROKERS_OWN, RocketmqPipe, pull_fields, send_fields, table

SUSPEND = {"sysFlag": 6, "suspendTimeoutMillis": 20_000}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


# ---- frames


def test_an_unknown_request_is_refused_and_the_connection_stays(pipe: RocketmqPipe) -> None:
    assert pipe.refused(9999) == (3, "request type 9999 not supported")
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\6\0\0\0\2[]",
        b"\0\0\0\6\0\0\0\x09{}",
        b"\0\0\0\6\7\0\0\2{}",
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\0\0\0",
    ],
)
def test_what_is_no_frame_ends_the_connection(pipe: RocketmqPipe, data: bytes) -> None:
    pipe.feed(data)
    pipe.world.settle()
    assert pipe.channel.is_closing
    assert pipe.received() == b""


def test_a_one_way_request_has_no_answer_whatever_comes_of_it(pipe: RocketmqPipe) -> None:
    pipe.tell(9999, {})
    pipe.tell(Request.SEND_MESSAGE, send_fields("T"), b"v")
    assert pipe.replies() == {}
    assert [each.body for each in pipe.messages("T")] == [b"v"]


def test_unexpected_responses_are_dropped(pipe: RocketmqPipe) -> None:
    pipe.feed(encode(Command(code=0, opaque=77, flag=1)))
    assert pipe.ask(Request.GET_BROKER_CLUSTER_INFO).code == 0


def test_answers_have_the_serialisation_of_the_request(world: World) -> None:
    pipe = RocketmqPipe(world, serialization=Serialization.BINARY)
    assert pipe.put("T").serialization is Serialization.BINARY


def test_fields_that_are_missing_or_no_numbers_are_named(pipe: RocketmqPipe) -> None:
    assert pipe.refused(Request.PULL_MESSAGE) == (1, "the custom field <topic> is null")
    pipe.create("T")
    for value in ("x", "", "9" * 30, str(1 << 63)):
        code, remark = pipe.refused(
            Request.SEND_MESSAGE, send_fields("T") | {"queueId": value}, b"v"
        )
        assert code == 1
        assert "<queueId>" in remark


def test_a_body_that_is_no_json_is_refused_with_a_remark(pipe: RocketmqPipe) -> None:
    for code in (Request.HEART_BEAT, Request.LOCK_BATCH_MQ):
        for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"clientID":7}'):
            number, remark = pipe.refused(code, {}, body)
            assert number == 1
            assert remark


# ---- routes


def test_the_route_of_a_topic(pipe: RocketmqPipe) -> None:
    pipe.create("T", 3)
    reply = pipe.ok(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert b" " not in reply.body
    assert table(reply) == {
        "queueDatas": [
            {
                "brokerName": BROKER,
                "readQueueNums": 3,
                "writeQueueNums": 3,
                "perm": 6,
                "topicSysFlag": 0,
            }
        ],
        "brokerDatas": [
            {
                "brokerName": BROKER,
                "cluster": "DefaultCluster",
                "brokerAddrs": {"0": "127.0.0.1:10911"},
            }
        ],
        "filterServerTable": {},
    }


def test_a_topic_that_there_is_not_has_no_route(pipe: RocketmqPipe) -> None:
    code, remark = pipe.refused(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"})
    assert code == Response.TOPIC_NOT_EXIST
    assert "nowhere" in remark


def test_the_template_has_a_route_only_while_topics_are_made_on_first_use(world: World) -> None:
    route = table(RocketmqPipe(world).ok(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}))
    assert route["queueDatas"][0]["perm"] == 7  # type: ignore[index]
    strict = World(Settings(auto_create_topics_enable=False))
    pipe = RocketmqPipe(strict)
    assert pipe.refused(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})[0] == 17
    assert pipe.put("T").code == Response.TOPIC_NOT_EXIST


def test_internal_topics_are_hidden(pipe: RocketmqPipe) -> None:
    pipe.beat("c", "g", {"T": "*"})
    name = "__consumer_offsets"
    assert pipe.refused(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": name})[0] == 17
    assert pipe.refused(Request.PULL_MESSAGE, pull_fields(name))[0] == 17


def test_a_topic_with_a_dot_has_two_spellings(pipe: RocketmqPipe) -> None:
    pipe.create("orders.eu", 2)
    for spelt in ("orders.eu", "orders%2Eeu"):
        assert pipe.ok(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": spelt})
        assert pipe.put(spelt, b"v").code == 0
        found = pipe.messages(spelt)
        assert {each.topic for each in found} == {spelt}
    assert len(pipe.messages("orders.eu")) == 2
    assert set(pipe.world.broker.image.topics) == {"orders.eu"}


def test_a_topic_of_64_queues(pipe: RocketmqPipe) -> None:
    pipe.create("wide", 64)
    assert pipe.put("wide", b"v", queue=63).fields["queueId"] == "63"
    assert pipe.messages("wide", queue=63)[0].queue_id == 63
    assert pipe.refused(Request.SEND_MESSAGE, send_fields("wide", queue=64))[0] == 29
    assert pipe.refused(Request.PULL_MESSAGE, pull_fields("wide", 0, 64))[0] == 29


# ---- sending


def test_a_message_comes_back_as_it_was_sent(pipe: RocketmqPipe) -> None:
    properties = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U1", "mine": "ü", "WAIT": "true"}
    reply = pipe.put("T", b"hello", properties, queue=1, flag=7, bornTimestamp=123)
    assert reply.fields["queueId"] == "1"
    assert reply.fields["queueOffset"] == "0"
    assert reply.fields["transactionId"] == "U1"
    (message,) = pipe.messages("T", queue=1)
    assert message.body == b"hello"
    assert message.properties == properties | BROKERS_OWN
    assert (message.flag, message.born_ms, message.queue_id, message.queue_offset) == (7, 123, 1, 0)
    assert message.message_id == reply.fields["msgId"]
    host, physical = read_message_id(reply.fields["msgId"])
    assert host_text(host) == "127.0.0.1:10911"
    assert split_physical(physical) == (2, 0)


def test_a_kafka_consumer_sees_properties_as_headers(pipe: RocketmqPipe) -> None:
    pipe.put("T", b"hello", {"TAGS": "a", "KEYS": "k1", "mine": "x"})
    log = pipe.world.broker.partitions.find("T", 0).log
    (record,) = log.iterate(0, 1)
    assert (record.key, record.value) == (b"k1", b"hello")
    headers = dict(record.headers)
    assert headers["rocketmq.TAGS"] == b"a"
    assert headers["rocketmq.mine"] == b"x"
    assert "rocketmq.KEYS" not in headers


def test_what_the_broker_says_about_itself_is_not_stored(pipe: RocketmqPipe) -> None:
    """Kafka clients see the properties that were sent; consumers see the broker's own as well."""
    reply = pipe.put("T", b"v", {"UNIQ_KEY": "U", "TRACE_ON": "false", "MSG_REGION": "elsewhere"})
    (message,) = pipe.messages("T")
    assert message.properties == {"UNIQ_KEY": "U"} | BROKERS_OWN
    replica = pipe.world.broker.partitions.find("T", 0)
    (record,) = replica.log.iterate(0, 1)
    names = [name for name, _ in record.headers]
    assert names == ["rocketmq", "rocketmq.UNIQ_KEY", "rocketmq.TRACE_ON", "rocketmq.MSG_REGION"]
    _, physical = read_message_id(reply.fields["msgId"])
    found = pipe.ok(Request.VIEW_MESSAGE_BY_ID, {"offset": physical, "topic": "T"})
    (viewed,) = decode_messages(found.body)
    assert viewed.properties == message.properties


def test_records_of_other_protocols_are_messages(pipe: RocketmqPipe) -> None:
    (replica,) = pipe.world.create("T")
    record = Record(
        key=b"key",
        value=None,
        headers=(("TAGS", b"a"), ("bin", b"\xff"), ("cut", b"x\x01y"), ("none", None)),
        timestamp=55,
    )
    pipe.world.append(replica, build_batch([record]))
    (message,) = pipe.messages("T", subscription="a||b")
    assert message.body == b""
    assert message.properties == {"TAGS": "a", "KEYS": "key"} | BROKERS_OWN
    assert message.born_ms == message.store_ms == 55
    assert pipe.messages("T", subscription="b") == []


def test_the_short_names_of_fields(pipe: RocketmqPipe) -> None:
    long = send_fields("T", {"TAGS": "x"}, 2)
    names = list(long)
    fields = {"abcdefghi"[index]: long[name] for index, name in enumerate(names)}
    assert pipe.ok(Request.SEND_MESSAGE_V2, fields, b"v").fields["queueId"] == "2"
    assert pipe.messages("T", queue=2)[0].properties["TAGS"] == "x"


@pytest.mark.parametrize("code", [Request.SEND_BATCH_MESSAGE, Request.SEND_MESSAGE])
def test_a_batch_has_consecutive_offsets(pipe: RocketmqPipe, code: int) -> None:
    body = encode_batch([BatchedMessage(0, b"a", b"TAGS\x01x\x02"), BatchedMessage(3, b"bc", b"")])
    fields = send_fields("T") | {"batch": "1"}
    if code == Request.SEND_BATCH_MESSAGE:
        fields = {"b": "T", "e": 0, "f": 0, "g": 5, "h": 0, "m": "true"}
    reply = pipe.ok(code, fields, body)
    assert reply.fields["queueOffset"] == "0"
    ids = reply.fields["msgId"].split(",")
    found = pipe.messages("T")
    assert [(each.body, each.flag, each.queue_offset) for each in found] == [
        (b"a", 0, 0),
        (b"bc", 3, 1),
    ]
    assert [each.message_id for each in found] == ids


@pytest.mark.parametrize("body", [b"", b"\0\0\0\x1e", b"x" * 30])
def test_a_bad_batch_is_refused(pipe: RocketmqPipe, body: bytes) -> None:
    fields = send_fields("T") | {"batch": "true"}
    assert pipe.refused(Request.SEND_MESSAGE, fields, body)[0] == Response.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("kind", "compress"),
    [
        (0, zlib.compress),
        (3, zlib.compress),
        (1, lambda data: bytes(cramjam.lz4.compress(data))),
        (2, lambda data: bytes(cramjam.zstd.compress(data))),
    ],
)
def test_compressed_bodies_are_stored_plain(
    pipe: RocketmqPipe, kind: int, compress: object
) -> None:
    body = b"x" * 10_000
    packed = compress(body)  # type: ignore[operator]
    assert pipe.put("T", packed, sysFlag=1 | kind << 8).code == 0
    (message,) = pipe.messages("T")
    assert message.body == body
    assert not message.sys_flag & 0x701


def test_what_is_not_compressed_as_it_says_is_refused(pipe: RocketmqPipe) -> None:
    bomb = zlib.compress(bytes(64 << 20))
    for body in (b"plain", zlib.compress(b"x" * 100)[:-3], bomb):
        for kind in (0, 1, 2):
            assert pipe.put("T", body, sysFlag=1 | kind << 8).code == Response.MESSAGE_ILLEGAL


def test_send_without_a_queue_is_spread_over_all_queues(pipe: RocketmqPipe) -> None:
    pipe.create("T", 4)
    found = {pipe.put("T", queue=-1).fields["queueId"] for _ in range(40)}
    assert found == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("a b", 29),
        ("x" * 128, 29),
        ("ü", 29),
        ("SCHEDULE_TOPIC_XXXX", 16),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 16),
        ("OFFSET_MOVED_EVENT", 16),
    ],
)
def test_send_to_a_reserved_topic_is_refused(pipe: RocketmqPipe, topic: str, code: int) -> None:
    assert pipe.refused(Request.SEND_MESSAGE, send_fields(topic), b"v")[0] == code


def test_a_message_and_a_batch_of_four_megabytes(pipe: RocketmqPipe) -> None:
    assert pipe.put("T", bytes(4 << 20)).code == 0
    assert len(pipe.messages("T")[0].body) == 4 << 20
    batch = encode_batch([BatchedMessage(0, bytes([each]) * 400_000, b"") for each in range(9)])
    reply = pipe.ok(Request.SEND_MESSAGE, send_fields("T", queue=1) | {"batch": "true"}, batch)
    assert len(reply.fields["msgId"].split(",")) == 9
    found = [pipe.messages("T", offset, queue=1)[0].body[0] for offset in range(9)]
    assert found == list(range(9))


def test_numbers_that_do_not_fit_into_a_message(pipe: RocketmqPipe) -> None:
    for name in ("flag", "sysFlag", "reconsumeTimes"):
        fields = send_fields("T") | {name: 1 << 40}
        assert pipe.refused(Request.SEND_MESSAGE, fields, b"v")[0] == 1


def test_messages_that_are_too_large(pipe: RocketmqPipe) -> None:
    assert pipe.put("T", bytes((4 << 20) + 1)).code == Response.MESSAGE_ILLEGAL
    reply = pipe.ask(
        Request.SEND_MESSAGE, send_fields("T") | {"properties": "a\x01" + "b" * 32767}, b"v"
    )
    assert reply.code == Response.MESSAGE_ILLEGAL


def test_a_topic_is_made_with_as_many_queues_as_are_asked_for_but_four(pipe: RocketmqPipe) -> None:
    for asked, given in ((1, 1), (4, 4), (64, 4), (0, 1)):
        assert pipe.put(f"T{asked}", defaultTopicQueueNums=asked).code == 0
        assert len(pipe.world.broker.image.topics[f"T{asked}"].partitions) == given


def test_a_missing_unique_key_is_given(pipe: RocketmqPipe) -> None:
    reply = pipe.put("T")
    (message,) = pipe.messages("T")
    assert message.properties["UNIQ_KEY"] == reply.fields["transactionId"]
    assert len(message.properties["UNIQ_KEY"]) == 32


# ---- pulling


def pulled(reply: Command) -> tuple[int, int, int, int]:
    fields = reply.fields
    assert fields["suggestWhichBrokerId"] == "0"
    numbers = (fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    return (reply.code, *map(int, numbers))  # type: ignore[return-value]


def test_where_a_pull_stands(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    assert pulled(pipe.pull("T", 0)) == (19, 0, 0, 0)
    assert pulled(pipe.pull("T", 5)) == (21, 0, 0, 0)
    for number in range(5):
        pipe.put("T", b"%d" % number)
    assert pulled(pipe.pull("T", 0)) == (0, 5, 0, 5)
    assert pulled(pipe.pull("T", 1, maxMsgNums=2)) == (0, 3, 0, 5)
    assert pulled(pipe.pull("T", 5)) == (19, 5, 0, 5)
    assert pulled(pipe.pull("T", 9)) == (21, 5, 0, 5)
    pipe.world.broker.partitions.find("T", 0).log.move_log_start(2)
    assert pulled(pipe.pull("T", 1)) == (21, 2, 2, 5)
    assert [each.body for each in pipe.messages("T", 2)] == [b"2", b"3", b"4"]


def test_a_pull_waits_for_a_message(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    number = pipe.send(Request.PULL_MESSAGE, pull_fields("T") | SUSPEND)
    pipe.world.advance(5)
    assert pipe.replies() == {}
    other = RocketmqPipe(pipe.world)
    other.put("T", b"v")
    reply = pipe.replies()[number]
    assert pulled(reply) == (0, 1, 0, 1)


def test_a_pull_that_waited_in_vain(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    number = pipe.send(Request.PULL_MESSAGE, pull_fields("T") | SUSPEND)
    pipe.world.advance(19.9)
    assert pipe.replies() == {}
    pipe.world.advance(0.2)
    assert pulled(pipe.replies()[number]) == (19, 0, 0, 0)


def test_no_pull_is_held_longer_than_clients_wait(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    fields = pull_fields("T") | {"sysFlag": 6, "suspendTimeoutMillis": 600_000}
    number = pipe.send(Request.PULL_MESSAGE, fields)
    pipe.world.advance(26)
    assert number in pipe.replies()


def test_a_held_pull_does_not_hold_up_others(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    pipe.send(Request.PULL_MESSAGE, pull_fields("T") | SUSPEND)
    assert pipe.put("T", queue=1).code == 0
    assert len(pipe.messages("T", queue=1)) == 1


def test_a_held_pull_ignores_messages_that_do_not_match(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    fields = pull_fields("T") | SUSPEND | {"subscription": "a"}
    number = pipe.send(Request.PULL_MESSAGE, fields)
    other = RocketmqPipe(pipe.world)
    other.put("T", b"1", {"TAGS": "b"})
    assert pipe.replies() == {}
    other.put("T", b"2", {"TAGS": "a"})
    reply = pipe.replies()[number]
    assert pulled(reply) == (0, 2, 0, 2)
    number = pipe.send(Request.PULL_MESSAGE, fields | {"queueOffset": 2})
    other.put("T", b"3", {"TAGS": "b"})
    pipe.world.advance(21)
    assert pulled(pipe.replies()[number]) == (20, 3, 0, 3)


def test_filters(pipe: RocketmqPipe) -> None:
    for tag in ("a", "b", "c", ""):
        pipe.put("T", tag.encode(), {"TAGS": tag, "n": str(len(tag))})
    for expression, found in (("*", 4), ("", 4), ("a || c", 2), ("x", 0)):
        reply = pipe.pull("T", subscription=expression)
        assert reply.code == (0 if found else 20)
        assert reply.fields["nextBeginOffset"] == "4"
        assert len(pipe.messages("T", subscription=expression)) == found
    sql = {"expressionType": "SQL92", "subscription": "n = 1 AND TAGS <> 'b'"}
    assert [each.body for each in pipe.messages("T", **sql)] == [b"a", b"c"]
    bad = pull_fields("T") | {"expressionType": "SQL92", "subscription": "n = "}
    assert pipe.refused(Request.PULL_MESSAGE, bad)[0] == Response.SUBSCRIPTION_PARSE_FAILED


def test_a_subscription_is_checked_before_it_is_made(pipe: RocketmqPipe) -> None:
    def check(kind: str, expression: str) -> bytes:
        subscription = {"topic": "t", "expressionType": kind, "subString": expression}
        return msgspec.json.encode(
            {"clientId": "c", "group": "g", "subscriptionData": subscription}
        )

    pipe.ok(Request.CHECK_CLIENT_CONFIG, body=check("SQL92", "n > 1 AND TAGS IN ('a', 'b')"))
    pipe.ok(Request.CHECK_CLIENT_CONFIG, body=check("TAG", "a || b"))
    pipe.ok(Request.CHECK_CLIENT_CONFIG, body=b'{"clientId":"c","group":"g"}')
    code, remark = pipe.refused(Request.CHECK_CLIENT_CONFIG, body=check("SQL92", "n >"))
    assert code == Response.SUBSCRIPTION_PARSE_FAILED
    assert "parse" in remark


def test_the_subscription_of_a_heartbeat(pipe: RocketmqPipe) -> None:
    """The official Go client sends none with its pulls."""
    pipe.put("T", b"1", {"TAGS": "a"})
    pipe.put("T", b"2", {"TAGS": "b"})
    fields = pull_fields("T") | {"sysFlag": 2, "subscription": ""}
    assert pipe.refused(Request.PULL_MESSAGE, fields)[0] == Response.SUBSCRIPTION_NOT_EXIST
    pipe.beat("c", "g", {"T": "b"})
    reply = pipe.ok(Request.PULL_MESSAGE, fields)
    assert reply.fields["nextBeginOffset"] == "2"
    assert pipe.refused(Request.PULL_MESSAGE, fields | {"subVersion": 9})[0] == 25


def test_a_pull_commits(pipe: RocketmqPipe) -> None:
    pipe.put("T")
    pipe.pull("T", 1, sysFlag=5, commitOffset=1)
    query = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert pipe.ok(Request.QUERY_CONSUMER_OFFSET, query).fields == {"offset": "1"}


def test_a_large_message_comes_alone(pipe: RocketmqPipe) -> None:
    for _ in range(3):
        pipe.put("T", bytes(300_000))
    assert [len(each.body) for each in pipe.messages("T")] == [300_000]


def test_a_client_that_takes_nothing_gets_nothing_more(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    number = pipe.send(Request.PULL_MESSAGE, pull_fields("T") | SUSPEND)
    pipe.channel.pause_writing()
    RocketmqPipe(pipe.world).put("T")
    assert pipe.replies() == {}
    pipe.channel.resume_writing()
    pipe.world.settle()
    assert pulled(pipe.replies()[number]) == (0, 1, 0, 1)


def test_a_client_that_goes_leaves_nothing_behind(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    before = pipe.world.budget.used
    pipe.send(Request.PULL_MESSAGE, pull_fields("T") | SUSPEND)
    pipe.channel.connection_lost(None)
    RocketmqPipe(pipe.world).put("T")
    pipe.world.advance(30)
    assert pipe.world.budget.used == before


# ---- offsets


def test_committed_offsets(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    query: dict[str, object] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert pipe.refused(Request.QUERY_CONSUMER_OFFSET, query)[0] == Response.QUERY_NOT_FOUND
    for offset, seen in ((7, "7"), (3, "3"), (-1, "3")):
        pipe.ok(Request.UPDATE_CONSUMER_OFFSET, query | {"commitOffset": offset})
        assert pipe.ok(Request.QUERY_CONSUMER_OFFSET, query).fields == {"offset": seen}


def test_a_group_that_is_new_to_a_young_queue_may_begin_at_its_first_message(
    pipe: RocketmqPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members hear of a topic up to 30 seconds after its first message."""
    pipe.create("T", 2)
    unwanted: dict[str, object] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    query = unwanted | {"setZeroIfNotFound": "true"}
    code = Request.QUERY_CONSUMER_OFFSET
    assert pipe.refused(code, query)[0] == Response.QUERY_NOT_FOUND
    for _ in range(3):
        pipe.put("T")
    assert pipe.ok(code, query).fields == {"offset": "0"}
    assert pipe.refused(code, query | {"queueId": 1})[0] == Response.QUERY_NOT_FOUND
    assert pipe.refused(code, unwanted)[0] == Response.QUERY_NOT_FOUND
    missing = query | {"topic": "there-is-none"}
    assert pipe.refused(code, missing)[0] == Response.QUERY_NOT_FOUND
    monkeypatch.setattr(offsets, "ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX", 2)
    assert pipe.refused(code, query)[0] == Response.QUERY_NOT_FOUND


def test_a_commit_without_an_answer_is_seen_by_the_next_request(pipe: RocketmqPipe) -> None:
    """A client whose offsets are reset commits the new ones one way, and queries them at once."""
    pipe.create("T", 2)
    query: dict[str, object] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    pipe.ok(Request.UPDATE_CONSUMER_OFFSET, query | {"commitOffset": 7})
    for offset in (5, 0):
        pipe.send(Request.UPDATE_CONSUMER_OFFSET, query | {"commitOffset": offset}, flag=IS_ONE_WAY)
    number = pipe.send(Request.QUERY_CONSUMER_OFFSET, query)
    other = pipe.send(Request.QUERY_CONSUMER_OFFSET, query | {"queueId": 1})
    pipe.world.settle()
    replies = pipe.replies()
    assert replies[number].fields == {"offset": "0"}
    assert replies[other].code == Response.QUERY_NOT_FOUND


def test_ends_and_times(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    where: dict[str, object] = {"topic": "T", "queueId": 0}
    times = []
    for _ in range(3):
        times.append(pipe.world.clock.wall_ms())
        pipe.put("T")
        pipe.world.advance(1)
    ask = pipe.ok
    assert ask(Request.GET_MAX_OFFSET, where).fields == {"offset": "3"}
    assert ask(Request.GET_MIN_OFFSET, where).fields == {"offset": "0"}
    first = ask(Request.GET_EARLIEST_MSG_STORETIME, where).fields
    assert first == {"timestamp": str(times[0])}
    for time, offset in (
        (0, 0),
        (times[1], 1),
        (times[1] + 1, 2),
        (times[2] + 10_000, 3),
    ):
        found = ask(Request.SEARCH_OFFSET_BY_TIMESTAMP, where | {"timestamp": time})
        assert found.fields == {"offset": str(offset)}
    upper = where | {"timestamp": times[1], "boundaryType": "UPPER"}
    assert ask(Request.SEARCH_OFFSET_BY_TIMESTAMP, upper).fields == {"offset": "2"}
    for code in (Request.GET_MAX_OFFSET, Request.GET_MIN_OFFSET):
        assert pipe.refused(code, {"topic": "T", "queueId": 1})[0] == 29
        assert pipe.refused(code, {"topic": "U", "queueId": 0})[0] == 17


# ---- groups


def test_members_are_listed_and_notified_of_changes(world: World) -> None:
    one, two = RocketmqPipe(world), RocketmqPipe(world)
    assert one.beat("c1", "g", {"T": "*"}).version == 399
    assert one.ids("g") == ["c1"]
    one.pushed.clear()
    two.beat("c2", "g", {"T": "*"})
    assert two.ids("g") == one.ids("g") == ["c1", "c2"]
    (pushed,) = one.pushed
    assert (pushed.code, pushed.is_one_way, pushed.fields) == (40, True, {"consumerGroup": "g"})
    one.pushed.clear()
    two.beat("c2", "g", {"T": "*"})
    one.ids("g")
    assert one.pushed == []
    two.ok(Request.UNREGISTER_CLIENT, {"clientID": "c2", "consumerGroup": "g", "producerGroup": ""})
    assert one.ids("g") == ["c1"]
    assert [each.code for each in one.pushed] == [40]


def test_changed_subscription_is_reported(world: World) -> None:
    one, two = RocketmqPipe(world), RocketmqPipe(world)
    one.beat("c1", "g", {"T": "*"})
    two.beat("c2", "g", {"T": "*"})
    one.ids("g")
    one.pushed.clear()
    two.beat("c2", "g", {"T": "*", "U": "*"})
    one.ids("g")
    assert [each.code for each in one.pushed] == [40]


def test_members_go_with_their_connection_or_their_silence(world: World) -> None:
    pipes = [RocketmqPipe(world) for _ in range(3)]
    for number, pipe in enumerate(pipes):
        pipe.beat(f"c{number}", "g", {"T": "*"})
    pipes[2].channel.connection_lost(None)
    assert pipes[0].ids("g") == ["c0", "c1"]
    for _ in range(14):
        world.advance(10)
        pipes[0].beat("c0", "g", {"T": "*"})
    assert pipes[0].ids("g") == ["c0"]


def test_a_group_without_members_is_said_to_have_none(pipe: RocketmqPipe) -> None:
    code, _ = pipe.refused(Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert code == Response.SYSTEM_ERROR


def test_a_heartbeat_makes_the_retry_topic(pipe: RocketmqPipe) -> None:
    pipe.beat("c", "g", {"T": "*"})
    route = table(pipe.ok(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%g"}))
    assert route["queueDatas"][0]["readQueueNums"] == 1  # type: ignore[index]


def test_enumerations_as_numbers_and_sets_that_are_not_there(pipe: RocketmqPipe) -> None:
    """As the C++ client has them."""
    body = (
        b'{"clientID":"1@x","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,'
        b'"consumeFromWhere":0,"subscriptionDataSet":[{"topic":"T","subString":"a","subVersion":"5",'
        b'"codeSet":[0,0],"tagsSet":null}]}],"producerDataSet":null}'
    )
    assert pipe.ask(Request.HEART_BEAT, {}, body).code == 0
    assert pipe.ids("g") == ["1@x"]


def test_a_group_with_members_of_another_protocol_is_not_joined(world: World) -> None:
    pipe = RocketmqPipe(world)
    pipe.beat("c", "g", {"T": "*"})
    outcome: list[object] = []
    request = CommitRequest(group_id=GroupId("g"), offsets=(), owner="kafka")
    world.broker.coordination.groups.commit_anywhere(request, outcome.append, caller=NODE_ITSELF)
    world.settle()
    assert isinstance(outcome[0], ForeignGroup)


def test_locks(world: World) -> None:
    one, two = RocketmqPipe(world), RocketmqPipe(world)
    one.create("T", 2)
    one.beat("c1", "g", {"T": "*"})
    two.beat("c2", "g", {"T": "*"})

    def lock(pipe: RocketmqPipe, client: str, code: int = Request.LOCK_BATCH_MQ) -> list[int]:
        queues = [
            bodies.MessageQueue(topic="T", broker_name=BROKER, queue_id=each) for each in (0, 1, 9)
        ]
        wanted = bodies.LockBatch(consumer_group="g", client_id=client, mq_set=queues)
        reply = pipe.ok(code, {}, bodies.encode(wanted))
        if code == Request.UNLOCK_BATCH_MQ:
            return []
        held = bodies.decode(reply.body, bodies.LockedBatch).lock_ok_mq_set
        return [each.queue_id for each in held]

    assert lock(one, "c1") == [0, 1]
    assert lock(two, "c2") == []
    assert lock(one, "c1") == [0, 1]
    lock(one, "c1", Request.UNLOCK_BATCH_MQ)
    assert lock(two, "c2") == [0, 1]
    world.advance(59)
    assert lock(one, "c1") == []
    world.advance(2)
    assert lock(one, "c1") == [0, 1]
    one.channel.connection_lost(None)
    assert lock(two, "c2") == [0, 1]


# ---- physical offsets


@pytest.mark.parametrize(
    ("partition_id", "offset"),
    [(1, 0), (17, 1 << 33), (1 << 17, 5), (1, 1 << 36), ((1 << 20) - 1, (1 << 42) - 1)],
)
def test_physical_offsets_name_one_record(partition_id: int, offset: int) -> None:
    physical = physical_offset(partition_id, offset)
    assert split_physical(physical) == (partition_id, offset)
    assert 0 <= physical < 1 << 63
    if partition_id < 1 << 18 and offset < 1 << 34:
        assert physical < 1 << 53


def test_offsets_that_were_never_given_out_name_nothing() -> None:
    assert split_physical(-5) == (-1, 0)
    assert split_physical((1 << 62) - 1)[0] > 1 << 20


def test_a_request_that_is_to_be_replied_to_says_where(pipe: RocketmqPipe) -> None:
    pipe.put("T", b"v", {"REPLY_TO_CLIENT": "c", "CORRELATION_ID": "1"})
    assert pipe.messages("T")[0].properties["CLUSTER"] == "DefaultCluster"
    fields = send_fields("R", {"REPLY_TO_CLIENT": "c", "CORRELATION_ID": "1"})
    assert pipe.refused(Request.SEND_REPLY_MESSAGE, fields, b"answer")[0] == 1
    pipe.beat("c", producer="p")
    pipe.ok(Request.SEND_REPLY_MESSAGE, fields, b"answer")
    (pushed,) = [each for each in pipe.pushed if each.code == 326]
    assert pushed.body == b"answer"
    assert pushed.fields["topic"] == "R"
    no_client = send_fields("R", {"CORRELATION_ID": "1"})
    assert pipe.refused(Request.SEND_REPLY_MESSAGE, no_client, b"answer")[0] == 1


def test_topics_of_the_tools_take_messages_as_large_as_others_do(pipe: RocketmqPipe) -> None:
    fields = {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    pipe.ok(Request.UPDATE_AND_CREATE_TOPIC, fields)
    assert pipe.put("T", b"x" * (2 << 20)).code == 0


def test_a_batch_may_not_expand_beyond_its_bound(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    many = [BatchedMessage(0, zlib.compress(bytes(20 << 20)), b"")] * 3
    fields = {**send_fields("T"), "batch": "true", "sysFlag": 1}
    reply = pipe.ask(Request.SEND_MESSAGE, fields, encode_batch(many))
    assert reply.code == Response.MESSAGE_ILLEGAL
    assert "bytes when inflated" in (reply.remark or "")


def test_a_queue_that_no_topic_can_have_is_refused(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 1 << 40, "commitOffset": 1}
    reply = pipe.ask(Request.UPDATE_CONSUMER_OFFSET, fields)
    assert reply.code == Response.INVALID_PARAMETER


def test_a_filter_looks_at_no_more_than_its_bound_in_one_turn(
    pipe: RocketmqPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before its first match nor after it."""
    monkeypatch.setattr(pull, "ROCKETMQ_SCAN_BYTES_MAX", 10_000)
    pipe.create("T", 1)
    pipe.put("T", b"found", {"TAGS": "hit"})
    for _ in range(200):
        pipe.put("T", b"x" * 500, {"TAGS": "miss"})
    reply = pipe.ask(Request.PULL_MESSAGE, {**pull_fields("T"), "subscription": "hit"})
    assert [each.body for each in decode_messages(reply.body)] == [b"found"]
    assert int(reply.fields["nextBeginOffset"]) < 100


# ---- how much one request may hold


def test_heartbeat_has_bounds(world: World, pipe: RocketmqPipe) -> None:
    assert pipe.beat("c" * 2048, producer="p").code == Response.SUCCESS
    assert pipe.beat("c" * 2049, producer="p").code == Response.SYSTEM_ERROR
    few = {f"T{at}": "*" for at in range(1000)}
    assert pipe.beat("c", "g", few).code == Response.SUCCESS
    many = {f"T{at}": "*" for at in range(10_001)}
    assert pipe.beat("c", "g", many).code != Response.SUCCESS
    reply = pipe.ask(Request.HEART_BEAT, {}, b" " * (1 << 20) + b"{}")
    assert reply.code == Response.INVALID_PARAMETER
    assert "too large" in (reply.remark or "")


def test_what_consumers_say_is_charged_to_the_groups(
    world: World, pipe: RocketmqPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_BYTES_MAX", 100_000)
    codes = [
        pipe.beat(f"c{at}", f"g{at}", {f"T{each}": "x" * 100 for each in range(100)}).code
        for at in range(10)
    ]
    assert codes[0] == Response.SUCCESS
    assert codes[-1] != Response.SUCCESS


def test_batch_of_more_messages_than_one_may_have_is_refused(
    world: World, pipe: RocketmqPipe
) -> None:
    pipe.create("T")
    one = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"v" + struct.pack(">h", 0)
    reply = pipe.ask(Request.SEND_BATCH_MESSAGE, send_fields("T"), one * 20_001)
    assert reply.code != Response.SUCCESS
    assert world.broker.partitions.find("T", 0).log.log_end_offset == 0
