"""The reader against brokers with real batches: order, ends, gaps, fairness, damage."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.client.kafka import Codec, KafkaClient, OffsetRangeError, TopicPartition
from dragoman.errors import DecodeError
from dragoman.log.batch import Record, build_batch, read_header
from dragoman.protocols.kafka.messages import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocols.scripted_kafka import ScriptedCluster


class Shelf:
    """Batches per partition. A fetch gets one batch of each; an empty one is never answered."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.batches: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.asked: list[list[int]] = []
        cluster.answers[FetchRequest] = self._fetch

    def put(self, partition: int, offset: int, count: int = 1, codec: Codec = Codec.NONE) -> None:
        records = [
            Record(value=b"%d:%d" % (partition, offset + index), timestamp=offset + index)
            for index in range(count)
        ]
        batch = build_batch(records, base_offset=offset, codec=codec)
        self.batches[partition].append(bytes(batch))

    def _fetch(self, request: FetchRequest, _version: int) -> FetchResponse | None:
        (topic,) = request.topics
        self.asked.append([each.partition for each in topic.partitions])
        parts = [
            FetchResponsePartition(
                partition_index=each.partition,
                records=self._next(each.partition, each.fetch_offset),
            )
            for each in topic.partitions
        ]
        if not any(each.records for each in parts):
            return None
        answer = FetchResponseTopic(topic="t", topic_id=topic.topic_id, partitions=parts)
        return FetchResponse(responses=[answer])

    def _next(self, partition: int, offset: int) -> bytes:
        for batch in self.batches[partition]:
            if read_header(batch).last_offset >= offset:
                return batch
        return b""


@pytest.fixture
def shelf(cluster: ScriptedCluster) -> Shelf:
    return Shelf(cluster)


def partition(index: int) -> TopicPartition:
    return TopicPartition("t", index)


async def test_records_come_in_order_up_to_the_end(client: KafkaClient, shelf: Shelf) -> None:
    for index in (0, 1):
        for offset in range(0, 20, 4):
            shelf.put(index, offset, 4, Codec(offset // 4))
    until = {partition(0): 18, partition(1): 7}
    starts = {partition(0): 3, partition(1): 0}
    async with client.reader(starts, until=until) as reader:
        seen: dict[int, list[int]] = {0: [], 1: []}
        async for record in reader:
            assert record.value == b"%d:%d" % (record.partition, record.offset)
            assert (record.topic, record.timestamp) == ("t", record.offset)
            seen[record.partition].append(record.offset)
    assert seen == {0: list(range(3, 18)), 1: list(range(7))}
    assert reader.positions == {partition(0): 20, partition(1): 8}


async def test_nothing_to_read_is_an_end_at_once(client: KafkaClient, shelf: Shelf) -> None:
    async with client.reader({partition(0): 5}, until={partition(0): 5}) as reader:
        assert await reader.next_records() == []
    assert shelf.asked == []


async def test_gap_before_the_end_is_stepped_over(client: KafkaClient, shelf: Shelf) -> None:
    shelf.put(0, 0)
    shelf.put(0, 10)
    async with client.reader({partition(0): 0}, until={partition(0): 7}) as reader:
        offsets = [record.offset async for record in reader]
    assert offsets == [0]


async def test_new_records_are_followed(client: KafkaClient, shelf: Shelf) -> None:
    shelf.put(0, 0)
    async with client.reader({partition(0): 0}) as reader:
        assert [record.offset for record in await reader.next_records()] == [0]
        shelf.put(0, 1, 2)
        assert [record.offset for record in await reader.next_records()] == [1, 2]


async def test_quiet_leader_does_not_delay_a_busy_one(client: KafkaClient, shelf: Shelf) -> None:
    """Partition 1 has a leader of its own that never answers."""
    for offset in range(3):
        shelf.put(0, offset)
    starts = {partition(0): 0, partition(1): 0}
    async with client.reader(starts) as reader:
        for offset in range(3):
            assert [record.offset for record in await reader.next_records()] == [offset]


async def test_partition_that_had_data_goes_to_the_end_of_the_line(
    client: KafkaClient, shelf: Shelf
) -> None:
    for offset in range(3):
        shelf.put(0, offset)
    async with client.reader({partition(0): 0, partition(2): 0}) as reader:
        await reader.next_records()
        await reader.next_records()
    assert shelf.asked[0] == [0, 2]
    assert shelf.asked[1] == [2, 0]


async def test_offset_outside_the_log_is_raised(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    part = FetchResponsePartition(partition_index=0, error_code=1)
    answer = FetchResponseTopic(topic="t", topic_id=b"t".ljust(16, b"\1"), partitions=[part])
    cluster.answer(FetchRequest, FetchResponse(responses=[answer]))
    async with client.reader({partition(0): 99}) as reader:
        with pytest.raises(OffsetRangeError):
            await reader.next_records()


async def test_damaged_batch_is_named(client: KafkaClient, shelf: Shelf) -> None:
    shelf.put(0, 4)
    shelf.batches[0][0] = shelf.batches[0][0][:-1] + b"\xff"
    async with client.reader({partition(0): 4}) as reader:
        with pytest.raises(DecodeError, match=r"t-0 from offset 4: .*CRC"):
            await reader.next_records()
        assert reader.positions == {partition(0): 4}


async def test_closing_ends_what_is_on_its_way(client: KafkaClient, shelf: Shelf) -> None:
    reader = client.reader({partition(0): 0})
    waiting = asyncio.create_task(reader.next_records())
    while not shelf.asked:
        await asyncio.sleep(0)
    waiting.cancel()
    await reader.close()
    assert not [task for task in asyncio.all_tasks() if "fetch" in repr(task.get_coro())]
