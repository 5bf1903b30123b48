"""Goal: name server, topics and settings are administered as the specification's tables say.

Method: connections to a broker on virtual time; what is to last is looked at after a restart, and
what all nodes must know on a second node.
"""

from __future__ import annotations

import msgspec
import pytest

from dragoman.broker.topics import NewTopic
from dragoman.config.settings import Settings
from dragoman.limits import FOLLOWED_RETRY_S, FOLLOWED_TRIES_MAX
from dragoman.outcome import start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.state import STATE_TOPIC
from worlds.broker import World
from worlds.rocketmq import BROKER, RocketmqPipe, table
from worlds.two_nodes import Pair

CREATE = Request.UPDATE_AND_CREATE_TOPIC


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def pipe(world: World) -> RocketmqPipe:
    return RocketmqPipe(world)


def topic_fields(topic: str, **changes: object) -> dict[str, object]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    } | changes


def config_of(pipe: RocketmqPipe, topic: str) -> bodies.TopicConfig:
    reply = pipe.ok(Request.GET_TOPIC_CONFIG, {"topic": topic})
    return bodies.decode(reply.body, bodies.TopicConfig)


def route_of(pipe: RocketmqPipe, topic: str) -> bodies.TopicRouteData:
    reply = pipe.ok(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return bodies.decode(reply.body, bodies.TopicRouteData)


def names_in(reply: Command) -> list[str]:
    return bodies.decode(reply.body, bodies.TopicList).topic_list


# ---- topics made and changed


def test_topic_is_made_with_its_attributes(pipe: RocketmqPipe) -> None:
    given = topic_fields(
        "T",
        readQueueNums=8,
        writeQueueNums=5,
        perm=4,
        topicFilterType="MULTI_TAG",
        topicSysFlag=1,
        order="true",
        attributes="+message.type=FIFO,+cleanup.policy=DELETE",
    )
    pipe.ok(CREATE, given)
    assert len(pipe.world.broker.image.topics["T"].partitions) == 8
    assert config_of(pipe, "T") == bodies.TopicConfig(
        topic_name="T",
        read_queue_nums=8,
        write_queue_nums=5,
        perm=4,
        topic_filter_type="MULTI_TAG",
        topic_sys_flag=1,
        order=True,
        attributes={"message.type": "FIFO", "cleanup.policy": "DELETE"},
    )
    route = route_of(pipe, "T")
    assert route.queue_datas == [
        bodies.QueueData(
            broker_name=BROKER, read_queue_nums=8, write_queue_nums=5, perm=4, topic_sys_flag=1
        )
    ]
    assert route.order_topic_conf == f"{BROKER}:5"


def test_topic_is_changed_grows_and_does_not_lose_partitions(pipe: RocketmqPipe) -> None:
    pipe.ok(CREATE, topic_fields("T", attributes="+a=1,+b=2"))
    pipe.ok(CREATE, topic_fields("T", readQueueNums=6, writeQueueNums=6, attributes="-a,+c=3"))
    assert len(pipe.world.broker.image.topics["T"].partitions) == 6
    config = config_of(pipe, "T")
    assert (config.read_queue_nums, config.write_queue_nums) == (6, 6)
    assert config.attributes == {"b": "2", "c": "3"}
    pipe.ok(CREATE, topic_fields("T", readQueueNums=2, writeQueueNums=1))
    assert len(pipe.world.broker.image.topics["T"].partitions) == 6
    config = config_of(pipe, "T")
    assert (config.read_queue_nums, config.write_queue_nums) == (2, 1)
    assert pipe.put("T", queue=5).code == Response.INVALID_PARAMETER


def test_what_is_set_again_changes_nothing(pipe: RocketmqPipe) -> None:
    pipe.ok(CREATE, topic_fields("T", perm=2))
    version = pipe.world.broker.changes.version
    pipe.ok(CREATE, topic_fields("T", perm=2))
    assert pipe.world.broker.changes.version == version


def test_configuration_of_other_protocols_stays(pipe: RocketmqPipe) -> None:
    world = pipe.world
    world.create("T", 4, config={"retention.ms": "5000"})
    pipe.ok(CREATE, topic_fields("T", perm=4))
    assert world.broker.image.topics["T"].config["retention.ms"] == "5000"
    assert config_of(pipe, "T").perm == 4


def test_topic_without_a_filter_type_has_single_tags(pipe: RocketmqPipe) -> None:
    """As Go's client asks for it."""
    fields = topic_fields("T", topicFilterType="")
    del fields["defaultTopic"]
    pipe.ok(CREATE, fields)
    assert config_of(pipe, "T").topic_filter_type == "SINGLE_TAG"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"topic": "a b"}, "illegal characters"),
        ({"topic": "t" * 128}, "longer"),
        ({"topic": STATE_TOPIC}, "only the broker creates"),
        ({"readQueueNums": 0}, "0 queues"),
        ({"writeQueueNums": 1_000_000}, "1000000 queues"),
        ({"perm": 64}, "perm 64"),
        ({"topicFilterType": "SOME"}, "'SOME'"),
        ({"attributes": "a=b"}, "'a=b'"),
        ({"attributes": "+a=b c"}, "'+a=b c'"),
    ],
)
def test_bad_topic_is_refused(pipe: RocketmqPipe, changes: dict[str, object], problem: str) -> None:
    code, remark = pipe.refused(CREATE, topic_fields("T") | changes)
    assert code == Response.INVALID_PARAMETER
    assert problem in remark
    assert "T" not in pipe.world.broker.image.topics


