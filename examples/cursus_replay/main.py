"""Publish, read live, read again from an offset, and stop reading.

    python examples/cursus_replay/main.py

starts a broker of its own and prints

    live: b'one' b'two' b'three'
    again from offset 1: b'two' b'three'
    after it has left, the group has 0 members
"""

from __future__ import annotations

import asyncio
import json

from dragoman.client.cursus import CursusClient
from dragoman.testing import EphemeralBroker


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("cursus",)) as broker,
        CursusClient(broker.address("cursus")) as client,
    ):
        await client.create_topic("news", 1)
        reader = client.consumer("news", "readers")
        await reader.start()
        for payload in (b"one", b"two", b"three"):
            await client.publish("news", payload)
        print("live:", *[(await anext(reader)).payload for _ in range(3)])

        # Reading without a group: from any offset, as often as wanted.
        again = await client.consume("news", 0, 1)
        print("again from offset 1:", *[each.payload for each in again])

        await reader.close()
        status = json.loads(await client.command("GROUP_STATUS", {"group": "readers"}))
        print("after it has left, the group has", status["member_count"], "members")


asyncio.run(main())
