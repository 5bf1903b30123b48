"""Publish, read again from an offset, follow what comes, unsubscribe.

    python examples/minibroker_replay/main.py

starts a broker of its own and prints

    published at 0, 1, 2, 3, 4
    replayed from 2: b'order 2' b'order 3' b'order 4'
    and then: b'order 5'
    after unsubscribing: nothing
"""

from __future__ import annotations

import asyncio

from dragoman.client.minibroker import MinibrokerClient
from dragoman.testing import EphemeralBroker


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("minibroker",)) as broker,
        MinibrokerClient(broker.address("minibroker")) as client,
    ):
        # Records of one key are in one partition, in order.
        places = [await client.publish("orders", b"order %d" % n, b"alice") for n in range(5)]
        print("published at", ", ".join(str(place.offset) for place in places))

        subscription = await client.subscribe("orders", places[0].partition, offset=2)
        replayed = [(await anext(subscription)).payload for _ in range(3)]
        print("replayed from 2:", *replayed)

        await client.publish("orders", b"order 5", b"alice")
        print("and then:", (await anext(subscription)).payload)

        await subscription.close()
        await client.publish("orders", b"order 6", b"alice")
        rest = [record async for record in subscription]
        print("after unsubscribing:", rest or "nothing")


asyncio.run(main())
