"""Two workers of a group share four partitions; payloads are any bytes.

    python examples/cursus_split/main.py

starts a broker of its own and prints

    worker a has (0, 1), worker b has (2, 3)
    worker a did 20 of 40, worker b did 20
    every payload came back as it was: True
"""

from __future__ import annotations

import asyncio
import random

from dragoman.client.cursus import Consumer, CursusClient
from dragoman.testing import EphemeralBroker


async def work(worker: Consumer, count: int) -> list[bytes]:
    return [(await anext(worker)).payload for _ in range(count)]


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("cursus",)) as broker,
        CursusClient(broker.address("cursus")) as client,
    ):
        await client.create_topic("images", 4)
        a = client.consumer("images", "thumbnails", member="a", heartbeat_s=0.05)
        b = client.consumer("images", "thumbnails", member="b", heartbeat_s=0.05)
        await a.start()
        await b.start()
        # The first member gets its new assignment with its next heartbeat.
        while a.assigned != (0, 1):
            await asyncio.sleep(0.01)
        print(f"worker a has {a.assigned}, worker b has {b.assigned}")

        generator = random.Random(1)
        images = [generator.randbytes(1000) for _ in range(40)]
        async with client.producer() as producer:
            for image in images:
                # Without a key, messages go round the partitions.
                await producer.send("images", image)

        by_a, by_b = await asyncio.gather(work(a, 20), work(b, 20))
        print(f"worker a did {len(by_a)} of 40, worker b did {len(by_b)}")
        print("every payload came back as it was:", sorted(by_a + by_b) == sorted(images))
        await a.close()
        await b.close()


asyncio.run(main())
