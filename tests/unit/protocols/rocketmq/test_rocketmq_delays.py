"""Goal: delays, retries, dead letters and transactions of RocketMQ end as their clients expect.

Method: connections to a broker on virtual time, which is killed in between.
"""

from __future__ import annotations

import pytest

from dragoman.log.batch import Record, build_batch
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import DELAY_LEVELS_S, Request, Response
from dragoman.protocols.rocketmq.messages import (
    decode_messages,
    encode_properties,
    read_message_id,
)
from worlds.broker import World
from worlds.rocketmq import BROKERS_OWN, RocketmqPipe, send_fields

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


def bodies_of(pipe: RocketmqPipe, topic: str) -> list[bytes]:
    """Of all messages of a topic's first queue, if there is such a topic."""
    if pipe.ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code:
        return []
    return [each.body for each in pipe.messages(topic)]


# ---- delays


@pytest.mark.parametrize("level", [1, 2, 5, 18, 99])
def test_a_delayed_message_comes_when_it_is_due_and_not_before(
    pipe: RocketmqPipe, level: int
) -> None:
    seconds = DELAY_LEVELS_S[min(level, 18) - 1]
    reply = pipe.put("T", b"late", {"DELAY": str(level), "TAGS": "a", "KEYS": "k"})
    assert reply.code == 0
    pipe.put("T", b"now")
    pipe.world.advance(seconds - 0.01)
    assert bodies_of(pipe, "T") == [b"now"]
    pipe.world.advance(0.02)
    assert bodies_of(pipe, "T") == [b"now", b"late"]
    message = pipe.messages("T")[1]
    assert message.properties["TAGS"] == "a"
    assert message.properties["KEYS"] == "k"
    assert "DELAY" not in message.properties
    pipe.world.advance(10_000)
    assert len(bodies_of(pipe, "T")) == 2


@pytest.mark.parametrize(
    ("name", "value", "is_absolute"),
    [
        ("TIMER_DELIVER_MS", 5000, True),
        ("TIMER_DELAY_MS", 5000, False),
        ("TIMER_DELAY_SEC", 5, False),
        ("__STARTDELIVERTIME", 5000, True),
    ],
)
def test_times_of_delivery(pipe: RocketmqPipe, name: str, value: int, is_absolute: bool) -> None:
    now = pipe.world.clock.wall_ms()
    given = value + now if is_absolute else value
    assert pipe.put("T", b"v", {name: str(given)}).code == 0
    assert pipe.put("T", b"past", {"TIMER_DELIVER_MS": str(now - 1)}).code == 0
    pipe.world.advance(4.9)
    assert bodies_of(pipe, "T") == [b"past"]
    pipe.world.advance(0.2)
    assert bodies_of(pipe, "T") == [b"past", b"v"]


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "soon"},
        {"TIMER_DELAY_SEC": "-1"},
        {"TIMER_DELAY_SEC": str(3 * 24 * 3600 + 1)},
        {"TIMER_DELIVER_MS": "9" * 16},
    ],
)
def test_delays_that_cannot_be(pipe: RocketmqPipe, properties: dict[str, str]) -> None:
    assert pipe.put("T", b"v", properties).code == Response.MESSAGE_ILLEGAL


@pytest.mark.parametrize("kill", [True, False])
def test_a_delayed_message_is_delivered_once_after_a_restart(kill: bool) -> None:
    world = World()
    pipe = RocketmqPipe(world)
    for number in range(3):
        pipe.put("T", b"%d" % number, {"DELAY": "3"})
    world.advance(4)
    world = world.reopened(kill=kill)
    pipe = RocketmqPipe(world)
    world.advance(1)
    assert bodies_of(pipe, "T") == []
    world.advance(60)
    assert bodies_of(pipe, "T") == [b"0", b"1", b"2"]
    world = world.reopened(kill=kill)
    pipe = RocketmqPipe(world)
    world.advance(60)
    assert bodies_of(pipe, "T") == [b"0", b"1", b"2"]


# ---- retries


