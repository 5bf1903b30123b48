"""Read isolation: the index of aborted transactions, and which batches of a fetch a reader sees.

Control batches end transactions and hold no user data. A reader of committed records also skips
aborted ones. The broker lists the aborted transactions that touch the batches it returns, each by
its producer and first offset; the reader skips the producer's transactional batches from that
offset to the producer's abort marker.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TypeAlias

import msgspec

from dragoman.errors import DecodeError
from dragoman.log.batch import BatchHeader, Record, batches, read_marker, records

#: Producer id and first offset of each aborted transaction.
Aborted: TypeAlias = Sequence[tuple[int, int]]


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """One aborted transaction: `first_offset` is its first record, `last_offset` its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedIndex:
    """The aborted transactions of one partition.

    Entries are in the order of their markers, which is also the order of `last_offset`. Four plain
    integer arrays hold them: 32 bytes an entry, and binary search needs no objects.

    `last_stable_offset` is the partition's when the marker was appended. Every transaction that
    completes later began at or after it, so a search may stop at the first entry where it reaches
    the end of the requested range.
    """

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
        """Transactions with a record or marker in `[start, end)`, ordered by first offset."""
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


class VisibleBatches:
    """An iterator over whole batches. The next fetch begins at `next_offset`."""

    def __init__(self, view: memoryview, aborted: Aborted, offset: int) -> None:
        self._view = view
        self._aborted = aborted
        self.next_offset = offset

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Batches that the reader may see, CRC verified. Raises `DecodeError`."""
        coming = sorted(self._aborted, key=itemgetter(1), reverse=True)
        aborting: set[int] = set()
        for header, batch in batches(self._view):
            if header.last_offset < self.next_offset:
                continue
            while coming and coming[-1][1] <= header.last_offset:
                aborting.add(coming.pop()[0])
            is_visible = _is_visible(header, batch, aborting)
            if is_visible:
                yield header, batch
            self.next_offset = header.last_offset + 1


def _is_visible(header: BatchHeader, batch: memoryview, aborting: set[int]) -> bool:
    if header.is_control:
        if header.producer_id in aborting and _is_abort(header, batch):
            aborting.discard(header.producer_id)
        return False
    return not (header.is_transactional and header.producer_id in aborting)


def _is_abort(header: BatchHeader, batch: memoryview) -> bool:
    held = records(batch, header)
    if not held:
        # Compaction empties the batch of a marker that no reader needs any more.
        return True
    try:
        return not read_marker(held[0]).is_commit
    except DecodeError:
        # Kafka's own control records, such as those of its quorum, end no transaction.
        return False


def visible_records(view: memoryview, aborted: Aborted, offset: int) -> tuple[list[Record], int]:
    """Decoded records from `offset` on that a reader may see, and the offset of the next fetch."""
    walk = VisibleBatches(view, aborted, offset)
    found: list[Record] = []
    for header, batch in walk:
        decoded = records(batch, header)
        if header.base_offset < offset:
            decoded = [record for record in decoded if record.offset >= offset]
        found += decoded
    return found, walk.next_offset
