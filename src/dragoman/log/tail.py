"""Recently appended batches in memory, for tail readers and for writing behind.

One bounded ring for the whole node; each partition holds its own part of it as two parallel lists,
searched by bisection. A chunk is the buffer that came from the network: nothing is copied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.log.partition import PartitionLog

#: What a chunk costs besides its bytes: list slots, a view, an integer.
_CHUNK_OVERHEAD_BYTES = 400
#: Slots freed at the head of a list before it is moved together.
_HEAD_SLACK = 64


class TailRing:
    """Knows the order in which chunks were added over all partitions, and evicts the oldest."""

    __slots__ = ("_bytes_max", "_order", "size")

    def __init__(self, bytes_max: int) -> None:
        self._order: deque[tuple[PartitionLog, int]] = deque()
        self._bytes_max = bytes_max
        self.size = 0

    def add(self, partition: PartitionLog, size: int) -> None:
        cost = size + _CHUNK_OVERHEAD_BYTES
        self._order.append((partition, cost))
        self.size += cost

    def shrink(self) -> None:
        """Evict until within the bound, or until only memory has the oldest (on a full disk).

        Not called while a partition is between two states.
        """
        while self.size > self._bytes_max:
            partition, cost = self._order[0]
            if not partition.evict_oldest():
                return
            del self._order[0]
            self.size -= cost


class Tail:
    """One partition's recent chunks: contiguous up to the log end."""

    __slots__ = ("_chunks", "_head", "_offsets")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._chunks: list[Buffer] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._head

    @property
    def first_offset(self) -> int:
        """Of the oldest chunk; -1 when empty."""
        return self._offsets[self._head] if self._head < len(self._offsets) else -1

    def add(self, base_offset: int, chunk: Buffer) -> None:
        self._offsets.append(base_offset)
        self._chunks.append(chunk)

    def drop_oldest(self) -> int:
        """Forget the oldest chunk; returns the offset that followed it, -1 when none did."""
        head = self._head
        self._chunks[head] = b""
        self._head = head = head + 1
        if head > _HEAD_SLACK and head * 2 > len(self._offsets):
            del self._offsets[:head]
            del self._chunks[:head]
            self._head = head = 0
        return self._offsets[head] if head < len(self._offsets) else -1

    def drop_below(self, offset: int) -> int:
        """Forget chunks that begin below `offset`, a chunk border; returns how many."""
        count = bisect_left(self._offsets, offset, self._head) - self._head
        for _ in range(count):
            self.drop_oldest()
        return count

    def clear(self) -> int:
        """Forget everything; returns how many chunks there were."""
        count = len(self)
        self._offsets.clear()
        self._chunks.clear()
        self._head = 0
        return count

    def read(self, offset: int, limit_offset: int, bytes_max: int) -> tuple[list[Buffer], int]:
        """Chunks from the one that holds `offset` up to the limits, and the offset after them.

        At least one chunk is returned when the first lies below `limit_offset`. A chunk is visible
        as a whole: the limit always falls on a chunk border or behind the last one.
        """
        at = bisect_right(self._offsets, offset, self._head) - 1
        assert at >= self._head, "the caller checks first_offset"
        result: list[Buffer] = []
        size = 0
        offsets = self._offsets
        count = len(offsets)
        while at < count and offsets[at] < limit_offset:
            chunk = self._chunks[at]
            size += len(chunk)
            if result and size > bytes_max:
                return result, offsets[at]
            result.append(chunk)
            at += 1
        return result, offsets[at] if at < count else limit_offset
