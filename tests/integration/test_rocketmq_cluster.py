"""Goal: RocketMQ's administration is the same on every node of a cluster, and outlives a node.

Method: three nodes in this process with real sockets; a change at one node is read at the others,
then one is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dragoman.client.rocketmq import (
    Message,
    RocketmqClient,
    SubscriptionGroupConfig,
    TopicConfig,
)
from dragoman.client_core.errors import ClientError
from dragoman.testing import EphemeralCluster

NODES = (1, 2, 3)


async def eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """A node learns a moment later what another has; a leader has to be found."""
    async with asyncio.timeout(60):
        while True:
            try:
                if await is_so():
                    return
            except ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_every_node_tells_the_same_and_goes_on_without_one() -> None:
    async with EphemeralCluster(listeners=("rocketmq", "rocketmq-broker")) as cluster:
        clients = {
            number: RocketmqClient(cluster.nodes[number].address("rocketmq")) for number in NODES
        }
        brokers = {number: cluster.nodes[number].address("rocketmq-broker") for number in NODES}
        try:
            await _agree(clients, brokers)
            await asyncio.to_thread(cluster.kill, 2)
            for number in (1, 3):
                await _still_there(clients[number], brokers[number])
        finally:
            for each in clients.values():
                await each.close()


async def _agree(clients: dict[int, RocketmqClient], brokers: dict[int, str]) -> None:
    for number, client in clients.items():
        admin = client.admin
        topic = f"T{number}"
        await admin.create_topic(
            TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=2),
            broker=brokers[number],
        )
        route = await admin.examine_topic_route_info(topic)
        assert route.broker_datas[0].broker_addrs == {"0": brokers[number]}, "led where it was made"
        await admin.put_kv_config("n", f"k{number}", "v")
        group = SubscriptionGroupConfig(group_name=f"g{number}", retry_max_times=number)
        await admin.create_subscription_group(group, broker=brokers[number])
        async with client.producer("pg") as producer:
            await producer.send(Message(topic=topic, body=b"body", keys=("key",)))

    wanted = {f"k{number}": "v" for number in NODES}
    for number, client in clients.items():
        admin = client.admin

        async def knows_all(client: RocketmqClient = client) -> bool:
            return await client.admin.get_kv_list_by_namespace("n") == wanted

        await eventually(knows_all)
        cluster = await admin.examine_broker_cluster_info()
        found = {each.broker_addrs["0"] for each in cluster.broker_addr_table.values()}
        assert found == set(brokers.values())
        assert sorted(await admin.fetch_all_topic_list()) == ["T1", "T2", "T3"]
        groups = await admin.get_all_subscription_group(brokers[number])
        assert {name: each.retry_max_times for name, each in groups.items()} == {
            f"g{each}": each for each in NODES
        }
        for other in NODES:
            messages = await admin.query_message(f"T{other}", "key")
            assert [each.body for each in messages] == [b"body"]


async def _still_there(client: RocketmqClient, broker: str) -> None:
    async def has_moved() -> bool:
        route = await client.admin.examine_topic_route_info("T2")
        addresses = route.broker_datas[0].broker_addrs
        messages = await client.admin.query_message("T2", "key")
        return bool(addresses) and [each.body for each in messages] == [b"body"]

    await eventually(has_moved)
    assert (await client.admin.get_kv_list_by_namespace("n"))["k2"] == "v"
    config = await client.admin.examine_subscription_group_config(broker, "g2")
    assert config.retry_max_times == 2

    async def can_be_changed() -> bool:
        await client.admin.put_kv_config("n", broker, "w")
        return await client.admin.get_kv_config("n", broker) == "w"

    await eventually(can_be_changed)
