"""What a replay sends, cut into batches that are the same whenever they are looked up."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class TopicBatches(msgspec.Struct, frozen=True, kw_only=True, tag="topic"):
    """Ranges of a topic: batch n has the n-th piece of each partition."""

    topic_id: str
    #: Partition → (first offset, end).
    ranges: dict[int, tuple[int, int]]
    records: int
    #: Partition → up to where its Parquet twin is read.
    tiered: dict[int, int] = {}

    @property
    def count(self) -> int:
        longest = max((end - start for start, end in self.ranges.values()), default=0)
        return -(-longest // self.records)

    @property
    def partition_count(self) -> int:
        return max(self.ranges) + 1

    def pieces(self, number: int) -> dict[int, tuple[int, int]]:
        first = number * self.records
        cut = {
            partition: (min(start + first, end), min(start + first + self.records, end))
            for partition, (start, end) in self.ranges.items()
        }
        return {partition: each for partition, each in cut.items() if each[0] < each[1]}

    def left_after(self, done: int) -> int:
        sent = done * self.records
        return sum(max(end - start - sent, 0) for start, end in self.ranges.values())


class TableBatches(msgspec.Struct, frozen=True, kw_only=True, tag="table"):
    """Files of a table, in this order: batch n is so many groups of rows of one."""

    #: (path, group of rows, rows)
    groups: list[tuple[str, int, int]]
    key: str

    @property
    def count(self) -> int:
        return len(self.groups)

    @property
    def partition_count(self) -> int:
        return 1

    def left_after(self, done: int) -> int:
        return sum(rows for _, _, rows in self.groups[done:])


Batches: TypeAlias = TopicBatches | TableBatches
