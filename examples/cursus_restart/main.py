"""A producer and a member of a group keep working while the broker is restarted.

    python examples/cursus_restart/main.py

starts a broker of its own, on disk, and prints

    before the restart: b'0' b'1' b'2'
    after the restart: b'3' b'4' b'5'
    the log holds: b'0' b'1' b'2' b'3' b'4' b'5'
"""

from __future__ import annotations

import asyncio

from dragoman.client.cursus import CursusClient, CursusSettings
from dragoman.testing import EphemeralBroker


async def main() -> None:
    async with EphemeralBroker(storage="directory", listeners=("cursus",)) as broker:
        settings = CursusSettings(backoff_max_s=0.1)
        async with CursusClient(broker.address("cursus"), settings) as client:
            await client.create_topic("readings", 1)
            producer = client.producer()
            async with client.consumer("readings", "sums", heartbeat_s=0.2) as consumer:
                for number in range(3):
                    await producer.send("readings", b"%d" % number)
                print("before the restart:", *[(await anext(consumer)).payload for _ in range(3)])

                await asyncio.to_thread(broker.restart)

                # Both find out for themselves and connect again. What the producer repeats the
                # broker knows, so that every message is there once.
                for number in range(3, 6):
                    await producer.send("readings", b"%d" % number)
                print("after the restart:", *[(await anext(consumer)).payload for _ in range(3)])
            await producer.close()
            everything = await client.consume("readings", 0, 0)
            print("the log holds:", *[each.payload for each in everything])


asyncio.run(main())
