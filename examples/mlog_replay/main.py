"""Publish, read again from an offset, follow what comes, and stop reading.

    python examples/mlog_replay/main.py

starts a broker of its own and prints

    published at 0, 1, 2, 3, 4
    replayed from 2: b'order 2' b'order 3' b'order 4'
    and then: b'order 5'
    the record at 1: b'order 1'
"""

from __future__ import annotations

import asyncio

from dragoman.client.mlog import MlogClient
from dragoman.testing import EphemeralBroker


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("mlog",)) as broker,
        MlogClient(broker.address("mlog")) as client,
    ):
        await client.create_topic("orders")
        offsets = await client.produce_batch("orders", [b"order %d" % n for n in range(5)])
        print("published at", ", ".join(map(str, offsets)))

        # `wait` has the broker hold the call until there is something: no polling.
        consumer = client.consume("orders", offset=2, wait=True)
        replayed = [(await anext(consumer)).value for _ in range(3)]
        print("replayed from 2:", *replayed)

        await client.produce("orders", b"order 5")
        print("and then:", (await anext(consumer)).value)

        # mlog has no subscriptions to end: a consumer that is not asked reads nothing.
        found = await client.fetch("orders", 1)
        print("the record at 1:", found and found.value)


asyncio.run(main())
