"""Goal: messages are found by key, by id and by place, and a broker tells how it does.

Method: connections to a broker on virtual time; topics of several slices, of two nodes, before and
after a restart; a search that is given up.
"""

from __future__ import annotations

import pytest

from dragoman.limits import (
    ROCKETMQ_FOUND_COUNT_MAX,
    ROCKETMQ_GROUP_RATES_MAX,
    ROCKETMQ_LOOK_UP_BYTES_MAX,
    ROCKETMQ_LOOK_UPS_MAX,
)
from dragoman.log.compression import Codec
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers import queries
from dragoman.protocols.rocketmq.handlers.node import node_of
from dragoman.protocols.rocketmq.handlers.traffic import Rate, Traffic
from dragoman.protocols.rocketmq.messages import Message, decode_messages, tag_hash
from dragoman.testing.sim.scheduler import SimClock, SimScheduler
from worlds.broker import World, batch_of
from worlds.rocketmq import RocketmqPipe, send_fields, table
from worlds.two_nodes import Pair

QUERY = Request.QUERY_MESSAGE
VIEW = Request.VIEW_MESSAGE_BY_ID
UNIQUE = {"_UNIQUE_KEY_QUERY": "true"}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


def query(topic: str, key: str, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": topic,
        "key": key,
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": (1 << 63) - 1,
    }
    return fields | more


def found(pipe: RocketmqPipe, topic: str, key: str, **more: object) -> list[Message]:
    return decode_messages(pipe.ok(QUERY, query(topic, key, **more)).body)


# ---- by key