@pytest.mark.parametrize("name", ["topic", "readQueueNums", "writeQueueNums", "perm"])
def test_topic_without_a_field_that_it_needs_is_refused(pipe: RocketmqPipe, name: str) -> None:
    """A default would change a topic that there is."""
    pipe.create("T", 1)
    fields = topic_fields("T")
    del fields[name]
    assert pipe.refused(CREATE, fields) == (1, f"the custom field <{name}> is null")


def test_bad_attributes_of_a_topic_that_is_to_grow_change_nothing(pipe: RocketmqPipe) -> None:
    pipe.ok(CREATE, topic_fields("T"))
    code, _ = pipe.refused(CREATE, topic_fields("T", readQueueNums=8, attributes="h"))
    assert code == Response.INVALID_PARAMETER
    assert len(pipe.world.broker.image.topics["T"].partitions) == 4


def test_topics_are_made_from_a_list(pipe: RocketmqPipe) -> None:
    wanted = [
        bodies.TopicConfig(topic_name="A", read_queue_nums=1, write_queue_nums=1),
        bodies.TopicConfig(topic_name="B", perm=4, attributes={"+a": "1", "b": "2"}),
    ]
    body = bodies.encode(bodies.TopicConfigList(topic_config_list=wanted))
    pipe.ok(Request.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert config_of(pipe, "A").read_queue_nums == 1
    assert config_of(pipe, "B").attributes == {"a": "1", "b": "2"}
    wanted.append(bodies.TopicConfig(topic_name="C", perm=64))
    body = bodies.encode(bodies.TopicConfigList(topic_config_list=wanted))
    code, _ = pipe.refused(Request.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    assert code == Response.INVALID_PARAMETER


def test_topic_is_deleted_and_deleting_it_again_is_fine(pipe: RocketmqPipe) -> None:
    pipe.create("T")
    for _ in range(2):
        pipe.ok(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        pipe.ok(Request.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    assert "T" not in pipe.world.broker.image.topics
    assert pipe.refused(Request.GET_TOPIC_CONFIG, {"topic": "T"})[0] == Response.TOPIC_NOT_EXIST


def test_topic_of_the_broker_itself_is_not_deleted(pipe: RocketmqPipe) -> None:
    pipe.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    pipe.ok(Request.DELETE_TOPIC_IN_BROKER, {"topic": STATE_TOPIC})
    assert STATE_TOPIC in pipe.world.broker.image.topics


# ---- lists


def test_lists_have_what_clients_can_name(pipe: RocketmqPipe) -> None:
    for name in ("b", "a.c", "not this"):
        pipe.create(name, 1)
    pipe.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    names = ["a%2Ec", "b"]
    assert names_in(pipe.ok(Request.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == names
    for field in ("cluster", "clusterName"):
        reply = pipe.ok(Request.GET_TOPICS_BY_CLUSTER, {field: "DefaultCluster"})
        assert names_in(reply) == names
    assert names_in(pipe.ok(Request.GET_TOPICS_BY_CLUSTER, {"cluster": "other"})) == []
    reply = pipe.ok(Request.GET_ALL_TOPIC_CONFIG)
    found = bodies.decode(reply.body, bodies.TopicConfigTable)
    assert list(found.topic_config_table) == names
    assert reply.fields == {"totalTopicNum": "2"}
    reply = pipe.ok(Request.GET_ALL_TOPIC_CONFIG, {"topicSeq": 1, "maxTopicNum": 5})
    assert list(bodies.decode(reply.body, bodies.TopicConfigTable).topic_config_table) == ["b"]
    reply = pipe.ok(Request.GET_ALL_TOPIC_CONFIG, {"topicSeq": 0, "maxTopicNum": 1})
    assert list(bodies.decode(reply.body, bodies.TopicConfigTable).topic_config_table) == ["a%2Ec"]


def test_system_topics_are_those_of_cluster_and_broker(pipe: RocketmqPipe) -> None:
    reply = bodies.decode(pipe.ok(Request.GET_SYSTEM_TOPIC_LIST_FROM_NS).body, bodies.TopicList)
    assert reply.topic_list == ["DefaultCluster", BROKER]
    assert reply.broker_addr == "127.0.0.1:10911"
    names = names_in(pipe.ok(Request.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", BROKER} <= set(names)


def test_unit_topics_are_listed_by_their_flags(pipe: RocketmqPipe) -> None:
    for flag in range(4):
        pipe.ok(CREATE, topic_fields(f"T{flag}", topicSysFlag=flag))
    assert names_in(pipe.ok(Request.GET_UNIT_TOPIC_LIST)) == ["T1", "T3"]
    assert names_in(pipe.ok(Request.GET_HAS_UNIT_SUB_TOPIC_LIST)) == ["T2", "T3"]
    assert names_in(pipe.ok(Request.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)) == ["T2"]


def test_topic_registered_at_the_name_server_is_made(pipe: RocketmqPipe) -> None:
    queues = bodies.QueueData(broker_name="b", read_queue_nums=3, write_queue_nums=2)
    body = bodies.encode(bodies.TopicRouteData(queue_datas=[queues]))
    for _ in range(2):
        pipe.ok(Request.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, body)
    assert len(pipe.world.broker.image.topics["T"].partitions) == 3
    code, _ = pipe.refused(Request.REGISTER_TOPIC_IN_NAMESRV, {"topic": "U"}, b"{}")
    assert code == Response.INVALID_PARAMETER


@pytest.mark.parametrize(
    "code",
    [
        Request.REGISTER_BROKER,
        Request.UNREGISTER_BROKER,
        Request.QUERY_DATA_VERSION,
        Request.BROKER_HEARTBEAT,
    ],
)
def test_brokers_of_others_are_refused(pipe: RocketmqPipe, code: Request) -> None:
    assert pipe.refused(code)[0] == Response.NO_PERMISSION


def test_broker_member_group_returns_broker_addresses(pipe: RocketmqPipe) -> None:
    fields: dict[str, object] = {"clusterName": "DefaultCluster", "brokerName": BROKER}
    reply = table(pipe.ok(Request.GET_BROKER_MEMBER_GROUP, fields))
    assert reply["brokerMemberGroup"] == {
        "cluster": "DefaultCluster",
        "brokerName": BROKER,
        "brokerAddrs": {"0": "127.0.0.1:10911"},
    }
    for other in ("dragoman-7", "foreign"):
        reply = table(pipe.ok(Request.GET_BROKER_MEMBER_GROUP, fields | {"brokerName": other}))
        assert reply["brokerMemberGroup"]["brokerAddrs"] == {}  # type: ignore[index]


# ---- key/value configuration


def test_values_are_kept_by_namespace_and_key(pipe: RocketmqPipe) -> None:
    def put(namespace: str, key: str, value: str) -> None:
        pipe.ok(Request.PUT_KV_CONFIG, {"namespace": namespace, "key": key, "value": value})

    put("n", "a", "1")
    put("n", "b", "2")
    put("m", "a", "3")
    put("n", "a", "4")
    assert pipe.ok(Request.GET_KV_CONFIG, {"namespace": "n", "key": "a"}).fields == {"value": "4"}
    reply = pipe.ok(Request.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert table(reply) == {"table": {"b": "2", "a": "4"}}
    for _ in range(2):
        pipe.ok(Request.DELETE_KV_CONFIG, {"namespace": "n", "key": "a"})
    code, _ = pipe.refused(Request.GET_KV_CONFIG, {"namespace": "n", "key": "a"})
    assert code == Response.QUERY_NOT_FOUND
    code, _ = pipe.refused(Request.GET_KVLIST_BY_NAMESPACE, {"namespace": "x"})
    assert code == Response.QUERY_NOT_FOUND


def test_too_large_a_value_is_refused(pipe: RocketmqPipe) -> None:
    fields: dict[str, object] = {"namespace": "n", "key": "k", "value": "v" * (64 << 10)}
    assert pipe.refused(Request.PUT_KV_CONFIG, fields)[0] == Response.INVALID_PARAMETER


@pytest.mark.parametrize("kill", [False, True])
def test_configuration_is_there_after_a_restart(pipe: RocketmqPipe, kill: bool) -> None:
    pipe.create("T")
    pipe.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    pipe.ok(Request.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})
    again = RocketmqPipe(pipe.world.reopened(kill=kill))
    assert again.ok(Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"}).fields["value"] == "v"
    assert route_of(again, "T").queue_datas[0].perm == 4


def test_every_node_has_the_configuration() -> None:
    pair = Pair()
    state = NewTopic(name=STATE_TOPIC, assignment=((2,),), is_internal=True)
    start(pair.one.broker.topics.create(state)).then(lambda _: None)
    pair.settle()
    pipes = [RocketmqPipe(world) for world in pair.worlds.values()]
    pipes[0].ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    number = pipes[1].send(Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"})
    pair.settle()
    assert pipes[1].replies()[number].fields == {"value": "v"}
    pipes[1].ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "w"})
    pair.settle()
    assert pipes[0].ok(Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"}).fields["value"] == "w"


def test_requests_wait_until_the_configuration_is_known() -> None:
    pair = Pair()
    state = NewTopic(name=STATE_TOPIC, assignment=((2,),), is_internal=True)
    start(pair.one.broker.topics.create(state)).then(lambda _: None)
    pair.create("T", 1)
    near, far = RocketmqPipe(pair.two), RocketmqPipe(pair.one)
    near.ok(Request.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    pair.lines[1].is_cut = True
    numbers = [
        far.send(Request.GET_KV_CONFIG, {"namespace": "n", "key": "k"}),
        far.send(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}),
    ]
    pair.settle()
    assert far.replies() == {}
    pair.lines[1].is_cut = False
    pair.advance(FOLLOWED_RETRY_S)
    pair.settle()
    replies = far.replies()
    assert list(replies) == numbers
    assert replies[numbers[0]].fields == {"value": "v"}
    assert replies[numbers[1]].code == 0


def test_requests_are_refused_when_the_configuration_cannot_be_known() -> None:
    pair = Pair()
    state = NewTopic(name=STATE_TOPIC, assignment=((2,),), is_internal=True)
    start(pair.one.broker.topics.create(state)).then(lambda _: None)
    pair.settle()
    far = RocketmqPipe(pair.one)
    pair.lines[1].is_cut = True
    number = far.send(Request.GET_BROKER_CLUSTER_INFO)
    pair.advance((FOLLOWED_TRIES_MAX + 1) * FOLLOWED_RETRY_S)
    assert far.replies()[number].code == Response.SYSTEM_BUSY


def test_order_of_a_topic_is_in_its_route(pipe: RocketmqPipe) -> None:
    pipe.create("T")
    conf = f"{BROKER}:4"
    pipe.ok(Request.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": conf})
    assert route_of(pipe, "T").order_topic_conf == conf


# ---- write permissions


def test_broker_is_not_written_to_until_it_is_allowed_again(pipe: RocketmqPipe) -> None:
    for name in ("A", "B"):
        pipe.create(name)
    for _ in range(2):
        reply = pipe.ok(Request.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})
        assert reply.fields == {"wipeTopicCount": "2"}
        assert route_of(pipe, "A").queue_datas[0].perm == 4
    for _ in range(2):
        reply = pipe.ok(Request.ADD_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})
        assert reply.fields == {"addTopicCount": "2"}
        assert route_of(pipe, "A").queue_datas[0].perm == 6


def test_unknown_broker_has_no_topics_to_wipe(pipe: RocketmqPipe) -> None:
    pipe.create("T")
    for name in ("dragoman-9", "other"):
        reply = pipe.ok(Request.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": name})
        assert reply.fields == {"wipeTopicCount": "0"}
    assert STATE_TOPIC not in pipe.world.broker.image.topics


# ---- settings

#: What mqadmin 4.9 writes to a file, without looking whether it is there.
EXPORTED = {
    *("brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime"),
    *("filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel"),
    *("msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS"),
    *("autoCreateTopicEnable", "autoCreateSubscriptionGroup"),
}


@pytest.mark.parametrize(
    ("shown", "changed"),
    [
        (Request.GET_BROKER_CONFIG, Request.UPDATE_BROKER_CONFIG),
        (Request.GET_NAMESRV_CONFIG, Request.UPDATE_NAMESRV_CONFIG),
    ],
)
def test_settings_are_shown_and_changed(
    pipe: RocketmqPipe, shown: Request, changed: Request
) -> None:
    lines = bodies.read_lines(pipe.ok(shown).body)
    assert lines["brokerName"] == BROKER
    assert lines["autoCreateTopicEnable"] == lines["auto.create.topics.enable"] == "true"
    assert lines["fileReservedTime"] == "168"
    assert lines["messageDelayLevel"].startswith("1s 5s 10s 30s 1m ")
    assert lines["messageDelayLevel"].endswith(" 30m 1h 2h")
    assert lines.keys() >= EXPORTED
    wanted = lines | {"autoCreateTopicEnable": "false", "num.partitions": "3"}
    pipe.ok(changed, {}, bodies.write_lines(wanted))
    settings = pipe.world.broker.settings
    assert (settings.auto_create_topics_enable, settings.num_partitions) == (False, 3)
    pipe.ok(changed, {"fileReservedTime": 48})
    assert pipe.world.broker.settings.log_retention_ms == 48 * 3_600_000
    pipe.ok(changed, {}, bodies.write_lines(bodies.read_lines(pipe.ok(shown).body)))


@pytest.mark.parametrize(
    "line",
    ["brokerName=other", "noSuchThing=1", "fileReservedTime=x", "node.id=7", "num.partitions=x"],
)
def test_setting_that_cannot_be_set_is_refused(pipe: RocketmqPipe, line: str) -> None:
    both = f"autoCreateTopicEnable=false\n{line}\n".encode()
    code, remark = pipe.refused(Request.UPDATE_BROKER_CONFIG, {}, both)
    assert code == Response.INVALID_PARAMETER
    assert remark
    assert pipe.world.broker.settings.auto_create_topics_enable


def test_every_setting_that_is_shown_is_known_when_it_is_changed(pipe: RocketmqPipe) -> None:
    """What cannot be changed is read-only by its name; nothing that is listed is unknown."""
    lines = bodies.read_lines(pipe.ok(Request.GET_BROKER_CONFIG).body)
    for name in lines:
        reply = pipe.ask(Request.UPDATE_BROKER_CONFIG, {}, f"{name}=no such value\n".encode())
        assert "unknown" not in (reply.remark or ""), (name, reply.remark)
    code, remark = pipe.refused(Request.UPDATE_BROKER_CONFIG, {}, b"flushDiskType=ASYNC_FLUSH\n")
    assert code == Response.INVALID_PARAMETER
    assert remark == (
        "flushDiskType=ASYNC_FLUSH cannot be set while the node runs: flushDiskType is read-only"
    )
    code, remark = pipe.refused(Request.UPDATE_BROKER_CONFIG, {}, b"noSuchThing=1\n")
    assert "unknown key 'noSuchThing'" in remark


def test_the_permission_of_a_broker_is_a_setting(pipe: RocketmqPipe) -> None:
    def shown() -> str:
        return bodies.read_lines(pipe.ok(Request.GET_BROKER_CONFIG).body)["brokerPermission"]

    pipe.ok(Request.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\nnum.partitions=3\n")
    assert (shown(), pipe.world.broker.settings.num_partitions) == ("4", 3)
    pipe.ok(Request.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
    assert shown() == "6"
    code, remark = pipe.refused(Request.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=2\n")
    assert (code, remark) == (
        Response.INVALID_PARAMETER,
        "brokerPermission=2 cannot be set: expected 4 or 6",
    )


def test_settings_have_a_version() -> None:
    pipe = RocketmqPipe(World(Settings()))
    before = pipe.ok(Request.GET_BROKER_CONFIG).fields["version"]
    pipe.create("T")
    after = pipe.ok(Request.GET_BROKER_CONFIG).fields["version"]
    counters = [msgspec.json.decode(each, type=dict)["counter"] for each in (before, after)]
    assert counters[0] < counters[1]


# ---- users and rights


def test_at_first_there_are_no_users_and_no_rights(pipe: RocketmqPipe) -> None:
    assert pipe.ok(3005).body == b"[]"
    assert pipe.ok(3010).body == b"[]"
    go = RocketmqPipe(pipe.world, "GO")
    assert table(go.ok(3005)) == {"users": []}
    assert table(go.ok(3010)) == {"acls": []}
    assert pipe.refused(3004, {"username": "u"})[0] == Response.USER_NOT_EXIST
    assert pipe.refused(3009, {"subject": "User:u"})[0] == Response.POLICY_NOT_EXIST
    fields = pipe.ok(Request.GET_BROKER_CLUSTER_ACL_INFO).fields
    assert fields["brokerName"] == BROKER
    assert fields["brokerAddr"] == "127.0.0.1:10911"