def send_back(pipe: RocketmqPipe, reply: Command, group: str = "g", **fields: object) -> Command:
    _, physical = read_message_id(reply.fields["msgId"])
    return pipe.ask(
        Request.CONSUMER_SEND_MSG_BACK,
        {"offset": physical, "group": group, "delayLevel": 0, **fields},
    )


def test_a_message_that_is_sent_back_comes_again(pipe: RocketmqPipe) -> None:
    reply = pipe.put("T", b"v", {"TAGS": "a", "mine": "x"}, queue=2)
    assert send_back(pipe, reply).code == 0
    pipe.world.advance(9.9)
    assert bodies_of(pipe, "%RETRY%g") == []
    pipe.world.advance(0.2)
    (message,) = pipe.messages("%RETRY%g")
    assert message.body == b"v"
    assert message.reconsume_times == 1
    assert message.properties["RETRY_TOPIC"] == "T"
    assert message.properties["ORIGIN_MESSAGE_ID"] == reply.fields["msgId"]
    assert message.properties["TAGS"] == "a"
    assert message.properties["mine"] == "x"


def test_each_retry_waits_longer_until_the_message_is_dead(pipe: RocketmqPipe) -> None:
    reply = pipe.put("T", b"v")
    place, topic = read_message_id(reply.fields["msgId"])[1], "T"
    for times in range(16):
        fields: dict[str, object] = {"offset": place, "group": "g", "delayLevel": 0}
        assert pipe.ask(Request.CONSUMER_SEND_MSG_BACK, fields).code == 0
        topic = "%RETRY%g"
        pipe.world.advance(DELAY_LEVELS_S[min(3 + times, 18) - 1] + 0.1)
        message = pipe.messages(topic, times)[0]
        assert message.reconsume_times == times + 1
        assert message.properties["RETRY_TOPIC"] == "T"
        place = message.physical_offset
    assert bodies_of(pipe, "%DLQ%g") == []
    fields = {"offset": place, "group": "g", "delayLevel": 0}
    assert pipe.ask(Request.CONSUMER_SEND_MSG_BACK, fields).code == 0
    (dead,) = pipe.messages("%DLQ%g")
    assert dead.body == b"v"
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
    assert dead.properties["ORIGIN_MESSAGE_ID"] == reply.fields["msgId"]
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == reply.fields["msgId"]


def test_the_origin_of_a_dead_letter_is_the_id_that_it_is_looked_up_by(pipe: RocketmqPipe) -> None:
    """Clients name the unique key in the request; that is not the id which the original keeps."""
    reply = pipe.put("T", b"v", {"UNIQ_KEY": "U"})
    assert send_back(pipe, reply, delayLevel=-1, originMsgId="U", originTopic="T").code == 0
    (dead,) = pipe.messages("%DLQ%g")
    assert dead.properties["UNIQ_KEY"] == "U"
    origin = dead.properties["ORIGIN_MESSAGE_ID"]
    assert origin == reply.fields["msgId"] == dead.properties["DLQ_ORIGIN_MESSAGE_ID"]
    _, physical = read_message_id(origin)
    found = pipe.ok(Request.VIEW_MESSAGE_BY_ID, {"offset": physical, "topic": "T"})
    assert [each.body for each in decode_messages(found.body)] == [b"v"]


def test_a_negative_level_means_dead_at_once(pipe: RocketmqPipe) -> None:
    assert send_back(pipe, pipe.put("T", b"v"), delayLevel=-1).code == 0
    assert bodies_of(pipe, "%DLQ%g") == [b"v"]


def test_the_client_says_how_often(pipe: RocketmqPipe) -> None:
    assert send_back(pipe, pipe.put("T", b"v"), maxReconsumeTimes=0).code == 0
    assert bodies_of(pipe, "%DLQ%g") == [b"v"]


def test_a_record_of_another_protocol_can_be_retried(pipe: RocketmqPipe) -> None:
    (replica,) = pipe.world.create("orders.eu")
    pipe.world.append(replica, build_batch([Record(key=b"k", value=b"v", timestamp=5)]))
    (message,) = pipe.messages("orders.eu")
    fields: dict[str, object] = {"offset": message.physical_offset, "group": "g", "delayLevel": 1}
    pipe.ok(Request.CONSUMER_SEND_MSG_BACK, fields)
    pipe.world.advance(1.1)
    (again,) = pipe.messages("%RETRY%g")
    assert again.body == b"v"
    assert again.properties["RETRY_TOPIC"] == "orders%2Eeu"
    assert again.properties["KEYS"] == "k"


