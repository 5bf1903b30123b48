"""A member that is stuck sends no heartbeats: it is evicted, and the others take its partitions.

    python examples/minibroker_eviction/main.py

starts a broker of its own that waits half a second for heartbeats, and prints

    the worker has (0, 1, 2, 3)
    another one comes: the worker has (0, 2)
    the other one is stuck, and gets the error: evicted: heartbeat timeout
    the worker has (0, 1, 2, 3)
"""

from __future__ import annotations

import asyncio

from dragoman.client.minibroker import ClientSettings, MinibrokerClient
from dragoman.protocols.minibroker.connection import Connection, Role
from dragoman.protocols.minibroker.messages import Failed, SubscribeGroup
from dragoman.testing import EphemeralBroker


async def join_and_get_stuck(address: str) -> str:
    """A member made by hand, since a client would send heartbeats. Returns its last error."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    connection = Connection(Role.CLIENT)
    writer.write(connection.send(SubscribeGroup(topic="jobs", group="workers")))
    reason = ""
    while data := await reader.read(1 << 16):
        for event in connection.receive_data(data):
            if isinstance(event, Failed):
                reason = event.reason
    writer.close()
    return reason


async def main() -> None:
    settings = {"minibroker.heartbeat.timeout.ms": "500"}
    async with EphemeralBroker(listeners=("minibroker",), settings=settings) as broker:
        address = broker.address("minibroker")
        assignments: asyncio.Queue[tuple[int, ...]] = asyncio.Queue()
        often = ClientSettings(heartbeat_interval_s=0.1)
        async with MinibrokerClient(address, often) as client:
            await client.join("jobs", "workers", assignments.put_nowait)
            print("the worker has", await assignments.get())

            stuck = asyncio.create_task(join_and_get_stuck(address))
            print("another one comes: the worker has", await assignments.get())
            print("the other one is stuck, and gets the error:", await stuck)
            print("the worker has", await assignments.get())


asyncio.run(main())
