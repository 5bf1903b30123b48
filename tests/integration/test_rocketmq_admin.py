"""Goal: the administration client and the server agree on every operation.

Method: a node with real sockets, one consumer and one producer as clients to be administered, and
every call of the client's that a broker of this kind serves; the others are refused as such.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dragoman.client.rocketmq import (
    LATEST,
    SQL92,
    Filter,
    GroupOfflineError,
    InvalidParameterError,
    Message,
    MessageQueue,
    NotFoundError,
    RequestMode,
    RocketmqAdmin,
    RocketmqClient,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicNotFoundError,
    UnsupportedRequestError,
    UserInfo,
)
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage
from dragoman.testing import EphemeralBroker

CLUSTER = "DefaultCluster"
BROKER = "dragoman-1"


class Served:
    """A node, a client of it, and what a consumer of group `g` has got of topic `T`."""

    def __init__(self, node: EphemeralBroker, client: RocketmqClient) -> None:
        self.node = node
        self.client = client
        self.admin: RocketmqAdmin = client.admin
        self.broker = node.address("rocketmq-broker")
        self.got: asyncio.Queue[ReceivedMessage] = asyncio.Queue()

    async def next_body(self) -> bytes:
        async with asyncio.timeout(60):
            return (await self.got.get()).body


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with (
        EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as node,
        RocketmqClient(node.address("rocketmq")) as client,
    ):
        made = Served(node, client)
        await made.admin.create_topic(
            TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
        )
        yield made


def queue(number: int) -> MessageQueue:
    return MessageQueue(topic="T", broker_name=BROKER, queue_id=number)


async def test_cluster_topics_and_settings(served: Served) -> None:
    admin, broker = served.admin, served.broker
    info = await admin.examine_broker_cluster_info()
    assert info.cluster_addr_table == {CLUSTER: [BROKER]}
    assert info.broker_addr_table[BROKER].broker_addrs == {"0": broker}
    assert await admin.fetch_all_topic_list() == ["T"]
    assert await admin.fetch_topics_by_cluster(CLUSTER) == ["T"]
    assert set(await admin.fetch_system_topic_list()) >= {CLUSTER, BROKER}
    assert (await admin.examine_topic_route_info("T")).queue_datas[0].read_queue_nums == 2
    assert await admin.get_topic_cluster_list("T") == {CLUSTER}
    config = TopicConfig(topic_name="U", perm=4, order=True, attributes={"message.type": "FIFO"})
    await admin.create_and_update_topic_config_list([config])
    assert await admin.examine_topic_config(broker, "U") == config
    assert sorted(await admin.get_all_topic_config(broker)) == ["T", "U"]
    assert "TBW102" in await admin.get_system_topic_list_from_broker(broker)
    await admin.create_or_update_order_conf("U", f"{BROKER}:4")
    assert (await admin.examine_topic_route_info("U")).order_topic_conf == f"{BROKER}:4"
    await admin.delete_topic("U")
    with pytest.raises(TopicNotFoundError):
        await admin.examine_topic_config(broker, "U")

    assert await admin.wipe_write_perm_of_broker(BROKER) == 1
    assert (await admin.examine_topic_route_info("T")).queue_datas[0].perm == 4
    assert await admin.add_write_perm_of_broker(BROKER) == 1

    await admin.put_kv_config("n", "k", "v")
    assert await admin.get_kv_config("n", "k") == "v"
    assert await admin.get_kv_list_by_namespace("n") == {"k": "v"}
    await admin.delete_kv_config("n", "k")
    with pytest.raises(NotFoundError):
        await admin.get_kv_config("n", "k")

    await admin.update_broker_config(broker, {"autoCreateTopicEnable": "false"})
    assert (await admin.get_broker_config(broker))["auto.create.topics.enable"] == "false"
    await admin.update_name_server_config({"autoCreateTopicEnable": "true"})
    (settings,) = (await admin.get_name_server_config()).values()
    assert settings["autoCreateTopicEnable"] == "true"
    for clean in (
        admin.clean_expired_consumer_queue,
        admin.delete_expired_commit_log,
        admin.clean_unused_topic,
    ):
        await clean()


async def test_members_progress_and_offsets(served: Served) -> None:
    admin, broker, client = served.admin, served.broker, served.client
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=5)
    await admin.create_subscription_group(config)
    assert await admin.examine_subscription_group_config(broker, "g") == config
    async with (
        client.producer("pg") as producer,
        client.push_consumer("g", {"T": "a || b"}, served.got.put) as consumer,
    ):
        assert consumer is not None
        for number in range(2):
            await producer.send(Message(topic="T", body=b"%d" % number, tags="a", keys=("k",)))
        assert {await served.next_body(), await served.next_body()} == {b"0", b"1"}

        members = await admin.examine_consumer_connection_info("g")
        assert [each.client_id for each in members.connection_set] == [client.client_id]
        assert members.subscription_table["T"].sub_string == "a || b"
        subscription = await admin.query_subscription("g", "T")
        assert subscription is not None
        assert subscription.sub_string == "a || b"
        producers = await admin.examine_producer_connection_info("pg", "T")
        assert [each.client_id for each in producers.connection_set] == [client.client_id]
        assert list(await admin.get_all_producer_info(broker)) == ["pg"]
        running = await admin.get_consumer_running_info("g", client.client_id)
        assert {each.topic for each in running.subscription_set} >= {"T"}
        status = await admin.get_consume_status("T", "g")
        assert list(status) == [client.client_id]
        assert await admin.query_topic_consume_by_who("T") == ["g"]
        assert await admin.query_topics_by_consumer("g") == ["T"]
        assert await admin.list_groups() == ["g"]

        (message, *_) = await admin.query_message("T", "k")
        outcome = await admin.consume_message_directly(
            "g", client.client_id, "T", message.message_id
        )
        assert outcome.consume_result == "CR_SUCCESS"
        assert await served.next_body() == message.body
        tracks = await admin.message_track_detail(message)
        assert [each.group for each in tracks] == ["g"]

        moved = await admin.reset_offset_by_timestamp("T", "g", 0)
        assert moved == {queue(0): 0, queue(1): 0}
        assert {await served.next_body(), await served.next_body()} == {b"0", b"1"}

    moved = await admin.reset_offset_by_timestamp("T", "g", LATEST)
    stats = await admin.examine_topic_stats("T")
    assert moved == {each: found.max_offset for each, found in stats.items()}
    assert sum(each.max_offset for each in stats.values()) == 2
    assert (await admin.examine_consume_stats("g", "T")).lag == 0
    await admin.update_consume_offset(queue(0), "g", 0)
    assert (await admin.examine_consume_stats("g", "T")).lag == stats[queue(0)].max_offset
    assert (await admin.fetch_consume_stats_in_broker(broker)).consume_stats_list
    assert len(await admin.query_consume_time_span("T", "g")) == 2
    await admin.clone_group_offset("g", "h", "T", is_offline=True)
    assert await admin.query_consume_offset(queue(0), "h") == 0
    with pytest.raises(GroupOfflineError):
        await admin.examine_consumer_connection_info("g")

    assert (await admin.update_and_get_group_read_forbidden(broker, "g", "T")).readable
    forbidden = await admin.update_and_get_group_read_forbidden(broker, "g", "T", readable=False)
    assert not forbidden.readable
    await admin.delete_subscription_group("g")
    with pytest.raises(NotFoundError):
        await admin.query_consume_offset(queue(0), "g")


async def test_messages_are_found(served: Served) -> None:
    admin = served.admin
    async with served.client.producer("pg") as producer:
        sent = await producer.send(Message(topic="T", body=b"body", tags="a", keys=("k1", "k2")))
        where = sent.queue
    by_key = await admin.query_message("T", "k2")
    assert [each.body for each in by_key] == [b"body"]
    message = by_key[0]
    for found in (
        await admin.view_message("T", sent.message_id),
        await admin.query_message_by_id(message.message_id),
        await admin.query_message_by_unique_key("T", message.unique_id),
        await admin.query_message_by_offset(where, 0),
    ):
        assert found.message_id == message.message_id
        assert (found.body, found.properties) == (message.body, message.properties)
    assert await admin.query_message("T", "k3") == []
    with pytest.raises(NotFoundError):
        await admin.query_message_by_unique_key("T", "none")
    view = await admin.query_consume_queue(where, 0, 10)
    assert len(view.queue_data) == 1
    assert (view.min_queue_index, view.max_queue_index) == (0, 1)
    await admin.set_message_request_mode(
        served.broker, RequestMode(topic="T", consumer_group="g", mode="PULL")
    )


async def test_figures_and_what_is_not_served(served: Served) -> None:
    admin, broker = served.admin, served.broker
    async with served.client.producer("pg") as producer:
        await producer.send(Message(topic="T", body=b"body"))
    figures = await admin.fetch_broker_runtime_stats(broker)
    assert figures["msgPutTotalTodayNow"] == "1"
    assert (await admin.view_broker_stats_data(broker, "TOPIC_PUT_NUMS", "T")).stats_day.sum == 1
    assert await admin.list_users(broker) == []
    assert await admin.list_acls(broker) == []
    assert (await admin.examine_plain_access_version(broker))["clusterName"] == CLUSTER
    with pytest.raises(InvalidParameterError, match="password can not be blank"):
        await admin.create_user(broker, UserInfo(username="u"))
    assert await admin.get_user(broker, "u") is None
    assert await admin.get_acl(broker, "User:u") is None
    with pytest.raises(UnsupportedRequestError):
        await admin.get_broker_ha_status(broker)
    with pytest.raises(UnsupportedRequestError):
        await admin.get_controller_metadata(broker)


async def test_consumer_with_a_condition_gets_what_matches(served: Served) -> None:
    async with (
        served.client.producer("pg") as producer,
        served.client.push_consumer("g", {"T": Filter("size > 5", SQL92)}, served.got.put),
    ):
        for number in (3, 7, 9):
            await producer.send(
                Message(topic="T", body=b"%d" % number, properties={"size": str(number)})
            )
        assert {await served.next_body(), await served.next_body()} == {b"7", b"9"}
