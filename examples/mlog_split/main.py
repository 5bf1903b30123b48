"""Two workers share four partitions of binary records.

mlog has no groups that share partitions out, and no partitions: `frames@2` is the third one of
`frames`, a topic that was made by a Kafka client. Each worker takes those that are its own.

    python examples/mlog_split/main.py

starts a broker of its own and prints

    worker 0 read 6 records of partitions 0 and 2, intact: True
    worker 1 read 6 records of partitions 1 and 3, intact: True
"""

from __future__ import annotations

import asyncio

from dragoman.client.kafka import KafkaClient, NewTopic
from dragoman.client.mlog import ClientSettings, Encoding, MlogClient
from dragoman.testing import EphemeralBroker

PARTITIONS = 4
RECORDS = 3
#: Binary values need no base64 in protobuf.
SETTINGS = ClientSettings(encoding=Encoding.PROTOBUF)


def payload(partition: int, number: int) -> bytes:
    return bytes([0x00, 0xFF, partition, number]) * 8


async def work(address: str, worker: int) -> None:
    own = range(worker, PARTITIONS, 2)
    read: list[bytes | None] = []
    async with MlogClient(address, settings=SETTINGS) as client:
        for partition in own:
            entries = await client.fetch_batch(f"frames@{partition}", id=f"worker-{worker}")
            read += [entry.value for entry in entries]
            await client.commit(f"frames@{partition}", len(entries), id=f"worker-{worker}")
    expected = [payload(partition, number) for partition in own for number in range(RECORDS)]
    partitions = " and ".join(map(str, own))
    print(
        f"worker {worker} read {len(read)} records of partitions {partitions}, "
        f"intact: {read == expected}"
    )


async def main() -> None:
    async with EphemeralBroker(listeners=("kafka", "mlog")) as broker:
        address = broker.address("mlog")
        async with KafkaClient(broker.bootstrap_servers) as admin:
            await admin.create_topic(NewTopic(name="frames", partitions=PARTITIONS))
        async with MlogClient(address, settings=SETTINGS) as client:
            for partition in range(PARTITIONS):
                values = [payload(partition, number) for number in range(RECORDS)]
                await client.produce_batch(f"frames@{partition}", values)
        for worker in range(2):
            await work(address, worker)


asyncio.run(main())
