"""Goal: groups, their members, progress and offsets are administered as the specification says.

Method: connections to a broker on virtual time, as members and as tools, in the languages that read
tables differently; two nodes where the answer has to come from both.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.topics import NewTopic
from dragoman.outcome import start
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import MessageQueue, SubscriptionGroupConfig
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import IS_RESPONSE, Request, Response
from dragoman.protocols.rocketmq.handlers.state import STATE_TOPIC
from worlds.broker import World
from worlds.cursus import CursusPipe
from worlds.rocketmq import BROKER, RocketmqPipe, table
from worlds.two_nodes import Pair

SET_GROUP = Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
RESET = Request.INVOKE_BROKER_TO_RESET_OFFSET


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


def queue(number: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=BROKER, queue_id=number)


def commit(pipe: RocketmqPipe, offset: int, number: int = 0, group: str = "g") -> None:
    pipe.ok(
        Request.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": group, "topic": "T", "queueId": number, "commitOffset": offset},
    )


def committed(pipe: RocketmqPipe, number: int = 0, group: str = "g") -> int | None:
    fields: dict[str, object] = {"consumerGroup": group, "topic": "T", "queueId": number}
    reply = pipe.ask(Request.QUERY_CONSUMER_OFFSET, fields)
    return int(reply.fields["offset"]) if reply.code == 0 else None


def group_config(pipe: RocketmqPipe, group: str = "g") -> SubscriptionGroupConfig:
    reply = pipe.ok(Request.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    return bodies.decode(reply.body, SubscriptionGroupConfig)


def filled(pipe: RocketmqPipe, *counts: int, every_s: float = 1.0) -> None:
    """Topic T with so many messages in its queues, one each second."""
    pipe.create("T", len(counts))
    for number, count in enumerate(counts):
        for _ in range(count):
            pipe.put("T", queue=number)
            pipe.world.advance(every_s)


# ---- configurations


def test_group_is_configured_by_a_body_or_by_fields(pipe: RocketmqPipe) -> None:
    assert group_config(pipe) == SubscriptionGroupConfig(group_name="g")
    wanted = SubscriptionGroupConfig(group_name="g", consume_enable=False, retry_max_times=3)
    pipe.ok(SET_GROUP, {}, bodies.encode(wanted))
    assert group_config(pipe) == wanted
    pipe.ok(SET_GROUP, {"groupName": "h", "consumeEnable": "false", "retryQueueNums": 2})
    assert group_config(pipe, "h") == SubscriptionGroupConfig(
        group_name="h", consume_enable=False, retry_queue_nums=2
    )


def test_disabled_group_may_not_pull(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    pipe.ok(SET_GROUP, {"groupName": "g", "consumeEnable": "false"})
    assert pipe.pull("T").code == Response.NO_PERMISSION
    pipe.ok(SET_GROUP, {"groupName": "g", "consumeEnable": "true"})
    assert pipe.pull("T").code == Response.SUCCESS


def test_groups_are_configured_from_a_list(pipe: RocketmqPipe) -> None:
    wanted = [SubscriptionGroupConfig(group_name=each, broker_id=5) for each in ("a", "b")]
    body = bodies.encode(bodies.SubscriptionGroupList(group_config_list=wanted))
    pipe.ok(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, body)
    assert [group_config(pipe, each) for each in ("a", "b")] == wanted


@pytest.mark.parametrize(
    "fields", [{"groupName": "a b"}, {"groupName": ""}, {"groupName": "g", "retryQueueNums": -1}]
)
def test_bad_group_is_refused(pipe: RocketmqPipe, fields: dict[str, object]) -> None:
    assert pipe.refused(SET_GROUP, fields)[0] == Response.INVALID_PARAMETER


def test_all_groups_are_those_that_are_configured_have_members_or_offsets(
    pipe: RocketmqPipe,
) -> None:
    filled(pipe, 1)
    pipe.ok(SET_GROUP, {"groupName": "configured", "retryMaxTimes": 3})
    commit(pipe, 1, group="committed")
    pipe.beat("c1", "online", {"T": "*"})
    reply = pipe.ok(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = bodies.decode(reply.body, bodies.SubscriptionGroupTable).subscription_group_table
    assert list(found) == ["committed", "configured", "online"]
    assert found["configured"].retry_max_times == 3
    assert reply.fields == {"totalGroupNum": "3"}
    reply = pipe.ok(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": 1, "maxGroupNum": 1})
    found = bodies.decode(reply.body, bodies.SubscriptionGroupTable).subscription_group_table
    assert list(found) == ["configured"]


def test_group_is_deleted_with_or_without_its_offsets(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    pipe.ok(SET_GROUP, {"groupName": "g", "retryMaxTimes": 3})
    commit(pipe, 1)
    for _ in range(2):
        pipe.ok(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert group_config(pipe).retry_max_times == 16
    assert committed(pipe) == 1
    for _ in range(2):
        pipe.ok(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    assert committed(pipe) is None


def test_offsets_of_a_group_with_members_are_not_deleted(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    pipe.beat("c1", "g", {"T": "*"})
    commit(pipe, 1)
    fields: dict[str, object] = {"groupName": "g", "cleanOffset": "true"}
    assert "has members" in pipe.refused(Request.DELETE_SUBSCRIPTIONGROUP, fields)[1]
    assert committed(pipe) == 1


def test_group_is_forbidden_to_read_a_topic(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    fields: dict[str, object] = {"group": "g", "topic": "T"}
    change = Request.UPDATE_AND_GET_GROUP_FORBIDDEN
    assert table(pipe.ok(change, fields)) == {"topic": "T", "group": "g", "readable": True}
    for _ in range(2):
        assert table(pipe.ok(change, fields | {"readable": "false"}))["readable"] is False
    assert pipe.pull("T").code == Response.NO_PERMISSION
    assert pipe.pull("T", consumerGroup="h").code == Response.SUCCESS
    shown = table(pipe.ok(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    assert shown["forbiddenTable"] == {"g": {"T": 4}}
    assert table(pipe.ok(change, fields | {"readable": "true"}))["readable"] is True
    assert pipe.pull("T").code == Response.SUCCESS
    assert pipe.refused(change, fields | {"topic": "U"})[0] == Response.TOPIC_NOT_EXIST


# ---- who reads what


def test_who_reads_a_topic_has_committed_or_subscribed(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    pipe.create("a.b", 1)
    commit(pipe, 1, group="committed")
    pipe.beat("c1", "online", {"T": "*", "a%2Eb": "*"})

    def groups(topic: str) -> list[str]:
        reply = pipe.ok(Request.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return bodies.decode(reply.body, bodies.GroupList).group_list

    assert groups("T") == ["committed", "online"]
    assert groups("a%2Eb") == ["online"]
    assert groups("none") == []


@pytest.mark.parametrize("field", ["group", "consumerGroup"])
def test_topics_of_a_group(pipe: RocketmqPipe, field: str) -> None:
    filled(pipe, 1)
    pipe.create("U", 1)
    commit(pipe, 1)
    pipe.beat("c1", "g", {"U": "*", "gone": "*"})
    reply = pipe.ok(Request.QUERY_TOPICS_BY_CONSUMER, {field: "g"})
    assert bodies.decode(reply.body, bodies.TopicList).topic_list == ["T", "U"]
    reply = pipe.ok(Request.QUERY_TOPICS_BY_CONSUMER, {field: "unknown"})
    assert bodies.decode(reply.body, bodies.TopicList).topic_list == []


def test_subscription_of_a_group(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    pipe.beat("c1", "g", {"T": "a || b"})
    query = Request.QUERY_SUBSCRIPTION_BY_CONSUMER
    shown = bodies.decode(
        pipe.ok(query, {"group": "g", "topic": "T"}).body, bodies.GroupSubscription
    )
    assert shown.subscription_data is not None
    assert shown.subscription_data.sub_string == "a || b"
    shown = bodies.decode(
        pipe.ok(query, {"group": "g", "topic": "U"}).body, bodies.GroupSubscription
    )
    assert shown.subscription_data is None


# ---- connections


def test_members_of_a_group_are_listed(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    second = RocketmqPipe(pipe.world, "GO")
    pipe.beat("c1", "g", {"T": "*"})
    second.beat("c2", "g", {"T": "*"})
    reply = pipe.ok(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    shown = bodies.decode(reply.body, bodies.ConsumerConnection)
    assert [(each.client_id, each.language) for each in shown.connection_set] == [
        ("c1", "JAVA"),
        ("c2", "GO"),
    ]
    assert {each.client_addr for each in shown.connection_set} == {"10.0.0.9:5"}
    assert shown.subscription_table["T"].sub_string == "*"
    code, _ = pipe.refused(Request.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "h"})
    assert code == Response.CONSUMER_NOT_ONLINE


def test_producers_are_listed(pipe: RocketmqPipe) -> None:
    pipe.beat("p1", producer="pg")
    reply = pipe.ok(Request.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "pg"})
    shown = bodies.decode(reply.body, bodies.ProducerConnection)
    assert [each.client_id for each in shown.connection_set] == ["p1"]
    reply = pipe.ok(Request.GET_ALL_PRODUCER_INFO)
    infos = bodies.decode(reply.body, bodies.ProducerTable).data
    assert [each.client_id for each in infos["pg"]] == ["p1"]
    assert infos["pg"][0].last_update_timestamp == pipe.world.clock.wall_ms()
    code, _ = pipe.refused(Request.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "x"})
    assert code == Response.SYSTEM_ERROR


# ---- what members are asked


def pushed(pipe: RocketmqPipe, code: Request) -> Command:
    """The broker's newest request of this kind."""
    pipe.replies()
    return next(each for each in reversed(pipe.pushed) if each.code == code)


