"""A consumer id remembers what it has read, over consumers and over protocols.

    python examples/mlog_resume/main.py

starts a broker of its own and prints

    first consumer read: b'0' b'1' b'2' b'3'
    second consumer resumes: b'4' b'5'
    another id begins at the start: b'0'
"""

from __future__ import annotations

import asyncio

from dragoman.client.mlog import MlogClient
from dragoman.testing import EphemeralBroker


async def main() -> None:
    async with EphemeralBroker(listeners=("mlog",)) as broker:
        address = broker.address("mlog")
        async with MlogClient(address) as client:
            await client.create_topic("orders")
            await client.produce_batch("orders", [b"%d" % number for number in range(6)])
            consumer = client.consume("orders", id="billing", max_count=4)
            entries = await consumer.next_entries()
            print("first consumer read:", *(entry.value for entry in entries))
            await consumer.commit()

        async with MlogClient(address) as client:
            # To Kafka clients, `billing` is a group; a member of it would resume here, too.
            entries = await client.consume("orders", id="billing").next_entries()
            print("second consumer resumes:", *(entry.value for entry in entries))
            entry = await client.fetch("orders", id="shipping")
            print("another id begins at the start:", entry and entry.value)


asyncio.run(main())
