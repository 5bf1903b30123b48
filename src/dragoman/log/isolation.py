"""Which batches of a fetch a reader may see, and the records in them.

Control batches end transactions and are nobody's data. A reader of committed records also leaves
out aborted ones. The broker lists the aborted transactions that touch what it returns, each by its
producer and first offset; such a producer's transactional batches are left out from that offset to
the producer's abort marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TypeAlias

from dragoman.errors import DecodeError
from dragoman.log.batch import BatchHeader, Record, batches, read_marker, records

#: Producer id and first offset of each aborted transaction.
Aborted: TypeAlias = Sequence[tuple[int, int]]


class VisibleBatches:
    """Walks over whole batches. `next_offset` is where the next fetch has to begin."""

    def __init__(self, view: memoryview, aborted: Aborted, offset: int) -> None:
        self._view = view
        self._aborted = aborted
        self.next_offset = offset

    def __iter__(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Batches to be delivered, CRC verified. Raises `DecodeError`."""
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
        # Compaction may have emptied the batch of a marker that nobody needs any more.
        return True
    try:
        return not read_marker(held[0]).is_commit
    except DecodeError:
        # Kafka's own control records, such as those of its quorum, end no transaction.
        return False


def visible_records(view: memoryview, aborted: Aborted, offset: int) -> tuple[list[Record], int]:
    """Decoded records from `offset` on that a reader may see, and where to read on."""
    walk = VisibleBatches(view, aborted, offset)
    found: list[Record] = []
    for header, batch in walk:
        decoded = records(batch, header)
        if header.base_offset < offset:
            decoded = [record for record in decoded if record.offset >= offset]
        found += decoded
    return found, walk.next_offset
