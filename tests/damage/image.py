"""Data directories as a node leaves them, in memory, with an account of what is in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as NewKafkaTopic

from dragoman.broker.broker import Broker
from dragoman.errors import CorruptionError
from dragoman.log.cleaner import CompactionPolicy, compact
from dragoman.log.damage import lost_ranges
from dragoman.log.partition import PartitionLog
from dragoman.testing import EphemeralBroker, ephemeral
from dragoman.testing.memory import MemoryDisk
from dragoman.types import GroupId
from dragoman.world import read_whole, replace_file

Files = dict[str, bytes]
#: By topic and partition: key and value at each offset.
Records = dict[tuple[str, int], dict[int, tuple[bytes | None, bytes | None]]]
#: By group: offsets by topic and partition.
Commits = dict[str, dict[tuple[str, int], int]]

_SETTINGS = {
    "durability": "fsync",
    "log.segment.bytes": "16384",
    # Nothing changes by itself while a directory is judged.
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "3600000",
}
_PLAIN, _COMPACTED, _PAID = "plain", "compacted", "paid"


class Image(NamedTuple):
    name: str
    files: Files
    records: Records
    commits: Commits


def build(name: str, *, is_clean: bool) -> Image:
    """A directory with rolled, compacted and trimmed segments, transactions and commits.

    The records are acknowledged; those of the last seconds are in the journal only.
    """
    disk = MemoryDisk()
    with serving(disk) as broker:
        address = broker.bootstrap_servers
        _create_topics(address)
        _produce(address, _PLAIN, 2, range(300))
        _produce(address, _COMPACTED, 1, range(300), keys=7)
        _transact(address, range(60))
        on_loop(broker, _settle)
        _commit(address, "readers", {(_PLAIN, 0): 100, (_PAID, 0): 7})
        _produce(address, _PLAIN, 2, range(300, 340))
        _transact(address, range(60, 80))
        _commit(address, "readers", {(_PLAIN, 0): 120})
        _commit(address, "late", {(_PLAIN, 1): 5})
        records = on_loop(broker, read_all)
        commits = on_loop(broker, read_commits)
        if is_clean:
            broker.stop()
        else:
            broker.kill()
    files = files_of(disk)
    files["quarantine/kept_from_before.log"] = b"damaged" * 50
    return Image(name, files, records, commits)


#: A start takes a fraction of a second; one that takes longer hangs.
_START_SECONDS_MAX = 20.0


@contextmanager
def serving(disk: MemoryDisk) -> Iterator[EphemeralBroker]:
    """A broker on a disk in memory that outlives it."""
    broker = EphemeralBroker(settings=_SETTINGS, listeners=("kafka",))
    broker._memory = disk
    with mock.patch.object(ephemeral, "_START_SECONDS_MAX", _START_SECONDS_MAX):
        broker.start()
    try:
        yield broker
    finally:
        if broker._thread is not None:
            broker.kill()


def on_loop(broker: EphemeralBroker, work):
    """Call `work` with the broker within, on its own loop."""
    node = broker._node
    assert node is not None

    async def call():
        found = work(node.broker)
        return await found if asyncio.iscoroutine(found) else found

    return broker._call(call())


def files_of(disk: MemoryDisk, directory: str = "") -> Files:
    found: Files = {}
    for name in disk.names(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            found[path] = read_whole(disk, path)
        except IsADirectoryError:
            found |= files_of(disk, path)
    return found


def disk_of(files: Files) -> MemoryDisk:
    disk = MemoryDisk()
    for path, data in files.items():
        directory = path.rpartition("/")[0]
        if directory:
            disk.make_directory(directory)
        replace_file(disk, path, data)
    return disk


# ---- what is put in


def _create_topics(address: str) -> None:
    topics = [
        NewKafkaTopic(_PLAIN, 2, 1),
        NewKafkaTopic(_COMPACTED, 1, 1, config={"cleanup.policy": "compact"}),
        NewKafkaTopic(_PAID, 1, 1),
    ]
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.create_topics(topics).values():
        done.result(30)


def _produce(address: str, topic: str, partitions: int, numbers: range, keys: int = 0) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "batch.num.messages": 5}
    )
    for number in numbers:
        key = b"%d" % (number % keys) if keys else None
        producer.produce(topic, b"%06d " % number * 30, key, partition=number % partitions)
        if not number % 10:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def _transact(address: str, numbers: range) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": "payments", "linger.ms": 0}
    )
    producer.init_transactions(30)
    for start in range(numbers.start, numbers.stop, 10):
        producer.begin_transaction()
        for number in range(start, start + 10):
            producer.produce(_PAID, b"%06d " % number * 30, b"k", partition=0)
        if start % 30:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def _commit(address: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    wanted = [
        confluent_kafka.TopicPartition(topic, partition, offset)
        for (topic, partition), offset in offsets.items()
    ]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


async def _settle(broker: Broker) -> None:
    """Compact, trim, take a snapshot of the metadata, and have all of it in files."""
    store = broker.store
    assert store.checkpoint_now()
    log = broker.partitions.find(_COMPACTED, 0).log
    for _ in compact(log, CompactionPolicy(), int(time.time() * 1000)):
        await asyncio.sleep(0)
    broker.partitions.find(_PLAIN, 1).delete_below(20)
    broker.quorum.driver._snapshot()
    assert store.checkpoint_now()


# ---- what is found


def read_all(broker: Broker) -> Records:
    """Every record that a reader gets if it continues behind damage."""
    found: Records = {}
    for topic in broker.image.topics.values():
        if topic.is_internal:
            continue
        for partition in topic.partitions:
            log = broker.partitions.replica(partition).log
            found[topic.name, partition.index] = _readable(log)
    return found


def _readable(log: PartitionLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = log.log_start_offset
    while offset < log.high_watermark:
        try:
            for record in log.iterate(offset, log.high_watermark):
                found[record.offset] = (record.key, record.value)
                offset = record.offset + 1
            break
        except CorruptionError:
            ends = [e.next_good for e in lost_ranges(log) if e.first <= offset < e.next_good]
            # Damage that begins behind the records just read.
            ends += [e.next_good for e in lost_ranges(log) if e.first >= offset]
            assert ends, f"{log.describe()}: refused at {offset}, and no range says why"
            offset = max(offset + 1, min(ends))
    return found


def read_commits(broker: Broker) -> Commits:
    groups = broker.coordination.groups.table
    return {
        str(each.group_id): {
            where: committed.offset
            for where, committed in broker.coordination.groups.offsets.all_committed(
                GroupId(each.group_id)
            ).items()
        }
        for each in groups.listings()
    }
