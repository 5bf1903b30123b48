"""Segments roll, old ones are deleted, and a subscription from 0 starts at the oldest that is left.

    python examples/minibroker_retention/main.py

starts a broker of its own that keeps about 40 kB of each partition in segments of 10 kB, and prints

    published 100 records
    asked for 0, and the first record is later: True
    no record is missing from there on: True
"""

from __future__ import annotations

import asyncio

from dragoman.client.minibroker import MinibrokerClient
from dragoman.testing import EphemeralBroker

SETTINGS = {
    "minibroker.partitions": "1",
    "log.segment.bytes": "10000",
    "log.retention.bytes": "40000",
    "log.retention.check.interval.ms": "20",
}


async def first_record(client: MinibrokerClient) -> int:
    async with await client.subscribe("log", 0, offset=0) as subscription:
        return (await anext(subscription)).offset


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("minibroker",), settings=SETTINGS) as broker,
        MinibrokerClient(broker.address("minibroker")) as client,
    ):
        for _ in range(100):
            last = await client.publish("log", bytes(1000))
        print("published", last.offset + 1, "records")

        # Retention runs by itself, every 20 ms here.
        while (oldest := await first_record(client)) == 0:
            await asyncio.sleep(0.02)
        print("asked for 0, and the first record is later:", oldest > 0)

        async with await client.subscribe("log", 0, offset=0) as subscription:
            offsets = [(await anext(subscription)).offset]
            while offsets[-1] < last.offset:
                offsets.append((await anext(subscription)).offset)
        whole = offsets == list(range(offsets[0], last.offset + 1))
        print("no record is missing from there on:", whole)


asyncio.run(main())
