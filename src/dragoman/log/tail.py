"""Recently appended batches in memory, for tail readers and for write-behind.

The node has one bounded ring. Each partition holds its part of it as two parallel lists, searched
by bisection. A chunk is one batch, in the buffer that came from the network, or several small ones
that were committed together and joined (`join_small`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Protocol

from dragoman.limits import TAIL_CHUNK_BYTES_MAX
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK
from dragoman.types import Buffer

#: Memory of a chunk besides its bytes: list slots, a view, an integer.
_CHUNK_OVERHEAD_BYTES = 400
#: Slots freed at the head of a list before it is compacted.
_HEAD_SLACK = 64


def join_small(batches: list[Buffer], size: int) -> list[Buffer]:
    """Join small batches into fewer pieces: copying them costs less than keeping them apart."""
    if size <= TAIL_CHUNK_BYTES_MAX:
        return [b"".join(batches)]
    if size > len(batches) * TAIL_CHUNK_BYTES_MAX // 2:
        return batches
    pieces: list[Buffer] = []
    gathered: list[Buffer] = []
    room = TAIL_CHUNK_BYTES_MAX
    for batch in batches:
        room -= len(batch)
        if room < 0 and gathered:
            pieces.append(b"".join(gathered))
            gathered = []
            room = TAIL_CHUNK_BYTES_MAX - len(batch)
        gathered.append(batch)
    pieces.append(b"".join(gathered))
    return pieces


class TailOwner(Protocol):
    """What the ring needs of a partition."""

    @property
    def tail(self) -> Tail: ...

    def evict_oldest(self) -> bool:
        """Forget the oldest chunk in memory. False when it is nowhere else."""
        ...


class TailRing:
    """The order in which chunks were added over all partitions; evicts the oldest."""

    __slots__ = ("_bytes_max", "_order", "size")

    def __init__(self, bytes_max: int) -> None:
        self._order: deque[tuple[TailOwner, int]] = deque()
        self._bytes_max = bytes_max
        self.size = 0

    def add(self, partition: TailOwner, chunks: list[Buffer], end: int) -> None:
        """Add chunks that follow the partition's last one, up to offset `end`."""
        partition.tail.add(chunks, end)
        for chunk in chunks:
            cost = len(chunk) + _CHUNK_OVERHEAD_BYTES
            self._order.append((partition, cost))
            self.size += cost

    def shrink(self) -> None:
        """Evict until within the bound, or until the oldest chunk is only in memory (a full disk).

        Eviction may flush a partition, so this is not called while one is being changed.
        """
        while self.size > self._bytes_max:
            partition, cost = self._order[0]
            if not partition.evict_oldest():
                return
            del self._order[0]
            self.size -= cost


class Tail:
    """One partition's recent chunks, contiguous up to the stable end, or to the end of the group
    in flight."""

    __slots__ = ("_chunks", "_head", "_offsets", "end")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._chunks: list[Buffer] = []
        self._head = 0
        #: Offset after the last chunk.
        self.end = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._head

    @property
    def first_offset(self) -> int:
        """First offset of the oldest chunk; -1 when empty."""
        return self._offsets[self._head] if self._head < len(self._offsets) else -1

    def add(self, chunks: list[Buffer], end: int) -> None:
        """Add chunks of whole batches that follow the last one, up to offset `end`."""
        for chunk in chunks:
            self._offsets.append(int.from_bytes(chunk[:8], "big"))
        self._chunks += chunks
        self.end = end

    def drop_oldest(self) -> None:
        """Forget the oldest chunk."""
        head = self._head
        self._chunks[head] = b""
        self._head = head = head + 1
        if head > _HEAD_SLACK and head * 2 > len(self._offsets):
            del self._offsets[:head]
            del self._chunks[:head]
            self._head = 0

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
        """Whole batches from the one that holds `offset` up to the limits, and the offset after.

        At least one batch is returned when the first lies below `limit_offset`.
        """
        offsets = self._offsets
        at = bisect_right(offsets, offset, self._head) - 1
        assert at >= self._head, "the caller checks first_offset"
        result: list[Buffer] = []
        room = bytes_max
        next_offset = offset
        for number in range(at, len(offsets)):
            base = offsets[number]
            if base >= limit_offset:
                break
            chunk = self._chunks[number]
            end = offsets[number + 1] if number + 1 < len(offsets) else self.end
            is_whole = True
            if base < offset or end > limit_offset or len(chunk) > room:
                chunk, end, is_whole = _part(
                    chunk, max(base, offset), limit_offset, room, not result
                )
                if not chunk and result:
                    break
                if not chunk:
                    # The chunk ends below `offset`, which lies in a gap, or begins above the limit.
                    continue
            result.append(chunk)
            room -= len(chunk)
            next_offset = end
            if room <= 0 or not is_whole:
                # The next chunk may fit, but the rest of this one comes before it.
                break
        return result, next_offset


def _part(
    chunk: Buffer, offset: int, limit_offset: int, room: int, is_first: bool
) -> tuple[Buffer, int, bool]:
    """The batches of a chunk from the one that holds `offset`, the offset after the last, and
    whether they reach to the chunk's end.

    They end at or below `limit_offset` and fit into `room`, except that the first may be larger.
    """
    start = stop = 0
    next_offset = offset
    while stop < len(chunk):
        base, length, last_delta = WALK.unpack_from(chunk, stop)
        after = stop + length + LENGTH_PREFIX_BYTES
        end = base + last_delta + 1
        if end <= offset:
            start = stop = after
            continue
        is_needed = is_first and stop == start
        if end > limit_offset or (after - start > room and not is_needed):
            break
        stop, next_offset = after, end
    return memoryview(chunk)[start:stop], next_offset, stop == len(chunk)
