"""A member that is stuck sends no heartbeats: it is evicted, and the others take its partitions.

    python examples/cursus_eviction/main.py

starts a broker of its own that waits half a second for heartbeats, and prints

    the stuck member has (0, 1, 2, 3)
    another one comes: it has (2, 3)
    no heartbeats of the stuck one: the other has (0, 1, 2, 3)
    what the stuck one commits now: member_not_found
"""

from __future__ import annotations

import asyncio

from dragoman.client.cursus import CursusClient, MemberFencedError
from dragoman.testing import EphemeralBroker

SETTINGS = {"cursus.session.timeout.ms": "500", "cursus.session.check.interval.ms": "50"}


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("cursus",), settings=SETTINGS) as broker,
        CursusClient(broker.address("cursus")) as client,
    ):
        await client.create_topic("jobs", 4)
        stuck = client.consumer("jobs", "workers", member="a", heartbeat_s=3600, auto_commit_s=None)
        await stuck.start()
        print("the stuck member has", stuck.assigned)
        await client.publish("jobs", b"work")
        await anext(stuck)

        async with client.consumer("jobs", "workers", member="b", heartbeat_s=0.1) as worker:
            print("another one comes: it has", worker.assigned)
            while worker.assigned != (0, 1, 2, 3):
                await asyncio.sleep(0.01)
            print("no heartbeats of the stuck one: the other has", worker.assigned)
            try:
                await stuck.commit()
            except MemberFencedError as error:
                print("what the stuck one commits now:", error.server_code)
        await stuck.close()


asyncio.run(main())
