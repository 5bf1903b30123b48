"""Segments roll, old ones are deleted, and a reader gets the new start of the log.

    python examples/cursus_retention/main.py

starts a broker of its own that keeps about 40 kB of the topic in segments of 10 kB, and prints

    published 100 messages
    offset 0 is gone: OFFSET_OUT_OF_RANGE
    a group starts at the oldest that is left: True
    no message is missing from there on: True
"""

from __future__ import annotations

import asyncio

from dragoman.client.cursus import CursusClient, CursusError
from dragoman.testing import EphemeralBroker

SETTINGS = {"log.segment.bytes": "10000", "log.retention.check.interval.ms": "20"}


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("cursus",), settings=SETTINGS) as broker,
        CursusClient(broker.address("cursus")) as client,
    ):
        await client.create_topic("log", 1, retention_bytes=40_000)
        async with client.producer() as producer:
            for _ in range(100):
                last = await producer.send("log", bytes(1000))
        print("published", last + 1, "messages")

        # Retention runs by itself, every 20 ms here.
        while (await client.offsets("log"))[0].earliest == 0:
            await asyncio.sleep(0.02)
        try:
            await client.consume("log", 0, 0)
        except CursusError as error:
            print("offset 0 is gone:", error.server_code)

        async with client.consumer("log", "late") as consumer:
            offsets = [(await anext(consumer)).offset]
            print("a group starts at the oldest that is left:", offsets[0] > 0)
            while offsets[-1] < last:
                offsets.append((await anext(consumer)).offset)
        print("no message is missing from there on:", offsets == list(range(offsets[0], last + 1)))


asyncio.run(main())
