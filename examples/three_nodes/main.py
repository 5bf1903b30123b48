"""Three nodes: publish, read at another node's address, kill the leader, continue.

    python examples/three_nodes/main.py

starts a cluster of its own and prints

    before: b'0' b'1' b'2' read at a node that does not lead
    the leader is killed
    after: b'3' b'4' b'5'
    the log holds: b'0' b'1' b'2' b'3' b'4' b'5'
"""

from __future__ import annotations

import asyncio

from dragoman.client.minibroker import MinibrokerClient, Subscription
from dragoman.testing import EphemeralCluster

KEY = b"sensor"


async def publish(client: MinibrokerClient, numbers: range) -> int:
    for number in numbers:
        # The client may be connected to any node: one that does not lead refuses, and the client
        # tries the next address.
        place = await client.publish("readings", b"%d" % number, KEY)
    return place.partition


async def take(subscription: Subscription, count: int) -> list[bytes]:
    return [(await anext(subscription)).payload for _ in range(count)]


async def go_on(cluster: EphemeralCluster, writer: MinibrokerClient) -> None:
    partition = await publish(writer, range(3))
    leader = cluster.leader("readings", partition)
    follower = next(number for number in cluster.nodes if number != leader)
    address = cluster.nodes[follower].address("minibroker")

    async with MinibrokerClient(address) as reader:
        subscription = await reader.subscribe("readings", partition, offset=0)
        print("before:", *await take(subscription, 3), "read at a node that does not lead")

        await asyncio.to_thread(cluster.kill, leader)
        print("the leader is killed")
        await publish(writer, range(3, 6))
        print("after:", *await take(subscription, 3))

    async with MinibrokerClient(address) as another:
        everything = await another.subscribe("readings", partition, offset=0)
        print("the log holds:", *await take(everything, 6))


async def main() -> None:
    async with (
        EphemeralCluster(listeners=("minibroker",)) as cluster,
        MinibrokerClient(cluster.addresses("minibroker")) as writer,
    ):
        await go_on(cluster, writer)


asyncio.run(main())