RUNNING = (
    b'{"properties":{"a":"b"},"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:'
    b'{"commitOffset":5}}}'
)


@pytest.mark.parametrize(
    ("language", "expected"),
    [("JAVA", RUNNING), ("GO", json.strict(RUNNING))],
)
def test_running_info_is_asked_of_the_member(
    pipe: RocketmqPipe, language: str, expected: bytes
) -> None:
    member, tool = pipe, RocketmqPipe(pipe.world, language)
    member.beat("c1", "g", {"T": "*"})
    fields: dict[str, object] = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
    number = tool.send(Request.GET_CONSUMER_RUNNING_INFO, fields)
    pipe.world.settle()
    asked = pushed(member, Request.GET_CONSUMER_RUNNING_INFO)
    assert asked.fields == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
    member.answer(asked, RUNNING)
    reply = tool.replies()[number]
    assert (reply.code, reply.body) == (0, expected)


def test_absent_member_is_reported(pipe: RocketmqPipe) -> None:
    pipe.beat("c1", "g", {"T": "*"})
    for group, client in (("g", "c2"), ("h", "c1")):
        fields: dict[str, object] = {"consumerGroup": group, "clientId": client}
        code, _ = pipe.refused(Request.GET_CONSUMER_RUNNING_INFO, fields)
        assert code == Response.CONSUMER_NOT_ONLINE


