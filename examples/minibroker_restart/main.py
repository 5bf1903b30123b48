"""A publisher and a subscriber keep working while the broker is restarted.

    python examples/minibroker_restart/main.py

starts a broker of its own, on disk, and prints

    before the restart: b'0' b'1' b'2'
    after the restart: b'3' b'4' b'5'
    the log holds: b'0' b'1' b'2' b'3' b'4' b'5'
"""

from __future__ import annotations

import asyncio

from dragoman.client.minibroker import MinibrokerClient, Subscription
from dragoman.testing import EphemeralBroker

KEY = b"sensor"


async def publish(client: MinibrokerClient, numbers: range) -> int:
    for number in numbers:
        place = await client.publish("readings", b"%d" % number, KEY)
    return place.partition


async def take(subscription: Subscription, count: int) -> list[bytes]:
    return [(await anext(subscription)).payload for _ in range(count)]


async def main() -> None:
    async with EphemeralBroker(storage="directory", listeners=("minibroker",)) as broker:
        address = broker.address("minibroker")
        async with MinibrokerClient(address) as writer, MinibrokerClient(address) as reader:
            partition = await publish(writer, range(3))
            subscription = await reader.subscribe("readings", partition, offset=0)
            print("before the restart:", *await take(subscription, 3))

            await asyncio.to_thread(broker.restart)

            # Both notice the loss and connect again, and the subscription continues.
            await publish(writer, range(3, 6))
            print("after the restart:", *await take(subscription, 3))

        async with MinibrokerClient(address) as another:
            everything = await another.subscribe("readings", partition, offset=0)
            print("the log holds:", *await take(everything, 6))


asyncio.run(main())