def test_what_is_not_there_cannot_be_sent_back(pipe: RocketmqPipe) -> None:
    pipe.put("T")
    _, place = read_message_id(pipe.put("T").fields["msgId"])
    for offset in (-1, 0, place + 1, 1 << 50, (1 << 62) + 5):
        fields: dict[str, object] = {"offset": offset, "group": "g", "delayLevel": 0}
        assert pipe.refused(Request.CONSUMER_SEND_MSG_BACK, fields)[0] == 1


def test_a_client_that_sends_a_message_again_by_itself(pipe: RocketmqPipe) -> None:
    """When a send-back fails, Java's client sends the message to the retry topic."""
    fields = send_fields("%RETRY%g", {"DELAY": "1", "RETRY_TOPIC": "T"})
    pipe.ok(Request.SEND_MESSAGE, fields | {"reconsumeTimes": 3, "maxReconsumeTimes": 16}, b"v")
    pipe.world.advance(1.1)
    (message,) = pipe.messages("%RETRY%g")
    assert message.reconsume_times == 3
    pipe.ok(Request.SEND_MESSAGE, fields | {"reconsumeTimes": 17, "maxReconsumeTimes": 16}, b"v")
    assert bodies_of(pipe, "%DLQ%g") == [b"v"]


# ---- transactions


def half(pipe: RocketmqPipe, body: bytes = b"v", **properties: str) -> Command:
    given = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U"} | properties
    reply = pipe.put("T", body, given, queue=1, sysFlag=4)
    assert reply.code == 0
    return reply


def end(pipe: RocketmqPipe, reply: Command, decision: int, **fields: object) -> Command:
    _, physical = read_message_id(reply.fields["msgId"])
    return pipe.ask(
        Request.END_TRANSACTION,
        {
            "producerGroup": "pg",
            "tranStateTableOffset": reply.fields["queueOffset"],
            "commitLogOffset": physical,
            "commitOrRollback": decision,
            "msgId": "U",
            "transactionId": "U",
            **fields,
        },
    )


def test_a_half_is_seen_when_it_is_committed(pipe: RocketmqPipe) -> None:
    reply = half(pipe)
    assert pipe.messages("T", queue=1) == []
    assert end(pipe, reply, COMMIT).code == 0
    (message,) = pipe.messages("T", queue=1)
    assert message.body == b"v"
    assert message.sys_flag & 12 == 8
    assert message.properties == BROKERS_OWN | {
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "UNIQ_KEY": "U",
        "__transactionId__": "U",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
    }
    assert end(pipe, reply, COMMIT).code == 0
    assert len(pipe.messages("T", queue=1)) == 1


def test_a_half_that_is_rolled_back_is_never_seen(pipe: RocketmqPipe) -> None:
    reply = half(pipe)
    assert end(pipe, reply, ROLLBACK).code == 0
    pipe.world.advance(1000)
    assert pipe.messages("T", queue=1) == []


def test_only_its_group_decides_about_a_half(pipe: RocketmqPipe) -> None:
    reply = half(pipe)
    assert end(pipe, reply, COMMIT, producerGroup="other").remark == "The producer group wrong"
    assert end(pipe, reply, COMMIT, tranStateTableOffset=99).code == 1
    assert end(pipe, reply, COMMIT, commitLogOffset=12345).code == 1
    assert pipe.messages("T", queue=1) == []
    assert end(pipe, reply, COMMIT).code == 0


def test_who_does_not_know_yet_is_not_answered(pipe: RocketmqPipe) -> None:
    reply = half(pipe)
    _, physical = read_message_id(reply.fields["msgId"])
    fields = {"producerGroup": "pg", "commitLogOffset": physical, "commitOrRollback": UNKNOWN}
    pipe.send(Request.END_TRANSACTION, fields)
    pipe.world.settle()
    assert pipe.replies() == {}


