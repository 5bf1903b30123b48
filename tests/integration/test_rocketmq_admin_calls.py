"""Goal: administration by the RocketMQ client works against the broker, call by call, with members
that are asked through it.

Method: an in-process broker over loopback, with a topic of twenty messages and a consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from dragoman.client.rocketmq import (
    LATEST,
    ConsumeFrom,
    GroupOfflineError,
    InvalidParameterError,
    Message,
    MessageQueue,
    NotFoundError,
    PushConsumer,
    ReceivedMessage,
    RocketmqAdmin,
    RocketmqClient,
    Sent,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicNotFoundError,
    TrackKind,
    UnsupportedRequestError,
)
from dragoman.protocols.rocketmq import bodies
from dragoman.testing import EphemeralBroker

TIMEOUT_S = 60.0
COUNT = 20


class World:
    """What there is: a client, a topic, its messages, and a consumer that has them all."""

    def __init__(self, client: RocketmqClient, broker: str) -> None:
        self.client = client
        self.admin: RocketmqAdmin = client.admin
        self.broker = broker
        self.sent: list[Sent] = []
        self.given: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
        self.consumer: PushConsumer | None = None

    @property
    def queue(self) -> MessageQueue:
        return self.sent[0].queue

    async def start(self) -> None:
        config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        await self.admin.create_topic(config)
        producer = self.client.producer("writers")
        for number in range(COUNT):
            message = Message(topic="T", body=b"%d" % number, tags="a", keys=[f"k{number}"])
            self.sent.append(await producer.send(message))
        self.consumer = self.client.push_consumer(
            "g", {"T": "a"}, self.given.put_nowait, start=ConsumeFrom.FIRST_OFFSET
        )
        await self.consumer.start()
        await self.consumed()

    async def consumed(self) -> None:
        for _ in range(COUNT):
            await self.given.get()
        assert self.consumer is not None
        while (await self.admin.examine_consume_stats("g", "T")).lag:
            await self.consumer.commit()


@pytest.fixture
def broker() -> Iterator[EphemeralBroker]:
    with EphemeralBroker(listeners=("rocketmq", "rocketmq-broker")) as started:
        yield started


@pytest.fixture
async def world(broker: EphemeralBroker) -> AsyncIterator[World]:
    async with asyncio.timeout(TIMEOUT_S):
        async with RocketmqClient(broker.address("rocketmq")) as client:
            made = World(client, broker.address("rocketmq-broker"))
            await made.start()
            yield made


async def test_the_name_server(world: World) -> None:
    admin = world.admin
    info = await admin.examine_broker_cluster_info()
    (name,) = info.broker_addr_table
    assert info.cluster_addr_table == {"DefaultCluster": [name]}
    assert info.broker_addr_table[name].broker_addrs == {"0": world.broker}
    assert "T" in await admin.fetch_all_topic_list()
    assert "T" in await admin.fetch_topics_by_cluster("DefaultCluster")
    assert name in await admin.fetch_system_topic_list()
    assert await admin.get_topic_cluster_list("T") == {"DefaultCluster"}
    await admin.put_kv_config("n", "k", "v")
    assert await admin.get_kv_config("n", "k") == "v"
    assert await admin.get_kv_list_by_namespace("n") == {"k": "v"}
    await admin.delete_kv_config("n", "k")
    with pytest.raises(NotFoundError):
        await admin.get_kv_config("n", "k")
    await admin.create_or_update_order_conf("T", f"{name}:2")
    assert (await admin.examine_topic_route_info("T")).order_topic_conf == f"{name}:2"
    assert await admin.wipe_write_perm_of_broker(name) > 0
    assert (await admin.examine_topic_route_info("T")).queue_datas[0].perm == 4
    assert await admin.add_write_perm_of_broker(name) > 0
    assert (await admin.examine_topic_route_info("T")).queue_datas[0].perm == 6
    (settings,) = (await admin.get_name_server_config()).values()
    assert settings
    with pytest.raises(InvalidParameterError):
        await admin.update_name_server_config({"no.such": "1"})


async def test_topics(world: World) -> None:
    admin = world.admin
    stats = await admin.examine_topic_stats("T")
    assert [each.queue_id for each in stats] == [0, 1, 2, 3]
    assert sum(each.max_offset - each.min_offset for each in stats.values()) == COUNT
    config = await admin.examine_topic_config(world.broker, "T")
    assert (config.topic_name, config.read_queue_nums) == ("T", 4)
    assert (await admin.get_all_topic_config(world.broker))["T"] == config
    assert await admin.query_topic_consume_by_who("T") == ["g"]
    assert "SCHEDULE_TOPIC_XXXX" in await admin.get_system_topic_list_from_broker(world.broker)
    more = TopicConfig(topic_name="T", read_queue_nums=6, write_queue_nums=5)
    await admin.create_topic(more, broker=world.broker)
    changed = await admin.examine_topic_config(world.broker, "T")
    assert (changed.read_queue_nums, changed.write_queue_nums) == (6, 5)
    await admin.delete_topic("T")
    with pytest.raises(TopicNotFoundError):
        await admin.examine_topic_route_info("T")
    with pytest.raises(UnsupportedRequestError):
        await admin.create_static_topic(world.broker, TopicConfig(topic_name="S"), {})


async def test_groups(world: World) -> None:
    admin, client_id = world.admin, world.client.client_id
    await admin.create_subscription_group(
        SubscriptionGroupConfig(group_name="h", retry_max_times=3)
    )
    assert (await admin.examine_subscription_group_config(world.broker, "h")).retry_max_times == 3
    assert await admin.list_groups() == ["g", "h"]
    assert (await admin.get_all_subscription_group(world.broker)).keys() >= {"g", "h"}
    forbidden = await admin.update_and_get_group_read_forbidden(world.broker, "h", "T", False)
    assert not forbidden.readable
    await admin.delete_subscription_group("h")
    assert await admin.list_groups() == ["g"]
    members = await admin.examine_consumer_connection_info("g")
    assert [each.client_id for each in members.connection_set] == [client_id]
    assert members.subscription_table["T"].sub_string == "a"
    writers = await admin.examine_producer_connection_info("writers", "T")
    assert [each.client_id for each in writers.connection_set] == [client_id]
    assert "writers" in await admin.get_all_producer_info(world.broker)
    running = await admin.get_consumer_running_info("g", client_id)
    assert {each.topic for each in bodies.by_queue(running.mq_table)} == {"T", "%RETRY%g"}
    assert await admin.query_topics_by_consumer("g") == ["T"]
    subscription = await admin.query_subscription("g", "T")
    assert subscription is not None
    assert subscription.tags_set == ["a"]
    with pytest.raises(GroupOfflineError):
        await admin.examine_consumer_connection_info("nobody")


async def test_offsets(world: World) -> None:
    admin, queue = world.admin, world.queue
    assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 5)
    assert await admin.search_offset(queue, 0) == 0
    assert await admin.earliest_message_store_time(queue) > 0
    assert await admin.query_consume_offset(queue, "g") == 5
    await admin.update_consume_offset(queue, "h", 2)
    assert await admin.query_consume_offset(queue, "h") == 2
    with pytest.raises(NotFoundError):
        await admin.query_consume_offset(queue, "nobody")
    progress = await admin.examine_consume_stats("g")
    assert progress.lag == 0
    assert {each.topic for each in progress.offsets} == {"T", "%RETRY%g"}
    stats = await admin.fetch_consume_stats_in_broker(world.broker)
    assert "g" in {group for each in stats.consume_stats_list for group in each}
    assert len(await admin.query_consume_time_span("T", "g")) == 4
    status = await admin.get_consume_status("T", "g")
    assert status[world.client.client_id] == {
        each: 5 for each in progress.offsets if each.topic == "T"
    }
    await admin.clone_group_offset("g", "copy", "T")
    assert await admin.query_consume_offset(queue, "copy") == 5


async def test_groups_are_moved_with_members_and_without(world: World) -> None:
    admin = world.admin
    moved = await admin.reset_offset_by_timestamp("T", "g", 0)
    assert sorted(moved.values()) == [0, 0, 0, 0]
    # Its member gets everything again.
    await world.consumed()
    assert world.consumer is not None
    await world.consumer.close()
    await admin.reset_offset_by_timestamp("T", "g", 0)
    assert (await admin.examine_consume_stats("g", "T")).lag == COUNT
    await admin.reset_offset_by_timestamp("T", "g", LATEST)
    assert (await admin.examine_consume_stats("g", "T")).lag == 0


async def test_messages(world: World) -> None:
    admin, sent = world.admin, world.sent[3]
    by_id = await admin.query_message_by_id(sent.message_id)
    assert by_id.body == b"3"
    for name in (sent.message_id, sent.unique_id):
        assert (await admin.view_message("T", name)).body == b"3"
    assert (await admin.query_message_by_unique_key("T", sent.unique_id)).body == b"3"
    assert [each.body for each in await admin.query_message("T", "k3")] == [b"3"]
    assert (await admin.query_message_by_offset(sent.queue, sent.queue_offset)).body == b"3"
    found = await admin.query_message_by_time("T", 0, 1 << 60)
    assert sorted(int(each.body) for each in found) == list(range(COUNT))
    with pytest.raises(NotFoundError):
        await admin.view_message("T", "0" * 32)
    view = await admin.query_consume_queue(sent.queue, 0, 3, "g")
    assert (len(view.queue_data), view.max_queue_index) == (3, 5)
    directly = await admin.consume_message_directly(
        "g", world.client.client_id, "T", sent.unique_id
    )
    assert directly.consume_result == "CR_SUCCESS"
    assert (await world.given.get()).body == b"3"
    (track,) = await admin.message_track_detail(by_id)
    assert (track.group, track.kind) == ("g", TrackKind.CONSUMED)


async def test_the_broker_itself(world: World) -> None:
    admin, broker = world.admin, world.broker
    assert "putTps" in await admin.fetch_broker_runtime_stats(broker)
    assert (await admin.get_broker_config(broker))["brokerClusterName"] == "DefaultCluster"
    with pytest.raises(InvalidParameterError):
        await admin.update_broker_config(broker, {"no.such": "1"})
    stats = await admin.view_broker_stats_data(broker, "TOPIC_PUT_NUMS", "T")
    assert stats.stats_day.sum == COUNT
    await admin.clean_expired_consumer_queue()
    await admin.delete_expired_commit_log()
    await admin.clean_unused_topic()
    assert "T" in await admin.fetch_all_topic_list()