def test_messages_are_found_by_one_of_their_keys_in_every_queue(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    pipe.put("T", b"a", {"KEYS": "k1 k2", "TAGS": "x"})
    pipe.put("T", b"b", {"KEYS": "k2"}, queue=1)
    pipe.put("T", b"c", {"KEYS": "k12"})
    assert [each.body for each in found(pipe, "T", "k2")] == [b"a", b"b"]
    assert [each.body for each in found(pipe, "T", "k2", maxNum=1)] == [b"a"]
    (only,) = found(pipe, "T", "k1")
    (pulled, _) = pipe.messages("T")
    assert only == pulled


def test_query_without_a_match_returns_query_not_found(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    assert pipe.refused(QUERY, query("T", "k"))[0] == Response.QUERY_NOT_FOUND
    assert pipe.refused(QUERY, query("U", "k"))[0] == Response.TOPIC_NOT_EXIST


def test_unique_key_is_only_that(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    pipe.put("T", b"a", {"UNIQ_KEY": "U1", "KEYS": "k"})
    pipe.put("T", b"b", {"UNIQ_KEY": "U2", "KEYS": "U1"})
    assert [each.body for each in found(pipe, "T", "U1", **UNIQUE)] == [b"a"]
    assert [each.body for each in found(pipe, "T", "U1")] == [b"a", b"b"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_of_other_protocols_are_found_by_their_keys(
    pipe: RocketmqPipe, codec: Codec
) -> None:
    (replica,) = pipe.world.create("T", 1)
    pipe.world.append(replica, batch_of(b"kafka's", key=b"order-7", codec=codec))
    pipe.world.append(replica, batch_of(b"another", key=b"order-8", codec=codec))
    assert [each.body for each in found(pipe, "T", "order-7")] == [b"kafka's"]


def test_only_what_was_stored_in_the_given_time_is_found(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    times = []
    for number in range(5):
        times.append(pipe.world.clock.wall_ms())
        pipe.put("T", str(number).encode(), {"KEYS": "k"})
        pipe.world.advance(10)
    wanted: dict[str, object] = {"beginTimestamp": times[1], "endTimestamp": times[3]}
    assert [each.body for each in found(pipe, "T", "k", **wanted)] == [b"1", b"2", b"3"]
    reply = pipe.ok(QUERY, query("T", "k", **wanted))
    assert reply.fields["indexLastUpdateTimestamp"] == str(times[3])
    last = decode_messages(reply.body)[-1].physical_offset
    assert reply.fields["indexLastUpdatePhyoffset"] == str(last)
    fields: dict[str, object] = {"topic": "T", "key": "k", "begin": times[4], "end": times[4]}
    assert [each.body for each in decode_messages(pipe.ok(QUERY, fields).body)] == [b"4"]


def test_number_of_messages_is_bounded(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    for _ in range(ROCKETMQ_FOUND_COUNT_MAX + 5):
        pipe.send(Request.SEND_MESSAGE, send_fields("T", {"KEYS": "k"}), b"v")
    pipe.world.settle()
    pipe.replies()
    assert len(found(pipe, "T", "k", maxNum=1_000_000)) == ROCKETMQ_FOUND_COUNT_MAX


def large_topic(pipe: RocketmqPipe, slices: int) -> None:
    """So many slices of messages without the key, then one that has it."""
    pipe.create("T", 1)
    size = ROCKETMQ_LOOK_UP_BYTES_MAX // 4
    for _ in range(4 * slices):
        pipe.put("T", bytes(size), {"KEYS": "other"})
    pipe.put("T", b"last", {"KEYS": "k"})


def test_large_topic_is_looked_through_in_slices(pipe: RocketmqPipe) -> None:
    large_topic(pipe, 5)
    number = pipe.send(QUERY, query("T", "k"))
    assert pipe.replies() == {}, "not in one turn"
    assert node_of(pipe.world.broker).searches == 1
    pipe.world.settle()
    assert decode_messages(pipe.replies()[number].body)[0].body == b"last"
    assert node_of(pipe.world.broker).searches == 0


@pytest.mark.parametrize("kill", [False, True])
def test_messages_are_found_after_a_restart(pipe: RocketmqPipe, kill: bool) -> None:
    large_topic(pipe, 2)
    message_id = pipe.put("T", b"by id").fields["msgId"]
    again = RocketmqPipe(pipe.world.reopened(kill=kill))
    assert [each.body for each in found(again, "T", "k")] == [b"last"]
    place = int(message_id[16:], 16)
    assert decode_messages(again.ok(VIEW, {"offset": place}).body)[0].body == b"by id"


def test_search_ends_when_its_time_is_up(
    pipe: RocketmqPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ROCKETMQ_LOOK_UP_S_MAX", 0.0)
    large_topic(pipe, 3)
    code, remark = pipe.refused(QUERY, query("T", "k"))
    assert code == Response.QUERY_NOT_FOUND
    assert "within 0 s; a shorter period takes less time" in remark
    assert node_of(pipe.world.broker).searches == 0


def test_search_ends_with_its_client(pipe: RocketmqPipe) -> None:
    large_topic(pipe, 5)
    other = RocketmqPipe(pipe.world)
    other.send(QUERY, query("T", "k"))
    other.lose()
    assert node_of(pipe.world.broker).searches == 0
    pipe.world.settle()


def test_searches_under_way_are_bounded(pipe: RocketmqPipe) -> None:
    large_topic(pipe, 5)
    numbers = [pipe.send(QUERY, query("T", "k")) for _ in range(ROCKETMQ_LOOK_UPS_MAX + 1)]
    pipe.world.settle()
    replies = pipe.replies()
    assert [replies[each].code for each in numbers[:-1]] == [0] * ROCKETMQ_LOOK_UPS_MAX
    assert replies[numbers[-1]].code == Response.SYSTEM_BUSY
    assert [each.body for each in found(pipe, "T", "k")] == [b"last"]


# ---- by id


def test_message_is_viewed_by_its_id(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    pipe.put("T", b"a", queue=1)
    message_id = pipe.put("T", b"b", {"TAGS": "x"}, queue=1).fields["msgId"]
    fields: tuple[dict[str, object], ...] = (
        {"offset": int(message_id[16:], 16), "topic": "T"},
        {"msgId": message_id},
    )
    for each in fields:
        (message,) = decode_messages(pipe.ok(VIEW, each).body)
        assert (message.body, message.queue_id, message.queue_offset) == (b"b", 1, 1)
        assert message.message_id == message_id


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": 0},
        {"offset": -1},
        {"offset": (1 << 63) - 1},
        {"offset": 999 << 34},
        {"msgId": "nonsense"},
        {},
    ],
)
def test_message_that_there_is_not_cannot_be_viewed(
    pipe: RocketmqPipe, fields: dict[str, object]
) -> None:
    pipe.create("T", 1)
    pipe.put("T")
    assert pipe.refused(VIEW, fields)[0] == Response.SYSTEM_ERROR


def test_message_behind_the_last_one_cannot_be_viewed(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    place = int(pipe.put("T").fields["msgId"][16:], 16)
    pipe.ok(VIEW, {"offset": place})
    assert pipe.refused(VIEW, {"offset": place + 1})[0] == Response.SYSTEM_ERROR


# ---- by queue and number


def test_queue_is_shown_message_by_message(pipe: RocketmqPipe) -> None:
    pipe.create("T", 2)
    pipe.put("T", b"a", {"TAGS": "x"}, queue=1)
    pipe.put("T", b"bb", {"TAGS": "y"}, queue=1)
    pipe.put("T", b"ccc", queue=1)
    pipe.beat("c1", "g", {"T": "y"})
    fields: dict[str, object] = {"topic": "T", "queueId": 1, "index": 1, "count": 10}
    reply = pipe.ok(Request.QUERY_CONSUME_QUEUE, fields)
    view = bodies.decode(reply.body, bodies.ConsumeQueueView)
    assert (view.min_queue_index, view.max_queue_index) == (0, 3)
    _, second, third = pipe.messages("T", queue=1)
    assert [each.physic_offset for each in view.queue_data] == [
        second.physical_offset,
        third.physical_offset,
    ]
    assert [each.tags_code for each in view.queue_data] == [tag_hash("y"), 0]
    assert [each.eval for each in view.queue_data] == [True, True]
    assert view.subscription_data is None
    reply = pipe.ok(
        Request.QUERY_CONSUME_QUEUE, fields | {"index": 0, "count": 2, "consumerGroup": "g"}
    )
    view = bodies.decode(reply.body, bodies.ConsumeQueueView)
    assert [each.eval for each in view.queue_data] == [False, True]
    assert view.subscription_data is not None
    sizes = [each.physic_size for each in view.queue_data]
    assert sizes[1] == sizes[0] + 1
    view = bodies.decode(
        pipe.ok(Request.QUERY_CONSUME_QUEUE, fields | {"index": 99}).body, bodies.ConsumeQueueView
    )
    assert view.queue_data == []
    code, _ = pipe.refused(Request.QUERY_CONSUME_QUEUE, fields | {"queueId": 2})
    assert code == Response.INVALID_PARAMETER


# ---- two nodes


def test_messages_of_all_nodes_are_found_on_each() -> None:
    pair = Pair()
    pair.create("T", 1, 2)
    pipes = [RocketmqPipe(world) for world in pair.worlds.values()]
    for number in (0, 1):
        assert pipes[0].put("T", str(number).encode(), {"KEYS": "k"}, queue=number).code == 0
    for pipe in pipes:
        assert [each.body for each in found(pipe, "T", "k")] == [b"0", b"1"]
        for each in found(pipe, "T", "k"):
            (message,) = decode_messages(pipe.ok(VIEW, {"offset": each.physical_offset}).body)
            assert message.body == each.body
        fields: dict[str, object] = {"topic": "T", "queueId": 1, "index": 0, "count": 5}
        view = bodies.decode(
            pipe.ok(Request.QUERY_CONSUME_QUEUE, fields).body, bodies.ConsumeQueueView
        )
        assert len(view.queue_data) == 1


def test_search_where_a_leader_is_away_says_so() -> None:
    pair = Pair()
    pair.create("T", 1, 2)
    pipe = RocketmqPipe(pair.one)
    pair.lines[1].is_cut = True
    assert pipe.refused(QUERY, query("T", "k"))[0] == Response.SYSTEM_BUSY
    assert node_of(pair.one.broker).searches == 0


# ---- how the broker does

TRIPLES = ("putTps", "getTotalTps", "getFoundTps", "getMissTps", "getTransferredTps")
NUMBERS = (
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "putMessageTimesTotal",
    "putMessageAverageSize",
    "brokerVersion",
    "bootTimestamp",
)


def runtime(pipe: RocketmqPipe) -> dict[str, str]:
    return bodies.decode(pipe.ok(Request.GET_BROKER_RUNTIME_INFO).body, bodies.KvTable).table


def test_figures_have_everything_that_tools_read(pipe: RocketmqPipe) -> None:
    shown = runtime(pipe)
    for name in TRIPLES:
        assert len([float(each) for each in shown[name].split()]) == 3
    for name in NUMBERS:
        float(shown[name])
    for name in ("brokerVersionDesc", "runtime", "commitLogDirCapacity", "brokerActive"):
        assert shown[name]


def test_figures_count_what_is_written_and_read(pipe: RocketmqPipe) -> None:
    boot = pipe.world.clock.wall_ms()
    (replica, _) = pipe.world.create("T", 2)
    pipe.world.append(replica, batch_of(b"kafka's", timestamp=boot))
    for number in (0, 1, 1):
        pipe.put("T", queue=number)
    pipe.pull("T")
    pipe.pull("T", offset=2)
    shown = runtime(pipe)
    assert shown["bootTimestamp"] == str(boot)
    assert shown["msgPutTotalTodayNow"] == shown["putMessageTimesTotal"] == "4"
    assert shown["putTps"] == "0.40 0.07 0.01"
    assert shown["msgGetTotalTodayNow"] == "2"
    assert shown["earliestMessageTimeStamp"] == str(boot)
    assert float(shown["putMessageAverageSize"]) > 60
    pipe.world.advance(30)
    shown = runtime(pipe)
    assert shown["putTps"] == "0.00 0.07 0.01"
    assert shown["getTotalTps"].split()[1] == "0.03"
    assert shown["getFoundTps"].split()[1] == shown["getMissTps"].split()[1] == "0.02"
    pipe.world.advance(86_400)
    shown = runtime(pipe)
    assert shown["msgPutTotalTodayMorning"] == "4"
    assert shown["msgGetTotalTodayMorning"] == "2"
    assert shown["putTps"] == "0.00 0.00 0.00"
    again = runtime(RocketmqPipe(pipe.world.reopened()))
    assert again["msgPutTotalTodayNow"] == "4"


def test_figures_by_name(pipe: RocketmqPipe) -> None:
    view = Request.VIEW_BROKER_STATS_DATA
    pipe.create("T", 2)
    pipe.create("U", 1)
    for number in (0, 1, 1):
        pipe.put("T", queue=number)
    pipe.put("U")
    pipe.world.advance(600)
    pipe.put("T")
    shown = bodies.decode(
        pipe.ok(view, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}).body, bodies.BrokerStats
    )
    assert [each.sum for each in (shown.stats_minute, shown.stats_hour, shown.stats_day)] == [
        1,
        4,
        4,
    ]
    assert shown.stats_minute.tps == pytest.approx(1 / 60)
    assert shown.stats_minute.avgpt == 1
    shown = bodies.decode(
        pipe.ok(view, {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}).body,
        bodies.BrokerStats,
    )
    assert shown.stats_day.sum == 5
    for name, key in (("TOPIC_PUT_NUMS", "X"), ("BROKER_PUT_NUMS", "X"), ("X", "T")):
        code, _ = pipe.refused(view, {"statsName": name, "statsKey": key})
        assert code == Response.SYSTEM_ERROR


def test_rates_are_of_slots_that_are_over() -> None:
    rate = Rate()
    rate.add(5, 100.0)
    assert rate.per_second(109.9) == (0, 0, 0)
    assert rate.per_second(110.0) == (0.5, pytest.approx(5 / 60), pytest.approx(5 / 600))
    assert rate.per_second(120.0) == (0, pytest.approx(5 / 60), pytest.approx(5 / 600))
    assert rate.per_second(170.0) == (0, 0, pytest.approx(5 / 600))
    assert rate.per_second(10_000.0) == (0, 0, 0)
    rate.add(1, 10_000.0)
    assert rate.per_second(10_010.0)[0] == 0.1
    assert rate.total == 6


def test_messages_are_counted_by_days() -> None:
    scheduler = SimScheduler()
    traffic = Traffic(SimClock(scheduler))
    traffic.pulled("g", "T", 3)
    scheduler.advance(86_400)
    traffic.pulled("g", "T", 2)
    assert (traffic.before_yesterday, traffic.before_today) == (0, 3)
    scheduler.advance(86_400)
    traffic.begin_day()
    assert (traffic.before_yesterday, traffic.before_today) == (3, 5)
    scheduler.advance(3 * 86_400)
    traffic.begin_day()
    assert (traffic.before_yesterday, traffic.before_today) == (5, 5)


def test_rates_of_groups_are_kept_for_those_that_read() -> None:
    scheduler = SimScheduler()
    traffic = Traffic(SimClock(scheduler))
    traffic.pulled("g", "T", 6)
    traffic.pulled("g", "U", 0)
    scheduler.advance(10)
    assert traffic.group_per_second("g", "T") == pytest.approx(0.1)
    assert traffic.group_per_second("g", "U") == 0
    for number in range(ROCKETMQ_GROUP_RATES_MAX):
        traffic.pulled(f"g{number}", "T", 1)
    assert traffic.group_per_second("g", "T") == 0


# ---- cleaning up


@pytest.mark.parametrize(
    "code", [Request.CLEAN_EXPIRED_CONSUMEQUEUE, Request.DELETE_EXPIRED_COMMITLOG]
)
def test_what_is_past_its_time_is_deleted_at_once(pipe: RocketmqPipe, code: Request) -> None:
    world = pipe.world
    (replica,) = world.create("T", 1, config={"retention.ms": "1000", "segment.bytes": "1000"})
    for _ in range(20):
        pipe.put("T", bytes(200))
    world.advance(2)
    assert replica.log.log_start_offset == 0
    pipe.ok(code)
    assert replica.log.log_start_offset > 0
    pipe.ok(Request.CLEAN_UNUSED_TOPIC)


def test_every_request_of_administration_is_known(pipe: RocketmqPipe) -> None:
    """Code 3 is only for requests that are not supported, whatever their fields."""
    unserved = {
        # Only ever sent by brokers.
        Request.CHECK_TRANSACTION_STATE,
        Request.NOTIFY_CONSUMER_IDS_CHANGED,
        Request.RESET_CONSUMER_CLIENT_OFFSET,
        Request.GET_CONSUMER_STATUS_FROM_CLIENT,
        Request.PUSH_REPLY_MESSAGE_TO_CLIENT,
        # Messages that brokers hand out.
        Request.POP_MESSAGE,
        Request.ACK_MESSAGE,
        Request.CHANGE_MESSAGE_INVISIBLETIME,
        Request.NOTIFICATION,
        Request.BATCH_ACK_MESSAGE,
    }
    for code in Request:
        reply = pipe.ask(code)
        is_unknown = reply.code == Response.REQUEST_CODE_NOT_SUPPORTED
        assert is_unknown == (code in unserved), code
        assert not pipe.is_lost


def test_body_that_is_none_is_refused(pipe: RocketmqPipe) -> None:
    pipe.create("T", 1)
    for code in (18, 25, 200, 217, 225, 400, 401):
        reply = pipe.ask(code, {"topic": "T"}, b"\xff{not json")
        assert reply.code != 0, code
        assert reply.remark
    assert table(pipe.ok(Request.GET_TOPIC_CONFIG, {"topic": "T"}))["topicName"] == "T"
