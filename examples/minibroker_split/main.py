"""Two workers of a group share four partitions; payloads are any bytes.

    python examples/minibroker_split/main.py

starts a broker of its own and prints

    worker a has (0, 2), worker b has (1, 3)
    worker a did 20 of 40, worker b did 20
    every payload came back as it was: True
"""

from __future__ import annotations

import asyncio
import random

from dragoman.client.minibroker import GroupSubscription, MinibrokerClient
from dragoman.testing import EphemeralBroker


async def work(member: GroupSubscription, count: int) -> list[bytes]:
    done = []
    for _ in range(count):
        record = await anext(member)
        done.append(record.payload)
        await member.commit(record)
    return done


async def main() -> None:
    async with EphemeralBroker(listeners=("minibroker",)) as broker:
        address = broker.address("minibroker")
        async with MinibrokerClient(address) as first, MinibrokerClient(address) as second:
            told = asyncio.Event()
            a = await first.join("images", "thumbnails", lambda _partitions: told.set())
            told.clear()
            b = await second.join("images", "thumbnails")
            # The first member is notified of its smaller assignment.
            await told.wait()
            print(f"worker a has {a.partitions}, worker b has {b.partitions}")

            generator = random.Random(1)
            images = [generator.randbytes(1000) for _ in range(40)]
            for image in images:
                # Without a key, records go round the partitions.
                await second.publish("images", image)

            by_a, by_b = await asyncio.gather(work(a, 20), work(b, 20))
            print(f"worker a did {len(by_a)} of 40, worker b did {len(by_b)}")
            print("every payload came back as it was:", sorted(by_a + by_b) == sorted(images))


asyncio.run(main())
