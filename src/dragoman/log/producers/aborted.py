"""The aborted transactions of one partition, so that readers of committed records can skip them.

Entries are kept in the order of their markers, which is also the order of `last_offset`. Four plain
integer arrays hold them: 32 bytes an entry, and binary search needs no objects.

`last_stable_offset` is the partition's at the moment the marker was appended. Every transaction
that completes later began at or after it, so a search may stop at the first entry where it reaches
the end of the range asked for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import msgspec


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """One aborted transaction: `first_offset` is its first record, `last_offset` its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids")

    def __init__(self) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(
            AbortedTransaction,
            self._producer_ids,
            self._first_offsets,
            self._last_offsets,
            self._last_stable_offsets,
        )

    def append(self, entry: AbortedTransaction) -> None:
        assert not self._last_offsets or entry.last_offset > self._last_offsets[-1]
        self._producer_ids.append(entry.producer_id)
        self._first_offsets.append(entry.first_offset)
        self._last_offsets.append(entry.last_offset)
        self._last_stable_offsets.append(entry.last_stable_offset)

    def between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with a record or marker in `[start, end)`, ordered by first offset."""
        found = []
        for index in range(bisect_left(self._last_offsets, start), len(self)):
            if self._first_offsets[index] < end:
                found.append(self._entry(index))
            if self._last_stable_offsets[index] >= end:
                break
        found.sort(key=_first_offset)
        return found

    def truncate(self, offset: int) -> None:
        """Forget markers at or above `offset`."""
        self._delete(slice(bisect_left(self._last_offsets, offset), None))

    def drop_below(self, offset: int) -> None:
        """Forget transactions that ended below the log's new start."""
        self._delete(slice(0, bisect_left(self._last_offsets, offset)))

    def _entry(self, index: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[index],
            self._first_offsets[index],
            self._last_offsets[index],
            self._last_stable_offsets[index],
        )

    def _delete(self, part: slice) -> None:
        del self._producer_ids[part]
        del self._first_offsets[part]
        del self._last_offsets[part]
        del self._last_stable_offsets[part]


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset
