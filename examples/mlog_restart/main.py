"""A producer and a consumer keep working while the broker is restarted.

    python examples/mlog_restart/main.py

starts a broker of its own, on disk, and prints

    before the restart: b'0' b'1' b'2'
    after the restart: b'3' b'4' b'5'
    the log holds: b'0' b'1' b'2' b'3' b'4' b'5'
"""

from __future__ import annotations

import asyncio

from dragoman.client.mlog import AckMode, Consumer, MlogClient
from dragoman.testing import EphemeralBroker


async def produce(client: MlogClient, numbers: range) -> None:
    for number in numbers:
        await client.produce("readings", b"%d" % number, acks=AckMode.ALL)


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await anext(consumer)).value for _ in range(count)]


async def main() -> None:
    async with EphemeralBroker(storage="directory", listeners=("mlog",)) as broker:
        address = broker.address("mlog")
        async with MlogClient(address) as writer, MlogClient(address) as reader:
            await writer.create_topic("readings")
            await produce(writer, range(3))
            consumer = reader.consume("readings", wait=True)
            print("before the restart:", *await take(consumer, 3))

            await asyncio.to_thread(broker.restart)

            # Both notice the loss, look for the leader, and continue.
            await produce(writer, range(3, 6))
            print("after the restart:", *await take(consumer, 3))

        async with MlogClient(address) as another:
            entries = await another.fetch_batch("readings")
            print("the log holds:", *(entry.value for entry in entries))


asyncio.run(main())
