"""Goal: producers and consumers of the RocketMQ client continue when their node dies, and all that
was acknowledged is consumed.

Method: three nodes in this process with real sockets; the one that serves the topic is killed while
messages are sent, and started again later.
"""

from __future__ import annotations

import asyncio

import pytest

from dragoman.client.rocketmq import (
    ClientError,
    ClientSettings,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    RocketmqClient,
)
from dragoman.testing import EphemeralCluster

SETTINGS = ClientSettings(request_timeout_s=10.0, operation_timeout_s=60.0)
COUNT = 60


async def sent(client: RocketmqClient, numbers: range) -> None:
    """Each until it is acknowledged, one after the other."""
    async with client.producer("p") as producer:
        for number in numbers:
            message = Message(topic="T", body=b"%d" % number, sharding_key=str(number % 3))
            while True:
                try:
                    await producer.send(message)
                    break
                except ClientError:
                    # The topic has no leader at the moment.
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_orderly", [False, True])
async def test_everything_arrives_although_the_leader_dies(is_orderly: bool) -> None:
    given: list[int] = []

    def listener(message: ReceivedMessage) -> None:
        given.append(int(message.body))

    listeners = ("rocketmq", "rocketmq-broker")
    async with (
        asyncio.timeout(150),
        EphemeralCluster(
            listeners=listeners, settings={"default.replication.factor": "3"}
        ) as cluster,
        RocketmqClient(cluster.addresses("rocketmq"), settings=SETTINGS) as client,
    ):
        await sent(client, range(3))
        consumer = client.push_consumer(
            "g", {"T": "*"}, listener, start=ConsumeFrom.FIRST_OFFSET, is_orderly=is_orderly
        )
        async with consumer:
            await sent(client, range(3, COUNT // 3))
            leader = cluster.leader("T")
            await asyncio.to_thread(cluster.kill, leader)
            await sent(client, range(COUNT // 3, 2 * COUNT // 3))
            while not set(range(2 * COUNT // 3)) <= set(given):
                await asyncio.sleep(0.05)
            await asyncio.to_thread(cluster.start, leader)
            await sent(client, range(2 * COUNT // 3, COUNT))
            while not set(range(COUNT)) <= set(given):
                await asyncio.sleep(0.05)
    if is_orderly:
        firsts = list(dict.fromkeys(given))
        for key in range(3):
            of_key = [each for each in firsts if each % 3 == key]
            assert of_key == sorted(of_key)
