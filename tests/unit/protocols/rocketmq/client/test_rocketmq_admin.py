"""Goal: every administrative call asks the right server for the right thing, and reads answers in
the forms that servers give them.

Method: a scripted name server and broker; answers are written as Java writes them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    AclInfo,
    BrokerData,
    ClusterInfo,
    MessageQueue,
    RequestMode,
    SubscriptionGroupConfig,
    TopicConfig,
    UserInfo,
)
from dragoman.protocols.rocketmq.client.admin import LATEST, RocketmqAdmin, TrackKind
from dragoman.protocols.rocketmq.client.client import RocketmqClient
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    NotFoundError,
    RocketmqError,
    TopicNotFoundError,
    UnsupportedRequestError,
)
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage
from dragoman.protocols.rocketmq.client.operations import PlainAccess, RareRequest
from dragoman.protocols.rocketmq.client.remoting import ClientSettings
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Property, Request, Response
from dragoman.protocols.rocketmq.messages import (
    Message,
    encode_message,
    host_bytes,
    offset_message_id,
)
from protocols.scripted_rocketmq import ScriptedRocketmq, ok, refused

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
KEY = b'{"brokerName":"b","queueId":0,"topic":"T"}'


class World:
    def __init__(self, server: ScriptedRocketmq, admin: RocketmqAdmin) -> None:
        self.server = server
        self.admin = admin

    def answer(self, code: int, body: bytes = b"", **fields: object) -> None:
        self.server.answers[code] = lambda _: ok(body, **fields)

    def asked(self, code: int) -> Command:
        return self.server.asked(code)[-1]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    settings = ClientSettings(backoff_first_s=0.001, operation_timeout_s=0.01, request_timeout_s=20)
    async with ScriptedRocketmq() as server:
        server.topics["T"] = 1
        info = ClusterInfo(
            broker_addr_table={
                "b": BrokerData(
                    broker_name="b", cluster="c", broker_addrs={"0": server.address, "1": "x:1"}
                )
            },
            cluster_addr_table={"c": ["b"]},
        )
        server.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda _: ok(bodies.encode(info))
        async with RocketmqAdmin(RocketmqClient(server.address, settings=settings)) as admin:
            yield World(server, admin)


def message_id_at(broker: str) -> str:
    return offset_message_id(host_bytes("127.0.0.1", int(broker.rpartition(":")[2])), 7)


Call = Callable[[RocketmqAdmin, str], Awaitable[object]]

#: The call, its code, the fields it must send, and the body.
SIMPLE: list[tuple[Call, int, dict[str, str], bytes]] = [
    (lambda a, b: a.create_topic(TopicConfig(topic_name="T", attributes={"k": "v"})), 17,
     {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "perm": "6",
      "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+k=v"}, b""),
    (lambda a, b: a.create_and_update_topic_config_list([TopicConfig(topic_name="U")], broker=b),
     17, {"topic": "U"}, b""),
    (lambda a, b: a.create_static_topic(b, TopicConfig(topic_name="T"), {"x": 1}), 513,
     {"topic": "T"}, b'{"x":1}'),
    (lambda a, b: a.delete_topic_in_broker(b, "T"), 215, {"topic": "T"}, b""),
    (lambda a, b: a.delete_topic_in_name_server("T", "c"), 216,
     {"topic": "T", "clusterName": "c"}, b""),
    (lambda a, b: a.put_kv_config("n", "k", "v"), 100,
     {"namespace": "n", "key": "k", "value": "v"}, b""),
    (lambda a, b: a.delete_kv_config("n", "k"), 102, {"namespace": "n", "key": "k"}, b""),
    (lambda a, b: a.create_or_update_order_conf("T", "b:4"), 100,
     {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4"}, b""),
    (lambda a, b: a.update_name_server_config({"a": "1"}), 318, {}, b"a=1\n"),
    (lambda a, b: a.delete_subscription_group("g", broker=b), 207,
     {"groupName": "g", "cleanOffset": "true"}, b""),
    (lambda a, b: a.update_consume_offset(QUEUE, "g", 7), 15,
     {"topic": "T", "queueId": "0", "consumerGroup": "g", "commitOffset": "7"}, b""),
    (lambda a, b: a.clone_group_offset("g", "h", "T", is_offline=True), 314,
     {"srcGroup": "g", "destGroup": "h", "topic": "T", "offline": "true"}, b""),
    (lambda a, b: a.update_broker_config(b, {"a": "1"}), 25, {}, b"a=1\n"),
    (lambda a, b: a.clean_expired_consumer_queue(cluster="c"), 306, {}, b""),
    (lambda a, b: a.delete_expired_commit_log(broker=b), 329, {}, b""),
    (lambda a, b: a.clean_unused_topic(), 316, {}, b""),
    (lambda a, b: a.add_broker_to_container(b, {"a": "1"}), 902, {}, b"a=1\n"),
    (lambda a, b: a.remove_broker_from_container(b, "c", "n", 1), 903,
     {"brokerIdentity": "c#n#1"}, b""),
    (lambda a, b: a.update_cold_data_flow_control(b, {"g": "9"}), 2001, {}, b"g=9\n"),
    (lambda a, b: a.remove_cold_data_flow_control(b, "g"), 2002, {}, b"g"),
    (lambda a, b: a.set_commit_log_read_ahead_mode(b, 1), 2004, {"READ_AHEAD_MODE": "1"}, b""),
    (lambda a, b: a.export_rocksdb_config(b, "topics"), 355, {"configType": "topics"}, b""),
    (lambda a, b: a.resume_check_half_message("T", message_id_at(b)), 323, {"topic": "T"}, b""),
    (lambda a, b: a.set_message_request_mode(b, RequestMode(topic="T", consumer_group="g")), 401,
     {}, b'{"topic":"T","consumerGroup":"g","mode":"PULL","popShareQueueNum":0}'),
    (lambda a, b: a.create_user(b, UserInfo(username="u", password="p")), 3001,
     {"username": "u"},
     b'{"username":"u","password":"p","userType":"Normal","userStatus":"enable"}'),
    (lambda a, b: a.update_user(b, UserInfo(username="u")), 3002, {"username": "u"},
     b'{"username":"u","password":null,"userType":"Normal","userStatus":"enable"}'),
    (lambda a, b: a.delete_user(b, "u"), 3003, {"username": "u"}, b""),
    (lambda a, b: a.create_acl(b, AclInfo(subject="User:u")), 3006, {"subject": "User:u"},
     b'{"subject":"User:u","policies":[]}'),
    (lambda a, b: a.update_acl(b, AclInfo(subject="User:u")), 3007, {"subject": "User:u"},
     b'{"subject":"User:u","policies":[]}'),
    (lambda a, b: a.delete_acl(b, "User:u", "Topic:T"), 3008,
     {"subject": "User:u", "resource": "Topic:T"}, b""),
    (lambda a, b: a.create_and_update_plain_access(
        b, PlainAccess(access_key="a", secret_key="s", topic_perms=("T=PUB", "U=SUB"))), 50,
     {"accessKey": "a", "secretKey": "s", "admin": "false", "topicPerms": "T=PUB,U=SUB"}, b""),
    (lambda a, b: a.delete_plain_access(b, "a"), 51, {"accessKey": "a"}, b""),
    (lambda a, b: a.update_global_white_addresses(b, ["x", "y"]), 53,
     {"globalWhiteAddrs": "x,y"}, b""),
    (lambda a, b: a.update_controller_config(b, {"a": "1"}), 1009, {}, b"a=1\n"),
    (lambda a, b: a.clean_controller_broker_data(b, "c", "n"), 1011,
     {"clusterName": "c", "brokerName": "n", "isCleanLivingBroker": "false"}, b""),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code", "fields", "body"), SIMPLE)
async def test_calls_without_an_answer(
    world: World, call: Call, code: int, fields: dict[str, str], body: bytes
) -> None:
    world.server.answers.pop(code, None)
    with pytest.raises(UnsupportedRequestError):
        await call(world.admin, world.server.address)
    world.answer(code)
    assert await call(world.admin, world.server.address) is None
    asked = world.asked(code)
    assert asked.fields.items() >= fields.items()
    assert asked.body == body


#: The call, its code, the answer's body and fields, and what it returns.
READING: list[tuple[Call, int, bytes, dict[str, str], object]] = [
    (lambda a, b: a.fetch_all_topic_list(), 206, b'{"topicList":["b","a"],"brokerAddr":null}', {},
     ["a", "b"]),
    (lambda a, b: a.fetch_topics_by_cluster("c"), 224, b'{"topicList":["b"]}', {}, ["b"]),
    (lambda a, b: a.fetch_system_topic_list(), 304, b'{"topicList":["b"]}', {}, ["b"]),
    (lambda a, b: a.get_system_topic_list_from_broker(b), 305, b'{"topicList":["b"]}', {}, ["b"]),
    (lambda a, b: a.wipe_write_perm_of_broker("b"), 205, b"", {"wipeTopicCount": "3"}, 3),
    (lambda a, b: a.add_write_perm_of_broker("b"), 327, b"", {"addTopicCount": "4"}, 4),
    (lambda a, b: a.get_kv_config("n", "k"), 101, b"", {"value": "v"}, "v"),
    (lambda a, b: a.get_kv_list_by_namespace("n"), 219, b'{"table":{"a":"1"}}', {}, {"a": "1"}),
    (lambda a, b: a.get_kv_list_by_namespace("n"), 219, b'{"a":"1"}', {}, {"a": "1"}),
    (lambda a, b: a.query_topic_consume_by_who("T"), 300, b'{"groupList":["h","g"]}', {},
     ["g", "h"]),
    (lambda a, b: a.query_topics_by_consumer("g"), 343, b'{"topicList":["T","%RETRY%g"]}', {},
     ["T"]),
    (lambda a, b: a.search_offset(QUEUE, 5), 29, b"", {"offset": "9"}, 9),
    (lambda a, b: a.max_offset(QUEUE), 30, b"", {"offset": "9"}, 9),
    (lambda a, b: a.min_offset(QUEUE), 31, b"", {"offset": "9"}, 9),
    (lambda a, b: a.query_consume_offset(QUEUE, "g"), 14, b"", {"offset": "9"}, 9),
    (lambda a, b: a.earliest_message_store_time(QUEUE), 32, b"", {"timestamp": "9"}, 9),
    (lambda a, b: a.reset_offset_by_timestamp("T", "g", 5), 222,
     b'{"offsetTable":{%s:7}}' % KEY, {}, {QUEUE: 7}),
    (lambda a, b: a.get_consume_status("T", "g"), 223,
     b'{"consumerTable":{"c1":{%s:7}}}' % KEY, {}, {"c1": {QUEUE: 7}}),
    (lambda a, b: a.fetch_broker_runtime_stats(b), 28, b'{"table":{"a":"1"}}', {}, {"a": "1"}),
    (lambda a, b: a.get_broker_config(b), 26, b"a=1\nb=x\n", {}, {"a": "1", "b": "x"}),
    (lambda a, b: a.get_broker_ha_status(b), 907, b'{"inSyncSlaveNums":NaN}', {}, {}),
    (lambda a, b: a.get_broker_epoch_cache(b), 1007, b"", {}, None),
    (lambda a, b: a.get_cold_data_flow_control(b), 2003, b'{"a":1}', {}, {"a": 1}),
    (lambda a, b: a.check_rocksdb_write_progress(b), 354, b'{"a":1}', {}, {"a": 1}),
    (lambda a, b: a.examine_plain_access_version(b), 52, b"", {"version": "1"}, {"version": "1"}),
    (lambda a, b: a.list_users(b), 3005, b'[{"username":"u"}]', {}, [UserInfo(username="u")]),
    (lambda a, b: a.list_users(b), 3005, b'{"users":[{"username":"u"}]}', {},
     [UserInfo(username="u")]),
    (lambda a, b: a.get_user(b, "u"), 3004, b'{"username":"u"}', {}, UserInfo(username="u")),
    (lambda a, b: a.get_user(b, "u"), 3004, b"", {}, None),
    (lambda a, b: a.list_acls(b), 3010, b'[{"subject":"s","policies":null}]', {},
     [AclInfo(subject="s")]),
    (lambda a, b: a.list_acls(b), 3010, b'{"acls":[{"subject":"s"}]}', {}, [AclInfo(subject="s")]),
    (lambda a, b: a.get_acl(b, "s"), 3009, b'{"subject":"s"}', {}, AclInfo(subject="s")),
    (lambda a, b: a.get_controller_metadata(b), 1005, b"", {"group": "g"}, {"group": "g"}),
    (lambda a, b: a.get_controller_config(b), 1010, b"a=1\n", {}, {"a": "1"}),
    (lambda a, b: a.get_in_sync_state_data(b, ["n"]), 1006, b'{"a":1}', {}, {"a": 1}),
    (lambda a, b: a.elect_master(b, "c", "n", 0), 1002, b"", {"masterAddress": "x"},
     {"masterAddress": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "code", "body", "fields", "meant"), READING)
async def test_calls_that_read(
    world: World, call: Call, code: int, body: bytes, fields: dict[str, str], meant: object
) -> None:
    world.server.topics["%RETRY%g"] = 1
    world.answer(code, body, **fields)
    assert await call(world.admin, world.server.address) == meant


async def test_users_and_rights_that_are_not_there(world: World) -> None:
    for code in (3001, 3002):
        world.server.answers[3004] = world.server.answers[3009] = lambda _, code=code: refused(code)
        assert await world.admin.get_user(world.server.address, "u") is None
        assert await world.admin.get_acl(world.server.address, "User:u") is None
    world.server.answers[3004] = lambda _: refused(Response.NO_PERMISSION)
    with pytest.raises(RocketmqError):
        await world.admin.get_user(world.server.address, "u")


async def test_clusters_and_routes(world: World) -> None:
    admin, server = world.admin, world.server
    info = await admin.examine_broker_cluster_info()
    assert info.cluster_addr_table == {"c": ["b"]}
    route = await admin.examine_topic_route_info("T")
    assert route.broker_datas[0].broker_addrs == {"0": server.address}
    assert await admin.get_topic_cluster_list("T") == {"c"}
    with pytest.raises(TopicNotFoundError):
        await admin.examine_topic_route_info("none")
    world.answer(Request.GET_NAMESRV_CONFIG, b"a=1")
    assert await admin.get_name_server_config() == {server.address: {"a": "1"}}


async def test_topics_are_deleted_everywhere(world: World) -> None:
    world.answer(Request.DELETE_TOPIC_IN_BROKER)
    world.answer(Request.DELETE_TOPIC_IN_NAMESRV)
    await world.admin.delete_topic("T")
    codes = [each.code for each in world.server.seen]
    assert codes.index(Request.DELETE_TOPIC_IN_BROKER) < codes.index(
        Request.DELETE_TOPIC_IN_NAMESRV
    )


async def test_configurations_of_topics_and_groups(world: World) -> None:
    admin, broker = world.admin, world.server.address
    config = TopicConfig(topic_name="T", read_queue_nums=8)
    world.answer(Request.GET_TOPIC_CONFIG, bodies.encode(config))
    assert await admin.examine_topic_config(broker, "T") == config
    table = bodies.TopicConfigTable(topic_config_table={"T": config})
    world.answer(Request.GET_ALL_TOPIC_CONFIG, bodies.encode(table))
    assert await admin.get_all_topic_config(broker) == {"T": config}
    group = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    world.answer(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    await admin.create_subscription_group(group)
    assert bodies.decode(world.asked(200).body, SubscriptionGroupConfig) == group
    groups = bodies.SubscriptionGroupTable(
        subscription_group_table={
            name: SubscriptionGroupConfig(group_name=name, retry_max_times=3)
            for name in ("g", "TOOLS_CONSUMER", "CID_RMQ_SYS_x")
        }
    )
    world.answer(Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, bodies.encode(groups))
    assert len(await admin.get_all_subscription_group(broker)) == 3
    assert await admin.get_user_subscription_group(broker) == {"g": group}
    assert await admin.list_groups() == ["g"]
    # A broker of 4.x does not know the request for one group.
    assert await admin.examine_subscription_group_config(broker, "g") == group
    with pytest.raises(RocketmqError):
        await admin.examine_subscription_group_config(broker, "h")
    world.answer(Request.GET_SUBSCRIPTIONGROUP_CONFIG, bodies.encode(group))
    assert await admin.examine_subscription_group_config(broker, "g") == group
    world.answer(353, b'{"topic":"T","group":"g","readable":false}')
    assert not (await admin.update_and_get_group_read_forbidden(broker, "g", "T", False)).readable


async def test_statistics(world: World) -> None:
    admin = world.admin
    world.answer(
        Request.GET_TOPIC_STATS_INFO,
        b'{"offsetTable":{%s:{"lastUpdateTimestamp":5,"maxOffset":3,"minOffset":1}},'
        b'"topicPutTps":NaN}' % KEY,
    )
    stats = await admin.examine_topic_stats("T")
    assert stats == {QUEUE: bodies.TopicOffset(min_offset=1, max_offset=3, last_update_timestamp=5)}
    world.answer(
        Request.GET_CONSUME_STATS,
        b'{"consumeTps":1.5,"offsetTable":{%s:{"brokerOffset":10,"consumerOffset":4}}}' % KEY,
    )
    progress = await admin.examine_consume_stats("g")
    assert (progress.lag, progress.tps, list(progress.offsets)) == (6, 1.5, [QUEUE])
    await admin.examine_consume_stats_by_topic("g", "T")
    assert world.asked(208).fields == {"consumerGroup": "g", "topic": "T"}
    world.answer(317, b'{"consumeStatsList":[{"g":[{"offsetTable":{%s:{}}}]}],"totalDiff":2}' % KEY)
    found = await admin.fetch_consume_stats_in_broker(world.server.address)
    assert found.total_diff == 2
    assert list(bodies.by_queue(found.consume_stats_list[0]["g"][0].offset_table)) == [QUEUE]
    world.answer(315, b'{"statsMinute":{"sum":1,"tps":0.5,"avgpt":1.0},"statsHour":null}')
    data = await admin.view_broker_stats_data(world.server.address, "TOPIC_PUT_NUMS", "T")
    assert (data.stats_minute.tps, data.stats_hour.sum) == (0.5, 0)
    span = b'{"messageQueue":%s,"delayTime":4}' % KEY
    for body in (b'{"consumeTimeSpanSet":[%s]}' % span, b"[%s]" % span):
        world.answer(303, body)
        (one,) = await admin.query_consume_time_span("T", "g")
        assert (one.message_queue, one.delay_time) == (QUEUE, 4)


async def test_members(world: World) -> None:
    admin = world.admin
    world.answer(
        203,
        b'{"connectionSet":[{"clientAddr":"a:1","clientId":"c","language":"JAVA","version":399}],'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"subscriptionTable":{"T":{"topic":"T","subString":"*"}}}',
    )
    members = await admin.examine_consumer_connection_info("g")
    assert members.connection_set[0].client_id == "c"
    world.server.answers[203] = lambda _: refused(Response.CONSUMER_NOT_ONLINE)
    with pytest.raises(GroupOfflineError):
        await admin.examine_consumer_connection_info("g")
    world.answer(204, b'{"connectionSet":[{"clientId":"c","language":9}]}')
    producers = await admin.examine_producer_connection_info("g", "T")
    assert producers.connection_set[0].language == "GO"
    world.server.answers[204] = lambda _: refused(Response.SYSTEM_ERROR)
    with pytest.raises(GroupOfflineError):
        await admin.examine_producer_connection_info("g", "T")
    for body in (
        b'{"data":{"g":[{"clientId":"c","remoteIP":"i"}]}}',
        b'{"g":[{"clientId":"c","remoteIP":"i"}]}',
    ):
        world.answer(328, body)
        (info,) = (await admin.get_all_producer_info(world.server.address))["g"]
        assert (info.client_id, info.remote_ip) == ("c", "i")
    world.answer(307, b'{"mqTable":{%s:{"cachedMsgCount":2}},"jstack":"x"}' % KEY)
    running = await admin.get_consumer_running_info("g", "c", with_stacks=True)
    assert bodies.by_queue(running.mq_table)[QUEUE].cached_msg_count == 2
    assert world.asked(307).fields["jstackEnable"] == "true"
    for body in (
        b'{"group":"g","topic":"T","subscriptionData":{"topic":"T","subString":"a"}}',
        b'{"topic":"T","subString":"a"}',
    ):
        world.answer(345, body)
        found = await admin.query_subscription("g", "T")
        assert found is not None
        assert found.sub_string == "a"


async def test_a_group_without_members_is_moved_all_the_same(world: World) -> None:
    world.server.answers[222] = lambda _: refused(Response.CONSUMER_NOT_ONLINE)
    world.answer(Request.SEARCH_OFFSET_BY_TIMESTAMP, offset=8)
    world.answer(Request.GET_MAX_OFFSET, offset=20)
    world.answer(Request.QUERY_CONSUMER_OFFSET, offset=5)
    world.answer(Request.UPDATE_CONSUMER_OFFSET)
    admin = world.admin
    assert await admin.reset_offset_by_timestamp("T", "g", 1000) == {QUEUE: 8}
    assert world.asked(15).fields["commitOffset"] == "8"
    assert await admin.reset_offset_by_timestamp("T", "g", LATEST) == {QUEUE: 20}
    # Without force it does not go forward.
    assert await admin.reset_offset_by_timestamp("T", "g", 1000, force=False) == {}


# ---- messages


def stored(world: World, offset: int = 0, **changes: object) -> Message:
    fields: dict[str, object] = {
        "topic": "T",
        "body": b"x%d" % offset,
        "queue_offset": offset,
        "physical_offset": 100 + offset,
        "store_ms": 1000 + offset,
        "store_host": host_bytes("127.0.0.1", world.server.port),
        "properties": {Property.KEYS: f"k{offset}", Property.UNIQUE_KEY: f"U{offset}"},
    }
    return Message(**(fields | changes))  # type: ignore[arg-type]


async def test_one_message_is_found_by_any_of_its_names(world: World) -> None:
    admin, message = world.admin, stored(world)
    world.answer(Request.VIEW_MESSAGE_BY_ID, encode_message(message))
    found = await admin.query_message_by_id(message.message_id)
    assert (found.body, world.asked(33).fields) == (b"x0", {"offset": "100"})
    world.server.answers[33] = lambda _: refused(Response.SYSTEM_ERROR)
    with pytest.raises(NotFoundError):
        await admin.query_message_by_id(message.message_id)
    world.answer(Request.QUERY_MESSAGE, encode_message(message))
    assert (await admin.view_message("T", "U0")).body == b"x0"
    assert world.asked(12).fields["_UNIQUE_KEY_QUERY"] == "true"
    assert (await admin.view_message("T", message.message_id)).body == b"x0"
    world.server.answers[12] = lambda _: refused(Response.QUERY_NOT_FOUND)
    for nowhere in ("U0", "7F000001FFFFFFFF0000000000000007", "7F000001000000010000000000000007"):
        with pytest.raises(NotFoundError):
            await admin.view_message("T", nowhere)
    with pytest.raises(NotFoundError):
        await admin.query_message_by_id("7F000001FFFFFFFF0000000000000007")
    assert await admin.query_message("T", "k0") == []


async def test_keys_are_compared_and_not_only_their_hashes(world: World) -> None:
    both = encode_message(stored(world, 1)) + encode_message(stored(world, 0))
    world.answer(Request.QUERY_MESSAGE, both)
    assert [each.body for each in await world.admin.query_message("T", "k1")] == [b"x1"]


def serve_pulls(world: World, messages: list[Message]) -> None:
    """Two at a time."""

    def pull(asked: Command) -> Command:
        start = int(asked.fields["queueOffset"])
        some = messages[start : start + min(2, int(asked.fields["maxMsgNums"]))]
        answer = ok(
            b"".join(encode_message(each) for each in some),
            nextBeginOffset=start + len(some),
            minOffset=0,
            maxOffset=len(messages),
            suggestWhichBrokerId=0,
        )
        answer.code = Response.SUCCESS if some else Response.PULL_NOT_FOUND
        return answer

    world.server.answers[Request.PULL_MESSAGE] = pull


async def test_queues_are_read_without_a_group(world: World) -> None:
    serve_pulls(world, [stored(world, offset) for offset in range(5)])
    world.answer(Request.SEARCH_OFFSET_BY_TIMESTAMP, offset=1)
    admin = world.admin
    assert [each.body async for each in admin.read_queue(QUEUE, 3)] == [b"x3", b"x4"]
    found = await admin.query_message_by_time("T", 1001, 1004)
    assert [each.store_ms for each in found] == [1001, 1002, 1003]
    assert len(await admin.query_message_by_time("T", 1001, 9999, max_count=2)) == 2
    assert (await admin.query_message_by_offset(QUEUE, 2)).body == b"x2"
    with pytest.raises(NotFoundError):
        await admin.query_message_by_offset(QUEUE, 5)
    asked = world.asked(Request.PULL_MESSAGE)
    assert asked.fields["consumerGroup"] == "TOOLS_CONSUMER"
    assert (asked.fields["sysFlag"], asked.fields["suspendTimeoutMillis"]) == ("4", "0")


async def test_dead_letters_are_listed_and_sent_again_to_their_group(world: World) -> None:
    admin, server = world.admin, world.server
    assert await admin.list_dead_letters("g") == []
    server.topics |= {"%DLQ%g": 1, "%RETRY%g": 1}
    origin = {
        Property.RETRY_TOPIC: "T",
        Property.ORIGIN_MESSAGE_ID: "O",
        Property.DELAY: "3",
        Property.KEYS: "k",
    }
    serve_pulls(
        world, [stored(world, each, topic="%DLQ%g", properties=origin) for each in range(3)]
    )
    world.answer(Request.GET_MIN_OFFSET, offset=0)
    letters = await admin.list_dead_letters("g")
    assert [(each.origin_topic, each.origin_message_id) for each in letters] == [("T", "O")] * 3
    assert len(await admin.list_dead_letters("g", max_count=2)) == 2
    assert len(await admin.list_dead_letters("g", end_ms=1001)) == 1
    sent = await admin.resend_dead_letters(letters[:1])
    assert len(sent) == 1
    (again,) = server.stored["%RETRY%g", 0]
    assert again.body == b"x0"
    assert again.properties[Property.RETRY_TOPIC] == "T"
    assert again.properties[Property.KEYS] == "k"
    assert Property.DELAY not in again.properties


async def test_a_message_is_consumed_by_hand(world: World) -> None:
    message = stored(world)
    world.answer(Request.VIEW_MESSAGE_BY_ID, encode_message(message))
    world.answer(309, b'{"order":false,"consumeResult":"CR_LATER","spentTimeMills":3}')
    found = await world.admin.consume_message_directly("g", "c", "T", message.message_id)
    assert found.consume_result == "CR_LATER"
    assert world.asked(309).fields == {
        "consumerGroup": "g",
        "clientId": "c",
        "msgId": message.message_id,
        "brokerName": "b",
        "topic": "T",
    }
    world.answer(321, b'{"queueData":[{"physicOffset":7}],"maxQueueIndex":9}')
    view = await world.admin.query_consume_queue(QUEUE, 0, 10)
    assert (view.queue_data[0].physic_offset, view.max_queue_index) == (7, 9)


@pytest.mark.parametrize(
    ("consumed", "subscription", "kind"),
    [
        (0, "*", TrackKind.NOT_CONSUMED_YET),
        (1, "*", TrackKind.CONSUMED),
        (1, "other", TrackKind.CONSUMED_BUT_FILTERED),
    ],
)
async def test_messages_are_tracked(
    world: World, consumed: int, subscription: str, kind: TrackKind
) -> None:
    world.answer(300, b'{"groupList":["g"]}')
    world.answer(
        203,
        b'{"connectionSet":[{"clientId":"c"}],"subscriptionTable":{"T":{"topic":"T",'
        b'"subString":"%s"}}}' % subscription.encode(),
    )
    world.answer(
        208, b'{"offsetTable":{%s:{"brokerOffset":5,"consumerOffset":%d}}}' % (KEY, consumed)
    )
    message = ReceivedMessage(topic="T", properties={"TAGS": "mine"}, queue_offset=0)
    (track,) = await world.admin.message_track_detail(message)
    assert (track.group, track.kind) == ("g", kind)


async def test_messages_are_tracked_without_members(world: World) -> None:
    world.answer(300, b'{"groupList":["g"]}')
    world.server.answers[203] = lambda _: refused(Response.CONSUMER_NOT_ONLINE)
    (track,) = await world.admin.message_track_detail(ReceivedMessage(topic="T"))
    assert track.kind is TrackKind.NOT_ONLINE


def test_rare_requests_have_no_name_elsewhere() -> None:
    assert not {int(each) for each in RareRequest} & {int(each) for each in Request}