def checked(pipe: RocketmqPipe) -> list[Command]:
    pipe.replies()
    found = [each for each in pipe.pushed if each.code == Request.CHECK_TRANSACTION_STATE]
    pipe.pushed.clear()
    return found


@pytest.mark.parametrize("kill", [True, False])
def test_a_producer_is_asked_after_a_kill_between_half_and_commit(kill: bool) -> None:
    world = World()
    half(RocketmqPipe(world), b"v")
    world = world.reopened(kill=kill)
    pipe = RocketmqPipe(world)
    other = RocketmqPipe(world)
    other.beat("c0", producer="another")
    pipe.beat("c1", producer="pg")
    world.advance(7)
    (asked,) = checked(pipe)
    assert checked(other) == []
    assert asked.is_one_way
    (message,) = decode_messages(asked.body)
    assert (message.topic, message.queue_id, message.body) == ("T", 1, b"v")
    assert message.sys_flag & 12 == 4
    assert message.properties == BROKERS_OWN | {
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "UNIQ_KEY": "U",
        "__transactionId__": "U",
        "REAL_TOPIC": "T",
        "REAL_QID": "1",
        "TRANSACTION_CHECK_TIMES": "1",
    }
    assert asked.fields["msgId"] == asked.fields["transactionId"] == "U"
    pipe.ok(
        Request.END_TRANSACTION,
        {
            "producerGroup": "pg",
            "tranStateTableOffset": asked.fields["tranStateTableOffset"],
            "commitLogOffset": asked.fields["commitLogOffset"],
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "true",
        },
    )
    assert [each.body for each in pipe.messages("T", queue=1)] == [b"v"]
    world.advance(1000)
    assert checked(pipe) == []
    assert len(pipe.messages("T", queue=1)) == 1


def test_a_producer_is_asked_so_often_and_then_the_half_is_put_aside(pipe: RocketmqPipe) -> None:
    reply = half(pipe)
    questions = []
    for _ in range(60):
        pipe.beat("c1", producer="pg")
        pipe.world.advance(10)
        questions += checked(pipe)
    counted = [
        message.properties["TRANSACTION_CHECK_TIMES"]
        for each in questions
        for message in decode_messages(each.body)
    ]
    assert counted == [str(number) for number in range(1, 16)]
    assert end(pipe, reply, COMMIT).code == 1
    (message,) = pipe.messages("TRANS_CHECK_MAX_TIME_TOPIC")
    assert message.properties["REAL_TOPIC"] == "T"
    pipe.ok(Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": message.message_id})
    pipe.beat("c1", producer="pg")
    pipe.world.advance(1)
    assert len(checked(pipe)) == 1


def test_the_first_question_can_be_put_off(pipe: RocketmqPipe) -> None:
    pipe.beat("c1", producer="pg")
    half(pipe, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    pipe.world.advance(55)
    assert checked(pipe) == []
    pipe.beat("c1", producer="pg")
    pipe.world.advance(6)
    assert len(checked(pipe)) == 1


def test_a_half_without_a_group_is_refused(pipe: RocketmqPipe) -> None:
    fields = send_fields("T") | {"sysFlag": 4, "producerGroup": ""}
    assert pipe.refused(Request.SEND_MESSAGE, fields, b"v")[0] == Response.MESSAGE_ILLEGAL


def test_a_half_whose_properties_leave_no_room_for_the_question_is_refused(
    pipe: RocketmqPipe,
) -> None:
    pipe.create("T", 1)
    properties = {"PGROUP": "pg", "UNIQ_KEY": "U", "x": "y"}
    properties["x"] *= 32_760 - len(encode_properties(properties)) + 1
    refused = pipe.put("T", b"half", properties, sysFlag=4)
    assert (refused.code, refused.remark) == (
        Response.MESSAGE_ILLEGAL,
        "the properties of a half take more than 32511 bytes",
    )
    assert pipe.put("T", b"plain", properties).code == 0
    (message,) = pipe.messages("T")
    assert message.properties == properties, "nothing is added where there is no room"
