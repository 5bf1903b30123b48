"""Which stored records wait for some partitions, a page at a time, in the order of their times.

A node may store a million of them, so a page is found in steps (`work_queue`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from heapq import nsmallest
from typing import Final, NamedTuple

from dragoman.broker.delayed.state import Entry, StoredPartition
from dragoman.broker.work_queue import Steps

#: Records that are looked at in a step, and how many cost an item of the work queue.
_STEP: Final = 1000
_PER_ITEM: Final = 10


class Place(NamedTuple):
    """Where a page ends, and what is in it."""

    #: Milliseconds since 1970.
    when_ms: int
    #: The partition of the internal topic, and the offset there.
    partition: int
    offset: int


#: Before all places.
FIRST: Final = Place(-1, -1, -1)


def places(
    partitions: Iterable[StoredPartition], target_ids: Set[int], after: Place, most: int
) -> Steps[list[Place]]:
    """The first places after one, in order."""
    found: list[Place] = []
    for partition in partitions:
        queues = (partition.queues.get(each) for each in target_ids)
        if not any(queue is not None and queue.count for queue in queues):
            continue
        offsets = list(partition.entries)
        for first in range(0, len(offsets), _STEP):
            some = offsets[first : first + _STEP]
            later = (each for each in _of(partition, some, target_ids) if each > after)
            found = nsmallest(most, (*found, *later))
            yield 1 + len(some) // _PER_ITEM
    return found


def _of(
    partition: StoredPartition, offsets: Iterable[int], target_ids: Set[int]
) -> Iterator[Place]:
    for offset in offsets:
        # A record may have been delivered since the offsets were taken.
        entry: Entry | None = partition.entries.get(offset)
        if entry is not None and entry.queue.target_id in target_ids:
            yield Place(entry.when_ms, partition.index, offset)
