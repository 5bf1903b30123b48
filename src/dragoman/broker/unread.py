"""Batches that a reader has, and the records in them that it has not given yet.

Batches are decoded as they are needed, and large ones a few records at a time: a compressed batch
of a hundred kilobytes may hold half a million records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from dragoman.errors import DecodeError, OversizedBatchError
from dragoman.limits import (
    BATCH_HEADER_BYTES,
    DECODED_AT_ONCE_BYTES_MAX,
    DECODED_AT_ONCE_RECORDS_MAX,
)
from dragoman.log.batch import CODEC_MASK, BatchHeader, Record, records
from dragoman.log.expansion import Expanded, expands_beyond
from dragoman.log.isolation import Aborted, VisibleBatches

#: Gives the records of a batch that is not decoded at once. Raises `DecodeError`.
Expand: TypeAlias = Callable[[BatchHeader, memoryview], Expanded]


class Unread:
    __slots__ = ("_batches", "_error", "_expand", "_left", "_offset", "_source", "_walk")

    def __init__(self, view: memoryview, aborted: Aborted, offset: int, expand: Expand) -> None:
        self._walk = VisibleBatches(view, aborted, offset)
        self._batches = iter(self._walk)
        self._expand = expand
        self._offset = offset
        self._left: deque[Record] = deque()
        #: The rest of a large batch.
        self._source: Iterator[Record] | None = None
        self._error: DecodeError | None = None
        self._pull()

    @property
    def is_over(self) -> bool:
        """Whether all was given; `next_offset` is where to read on then."""
        return not self._left and self._error is None

    @property
    def next_offset(self) -> int:
        return self._walk.next_offset

    @property
    def is_large(self) -> bool:
        """Whether it is worth less memory to read the batch again than to keep it."""
        return self._source is not None

    def take(self, bytes_max: int, count_max: int) -> list[Record]:
        """The next records, at least one if there is one. Raises `DecodeError` where they end."""
        if not self._left and self._error is not None:
            raise self._error
        given: list[Record] = []
        size = 0
        while self._left and len(given) < count_max:
            record = self._left[0]
            size += len(record.key or b"") + len(record.value or b"")
            if given and size > bytes_max:
                break
            given.append(self._left.popleft())
            if not self._left:
                self._pull()
        return given

    def _pull(self) -> None:
        try:
            while not self._left:
                if self._source is not None:
                    self._left.extend(islice(self._source, DECODED_AT_ONCE_RECORDS_MAX))
                    if not self._left:
                        self._source = None
                    continue
                found = next(self._batches, None)
                if found is None:
                    return
                self._open(*found)
        except DecodeError as error:
            self._error = error

    def _open(self, header: BatchHeader, batch: memoryview) -> None:
        codec = header.attributes & CODEC_MASK
        if header.record_count > DECODED_AT_ONCE_RECORDS_MAX or (
            codec and expands_beyond(codec, batch[BATCH_HEADER_BYTES:], DECODED_AT_ONCE_BYTES_MAX)
        ):
            self._source = self._expand(header, batch).records(self._offset)
            return
        try:
            decoded = records(batch, header, DECODED_AT_ONCE_BYTES_MAX)
        except OversizedBatchError:
            # It does not tell the truth about its size.
            self._source = self._expand(header, batch).records(self._offset)
            return
        if header.base_offset < self._offset:
            decoded = [record for record in decoded if record.offset >= self._offset]
        self._left.extend(decoded)
