"""Segments roll, old ones are deleted, and reading from 0 starts at the oldest that is left.

    python examples/mlog_retention/main.py

starts a broker of its own that keeps about 40 kB of each topic in segments of 10 kB, and prints

    produced 100 records
    asked for 0, and the first record is later: True
    no record is missing from there on: True
"""

from __future__ import annotations

import asyncio

from dragoman.client.mlog import MlogClient
from dragoman.testing import EphemeralBroker

SETTINGS = {
    "log.segment.bytes": "10000",
    "log.retention.bytes": "40000",
    "log.retention.check.interval.ms": "20",
}


async def first_offset(client: MlogClient) -> int:
    entry = await client.fetch("log", 0)
    assert entry is not None
    return entry.offset


async def main() -> None:
    async with (
        EphemeralBroker(listeners=("mlog",), settings=SETTINGS) as broker,
        MlogClient(broker.address("mlog")) as client,
    ):
        await client.create_topic("log")
        for _ in range(100):
            last = await client.produce("log", bytes(1000))
        print("produced", last + 1, "records")

        # Retention runs by itself, every 20 ms here.
        while (oldest := await first_offset(client)) == 0:
            await asyncio.sleep(0.02)
        print("asked for 0, and the first record is later:", oldest > 0)

        offsets = [entry.offset for entry in await client.fetch_batch("log", max_count=200)]
        whole = offsets == list(range(offsets[0], last + 1))
        print("no record is missing from there on:", whole)


asyncio.run(main())