def test_member_that_does_not_answer_is_reported(pipe: RocketmqPipe) -> None:
    tool = RocketmqPipe(pipe.world)
    pipe.beat("c1", "g", {"T": "*"})
    number = tool.send(Request.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c1"})
    pipe.world.advance(10)
    assert tool.replies()[number].code == Response.CONSUME_MSG_TIMEOUT


@pytest.mark.parametrize("by", ["offset", "unique"])
def test_message_is_consumed_directly(pipe: RocketmqPipe, by: str) -> None:
    tool = RocketmqPipe(pipe.world)
    pipe.create("T", 1)
    pipe.beat("c1", "g", {"T": "*"})
    sent = pipe.put("T", b"again", {"UNIQ_KEY": "C0A8010A109214DAD5DC075BCD150007"})
    message_id = sent.fields["msgId"] if by == "offset" else "C0A8010A109214DAD5DC075BCD150007"
    number = tool.send(
        Request.CONSUME_MESSAGE_DIRECTLY,
        {"consumerGroup": "g", "clientId": "c1", "msgId": message_id, "topic": "T"},
    )
    pipe.world.settle()
    asked = pushed(pipe, Request.CONSUME_MESSAGE_DIRECTLY)
    assert b"again" in asked.body
    assert asked.fields["msgId"] == message_id
    assert asked.fields["brokerName"] == BROKER
    pipe.answer(asked, bodies.encode(bodies.DirectConsumption()))
    outcome = bodies.decode(tool.replies()[number].body, bodies.DirectConsumption)
    assert outcome.consume_result == "CR_SUCCESS"


def test_message_that_there_is_not_is_not_consumed(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    pipe.beat("c1", "g", {"T": "*"})
    fields: dict[str, object] = {"consumerGroup": "g", "clientId": "c1", "topic": "T"}
    for message_id in ("7F00000100002A9F00000004FFFFFFFF", "nonsense"):
        code, _ = pipe.refused(Request.CONSUME_MESSAGE_DIRECTLY, fields | {"msgId": message_id})
        assert code == Response.SYSTEM_ERROR


@pytest.mark.parametrize(("language", "is_object"), [("JAVA", True), ("GO", False)])
def test_status_is_asked_of_all_members(pipe: RocketmqPipe, language: str, is_object: bool) -> None:
    second, tool = RocketmqPipe(pipe.world), RocketmqPipe(pipe.world, language)
    pipe.beat("c1", "g", {"T": "*"})
    second.beat("c2", "g", {"T": "*"})
    status = Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    number = tool.send(status, {"topic": "T", "group": "g", "clientAddr": ""})
    pipe.world.settle()
    for each, offset in ((pipe, 5), (second, 7)):
        asked = pushed(each, Request.GET_CONSUMER_STATUS_FROM_CLIENT)
        assert asked.fields == {"topic": "T", "group": "g"}
        offsets = bodies.ClientOffsets(message_queue_table=bodies.keyed({queue(0): offset}))
        each.answer(asked, bodies.encode(offsets, object_keys=True))
    reply = tool.replies()[number]
    assert (b'{{"topic"' in reply.body) is is_object
    found = bodies.decode(reply.body, bodies.GroupOffsets).consumer_table
    assert {name: bodies.by_queue(each) for name, each in found.items()} == {
        "c1": {queue(0): 5},
        "c2": {queue(0): 7},
    }
    code, _ = pipe.refused(status, {"topic": "T", "group": "g", "clientAddr": "c3"})
    assert code == Response.CONSUMER_NOT_ONLINE


def test_refusal_of_a_member_is_passed_on(pipe: RocketmqPipe) -> None:
    tool = RocketmqPipe(pipe.world)
    pipe.beat("c1", "g", {"T": "*"})
    fields: dict[str, object] = {"topic": "T", "group": "g"}
    number = tool.send(Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
    pipe.world.settle()
    pipe.answer(pushed(pipe, Request.GET_CONSUMER_STATUS_FROM_CLIENT), code=1)
    assert tool.replies()[number].code == Response.SYSTEM_ERROR


# ---- progress


@pytest.mark.parametrize(("language", "is_object"), [("JAVA", True), ("GO", False)])
def test_statistics_of_a_topic(pipe: RocketmqPipe, language: str, is_object: bool) -> None:
    filled(pipe, 3, 0)
    tool = RocketmqPipe(pipe.world, language)
    reply = tool.ok(Request.GET_TOPIC_STATS_INFO, {"topic": "T"})
    assert reply.body.startswith(b'{"offsetTable":{{' if is_object else b'{"offsetTable":{"{')
    shown = bodies.decode(reply.body, bodies.TopicStats)
    last = pipe.messages("T")[-1].store_ms
    assert bodies.by_queue(shown.offset_table) == {
        queue(0): bodies.TopicOffset(min_offset=0, max_offset=3, last_update_timestamp=last),
        queue(1): bodies.TopicOffset(),
    }
    assert shown.topic_put_tps == pytest.approx(3 / 60)
    pipe.world.advance(600)
    shown = bodies.decode(
        tool.ok(Request.GET_TOPIC_STATS_INFO, {"topic": "T"}).body, bodies.TopicStats
    )
    assert shown.topic_put_tps == 0
    assert tool.refused(Request.GET_TOPIC_STATS_INFO, {"topic": "U"})[0] == 17


@pytest.mark.parametrize(
    "fields", [{}, {"topic": "T"}, {"topicList": "T;"}, {"topicList": "T", "topic": "T"}]
)
def test_progress_of_a_group(pipe: RocketmqPipe, fields: dict[str, object]) -> None:
    filled(pipe, 3, 2)
    commit(pipe, 2)
    reply = pipe.ok(Request.GET_CONSUME_STATS, {"consumerGroup": "g"} | fields)
    shown = bodies.by_queue(bodies.decode(reply.body, bodies.ConsumeStats).offset_table)
    read_ms = pipe.messages("T")[1].store_ms
    assert shown == {
        queue(0): bodies.OffsetWrapper(
            broker_offset=3, consumer_offset=2, pull_offset=2, last_timestamp=read_ms
        ),
        queue(1): bodies.OffsetWrapper(broker_offset=2),
    }


def test_progress_has_how_fast_the_group_reads(pipe: RocketmqPipe) -> None:
    filled(pipe, 6)
    pipe.pull("T", consumerGroup="h")
    pipe.world.advance(10)
    for group, rate in (("h", 0.1), ("g", 0)):
        reply = pipe.ok(Request.GET_CONSUME_STATS, {"consumerGroup": group, "topic": "T"})
        shown = bodies.decode(reply.body, bodies.ConsumeStats)
        assert shown.consume_tps == pytest.approx(rate)


def test_progress_has_what_members_read_and_their_retries(pipe: RocketmqPipe) -> None:
    filled(pipe, 1)
    pipe.create("old", 1)
    pipe.beat("c1", "g", {"T": "*"})
    commit(pipe, 1)
    pipe.ok(
        Request.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "old", "queueId": 0, "commitOffset": 0},
    )
    pipe.ok(
        Request.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "%RETRY%g", "queueId": 0, "commitOffset": 0},
    )
    reply = pipe.ok(Request.GET_CONSUME_STATS, {"consumerGroup": "g"})
    shown = bodies.by_queue(bodies.decode(reply.body, bodies.ConsumeStats).offset_table)
    assert {each.topic for each in shown} == {"T", "%RETRY%g"}


def test_progress_of_all_groups(pipe: RocketmqPipe) -> None:
    filled(pipe, 3, 2)
    commit(pipe, 2, group="a")
    commit(pipe, 0, number=1, group="b")
    pipe.ok(SET_GROUP, {"groupName": "b", "consumeMessageOrderly": "true"})
    reply = pipe.ok(Request.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    shown = bodies.decode(reply.body, bodies.BrokerConsumeStats)
    assert [list(each) for each in shown.consume_stats_list] == [["a"], ["b"]]
    assert shown.total_diff == (1 + 2) + (3 + 2)
    assert shown.broker_addr == "127.0.0.1:10911"
    reply = pipe.ok(Request.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
    shown = bodies.decode(reply.body, bodies.BrokerConsumeStats)
    assert [list(each) for each in shown.consume_stats_list] == [["b"]]


def test_progress_in_time(pipe: RocketmqPipe) -> None:
    filled(pipe, 3, 0)
    commit(pipe, 1)
    pipe.world.advance(100)
    times = [each.store_ms for each in pipe.messages("T")]
    now = pipe.world.clock.wall_ms()
    for group in ("group", "consumerGroup"):
        reply = pipe.ok(Request.QUERY_CONSUME_TIME_SPAN, {"topic": "T", group: "g"})
        shown = bodies.decode(reply.body, bodies.ConsumeTimeSpan).consume_time_span_set
        assert shown == [
            bodies.QueueTimeSpan(
                message_queue=queue(0),
                min_time_stamp=times[0],
                max_time_stamp=times[2],
                consume_time_stamp=times[0],
                delay_time=now - times[1],
            ),
            bodies.QueueTimeSpan(message_queue=queue(1)),
        ]


def test_all_offsets_are_listed(pipe: RocketmqPipe) -> None:
    filled(pipe, 3, 2)
    commit(pipe, 2)
    commit(pipe, 1, number=1)
    commit(pipe, 3, group="h")
    shown = table(pipe.ok(Request.GET_ALL_CONSUMER_OFFSET))
    assert shown["offsetTable"] == {"T@g": {"0": 2, "1": 1}, "T@h": {"0": 3}}
    assert table(pipe.ok(Request.GET_ALL_DELAY_OFFSET))["offsetTable"] == {}


def test_lowest_offsets_of_the_other_groups(pipe: RocketmqPipe) -> None:
    filled(pipe, 9, 9)
    for group, offsets in (("a", (4, 7)), ("b", (6, 2)), ("c", (1, 1)), ("d", (5, 1))):
        for number, offset in enumerate(offsets):
            commit(pipe, offset, number, group)
    fields: dict[str, object] = {"topic": "T", "filterGroups": "c,d", "compareGroup": "d"}
    shown = table(pipe.ok(Request.QUERY_CORRECTION_OFFSET, fields))
    assert shown == {"correctionOffsets": {"0": 4, "1": (1 << 63) - 1}}
    shown = table(pipe.ok(Request.QUERY_CORRECTION_OFFSET, {"topic": "T"}))
    assert shown == {"correctionOffsets": {"0": 1, "1": 1}}


# ---- resets


def reset(pipe: RocketmqPipe, **fields: object) -> dict[MessageQueue, int]:
    given: dict[str, object] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    reply = pipe.ok(RESET, given | fields)
    return bodies.by_queue(bodies.decode(reply.body, bodies.ResetOffset).offset_table)


def test_offsets_are_reset_to_a_time_without_members(pipe: RocketmqPipe) -> None:
    filled(pipe, 5, 2)
    times = [each.store_ms for each in pipe.messages("T")]
    commit(pipe, 5)
    assert reset(pipe, timestamp=times[3]) == {queue(0): 3, queue(1): 0}
    assert (committed(pipe, 0), committed(pipe, 1)) == (3, 0)
    assert reset(pipe) == {queue(0): 5, queue(1): 2}
    assert reset(pipe, timestamp=0) == {queue(0): 0, queue(1): 0}


def test_reset_that_is_not_forced_passes_nothing_over(pipe: RocketmqPipe) -> None:
    filled(pipe, 5)
    times = [each.store_ms for each in pipe.messages("T")]
    commit(pipe, 3)
    assert reset(pipe, isForce="false") == {queue(0): 3}
    assert reset(pipe, isForce="false", timestamp=times[1]) == {queue(0): 1}
    assert committed(pipe) == 1


def test_one_queue_is_reset_to_an_offset(pipe: RocketmqPipe) -> None:
    filled(pipe, 5, 5)
    commit(pipe, 1)
    commit(pipe, 1, number=1)
    assert reset(pipe, queueId=1, offset=4) == {queue(1): 4}
    assert reset(pipe, queueId=1, offset=99) == {queue(1): 5}
    assert committed(pipe) == 1
    fields: dict[str, object] = {"topic": "T", "group": "g", "timestamp": -1, "queueId": 2}
    assert pipe.refused(RESET, fields)[0] == Response.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("language", "body"),
    [
        ("JAVA", b'{"offsetTable":{{"topic":"T","brokerName":"dragoman-1","queueId":0}:2}}'),
        ("GO", b'{"offsetTable":{{"topic":"T","brokerName":"dragoman-1","queueId":0}:2}}'),
        (
            "CPP",
            b'{"offsetTable":[{"offset":2,"topic":"T","brokerName":"dragoman-1","queueId":0}]}',
        ),
    ],
)
def test_members_are_notified_of_an_offset_reset(
    pipe: RocketmqPipe, language: str, body: bytes
) -> None:
    filled(pipe, 2)
    member = RocketmqPipe(pipe.world, language)
    member.beat("c1", "g", {"T": "*"})
    assert reset(pipe, isForce="true") == {queue(0): 2}
    request = pushed(member, Request.RESET_CONSUMER_CLIENT_OFFSET)
    assert request.is_one_way
    assert request.fields == {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}
    assert request.body == body


def test_group_of_another_protocol_is_not_reset(pipe: RocketmqPipe) -> None:
    filled(pipe, 2)
    other = CursusPipe(pipe.world)
    assert "OK" in other.ask("JOIN_GROUP topic=T group=g member=m")
    fields: dict[str, object] = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    code, remark = pipe.refused(RESET, fields)
    assert code == Response.SYSTEM_ERROR
    assert "cursus" in remark


def test_offsets_are_cloned_from_group_to_group(pipe: RocketmqPipe) -> None:
    filled(pipe, 5, 5)
    commit(pipe, 4)
    commit(pipe, 2, number=1)
    fields: dict[str, object] = {"srcGroup": "g", "destGroup": "h", "offline": "true"}
    pipe.ok(Request.CLONE_GROUP_OFFSET, fields | {"topic": "U"})
    assert committed(pipe, 0, "h") is None
    pipe.ok(Request.CLONE_GROUP_OFFSET, fields)
    assert [committed(pipe, number, "h") for number in (0, 1)] == [4, 2]
    pipe.ok(Request.CLONE_GROUP_OFFSET, fields | {"destGroup": "i", "topic": "T"})
    assert [committed(pipe, number, "i") for number in (0, 1)] == [4, 2]


# ---- queues for members that do not share them out themselves


def assigned(pipe: RocketmqPipe, client_id: str, **more: object) -> list[int]:
    body = {"topic": "T", "consumerGroup": "g", "clientId": client_id, "strategyName": "AVG"}
    reply = pipe.ok(Request.QUERY_ASSIGNMENT, {}, msgspec.json.encode(body | more))
    found = bodies.decode(reply.body, bodies.Assignments).message_queue_assignments
    assert {each.mode for each in found} <= {"PULL"}
    return [each.message_queue.queue_id for each in found]


def test_every_member_gets_its_share(pipe: RocketmqPipe) -> None:
    pipe.create("T", 7)
    for name in ("c1", "c2", "c3"):
        pipe.beat(name, "g", {"T": "*"})
    assert [assigned(pipe, each) for each in ("c1", "c2", "c3")] == [[0, 1, 2], [3, 4], [5, 6]]
    circle = [assigned(pipe, each, strategyName="AVG_BY_CIRCLE") for each in ("c1", "c2", "c3")]
    assert circle == [[0, 3, 6], [1, 4], [2, 5]]
    assert assigned(pipe, "c4") == []
    assert assigned(pipe, "c4", messageModel="BROADCASTING") == list(range(7))


def test_more_members_than_queues(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    for name in ("c1", "c2", "c3"):
        pipe.beat(name, "g", {"T": "*"})
    assert [assigned(pipe, each) for each in ("c1", "c2", "c3")] == [[0], [1], []]


def test_strategies_and_modes_that_there_are_not_are_refused(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    body = {"topic": "T", "consumerGroup": "g", "clientId": "c", "strategyName": "X"}
    code, _ = pipe.refused(Request.QUERY_ASSIGNMENT, {}, msgspec.json.encode(body))
    assert code == Response.INVALID_PARAMETER
    mode: dict[str, object] = {"topic": "T", "consumerGroup": "g", "mode": "PULL"}
    pipe.ok(Request.SET_MESSAGE_REQUEST_MODE, mode)
    pipe.ok(Request.SET_MESSAGE_REQUEST_MODE, {}, msgspec.json.encode(mode))
    code, _ = pipe.refused(Request.SET_MESSAGE_REQUEST_MODE, mode | {"mode": "POP"})
    assert code == Response.INVALID_PARAMETER


# ---- two nodes


@pytest.fixture
def pair() -> Pair:
    """Node 1 leads queue 0 of T and node 2 queue 1; each coordinates some of the groups."""
    made = Pair()
    made.create("T", 1, 2)
    made.create_internal(OFFSETS_TOPIC)
    state = NewTopic(name=STATE_TOPIC, assignment=((2,),), is_internal=True)
    start(made.one.broker.topics.create(state)).then(lambda _: None)
    made.settle()
    return made


def test_groups_of_all_nodes_are_known_on_each(pair: Pair) -> None:
    tools = [RocketmqPipe(world) for world in pair.worlds.values()]
    homes = set()
    for name in ("a", "b", "c", "d"):
        homes.add(pair.one.broker.coordination.groups.home_of(name)[1])
        commit(tools[0], 0, 0, name)
    assert homes == {0, 1}, "both nodes coordinate some"
    for tool in tools:
        reply = tool.ok(Request.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
        assert bodies.decode(reply.body, bodies.GroupList).group_list == ["a", "b", "c", "d"]
        for name in ("a", "b", "c", "d"):
            reply = tool.ok(Request.QUERY_TOPICS_BY_CONSUMER, {"group": name})
            assert bodies.decode(reply.body, bodies.TopicList).topic_list == ["T"]


def test_queues_of_all_nodes_are_measured_on_each(pair: Pair) -> None:
    tools = [RocketmqPipe(world) for world in pair.worlds.values()]
    for number in (0, 1, 1):
        assert tools[0].put("T", queue=number).code == 0
    for group, tool in enumerate(tools):
        commit(tool, 1, 1, f"g{group}")
        fields: dict[str, object] = {"consumerGroup": f"g{group}", "topic": "T"}
        reply = tool.ok(Request.GET_CONSUME_STATS, fields)
        shown = bodies.by_queue(bodies.decode(reply.body, bodies.ConsumeStats).offset_table)
        lags = {
            each.queue_id: cell.broker_offset - cell.consumer_offset for each, cell in shown.items()
        }
        assert lags == {0: 1, 1: 1}
        reply = tool.ok(Request.GET_TOPIC_STATS_INFO, {"topic": "T"})
        ends = bodies.decode(reply.body, bodies.TopicStats).offset_table
        assert [each.max_offset for each in ends.values()] == [1, 2]
        assert [each.last_update_timestamp > 0 for each in ends.values()] == [True, True]
        assert list(reset(tool, group=f"g{group}").values()) == [1, 2]


def test_members_of_other_nodes_get_requests(pair: Pair) -> None:
    member, tool = RocketmqPipe(pair.one), RocketmqPipe(pair.two)
    member.beat("c1", "g", {"T": "*"})
    pair.settle()
    number = tool.send(Request.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c1"})
    pair.settle()
    asked = pushed(member, Request.GET_CONSUMER_RUNNING_INFO)
    assert not asked.flag & IS_RESPONSE
    member.answer(asked, RUNNING)
    pair.settle()
    assert tool.replies()[number].body == RUNNING
    tool.ok(RESET, {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"})
    assert pushed(member, Request.RESET_CONSUMER_CLIENT_OFFSET).fields["group"] == "g"
