"""Selects from fetched bytes the batches to read: checked, committed, in range.

One pass in Python finds the batches and verifies their checksums; this pass dominates for small
batches, which are common. All other work is vectorised over a table of batch headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.checksum import crc32c
from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import (
    CONTROL,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL,
    UNCHECKED_PREFIX_BYTES,
    check_batch,
    read_marker,
    records,
)
from dragoman.spark.batches.layout import Int64s
from dragoman.types import Buffer

#: Length, magic and CRC.
_CHECKED = struct.Struct(">8xi4xbI")
#: `HEADER` of log/batch.py, field by field.
HEADERS = np.dtype(
    [
        *(("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1")),
        *(("crc", ">u4"), ("attributes", ">i2"), ("last_offset_delta", ">i4")),
        *(("base_timestamp", ">i8"), ("max_timestamp", ">i8"), ("producer_id", ">i8")),
        *(("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("record_count", ">i4")),
    ]
)


class _UnsoundBatchError(Exception):
    """The batch at `position` is malformed or damaged; the text is that of `check_batch`."""

    def __init__(self, view: memoryview, position: int) -> None:
        self.position = position
        try:
            check_batch(view, position)
        except DecodeError as error:
            super().__init__(error)


class Stretch(NamedTuple):
    """Adjacent batches of a chunk, with verified checksums and increasing offsets."""

    source: str
    chunk_number: int
    chunk: memoryview
    positions: Int64s
    headers: NDArray[Any]
    last_offsets: Int64s

    def error(self, index: int, reason: object) -> DecodeError:
        return _error(self.source, self.chunk_number, int(self.positions[index]), reason)

    def payload(self, index: int) -> memoryview:
        start = int(self.positions[index])
        size = int(self.headers["length"][index]) + LENGTH_PREFIX_BYTES
        return self.chunk[start + BATCH_HEADER_BYTES : start + size]


def stretches(chunks: Sequence[Buffer], source: str, bytes_min: int) -> Iterator[Stretch]:
    """All batches of the chunks, at least `bytes_min` bytes at once. Raises `DecodeError`."""
    last_offset = -1
    for number, chunk in enumerate(chunks):
        view = memoryview(chunk).cast("B")
        start = 0
        while start < len(view):
            try:
                positions, start = _checked(view, start, start + bytes_min)
            except _UnsoundBatchError as error:
                raise _error(source, number, error.position, error) from None
            stretch = _stretch(source, number, view, positions)
            _require_growth(stretch, last_offset)
            last_offset = int(stretch.last_offsets[-1])
            yield stretch


def _checked(view: memoryview, position: int, enough: int) -> tuple[Int64s, int]:
    """Where batches begin, up to the position `enough`, and where the last one ends."""
    positions = []
    size = len(view)
    while position < size and position < enough:
        end = -1
        if size - position >= BATCH_HEADER_BYTES:
            length, magic, crc = _CHECKED.unpack_from(view, position)
            end = position + LENGTH_PREFIX_BYTES + length
        if (
            not position + BATCH_HEADER_BYTES <= end <= size
            or magic != MAGIC
            or crc32c(view[position + UNCHECKED_PREFIX_BYTES : end]) != crc
        ):
            raise _UnsoundBatchError(view, position)
        positions.append(position)
        position = end
    return np.array(positions, np.int64), position


def _stretch(source: str, number: int, view: memoryview, positions: Int64s) -> Stretch:
    flat = np.frombuffer(view, np.uint8)
    raw = flat.take(positions[:, None] + np.arange(BATCH_HEADER_BYTES))
    headers = raw.view(HEADERS)[:, 0]
    last_offsets = headers["base_offset"] + headers["last_offset_delta"].astype(np.int64)
    return Stretch(source, number, view, positions, headers, last_offsets)


def _require_growth(stretch: Stretch, last_offset: int) -> None:
    """Check that offsets increase, because the checksum does not cover them."""
    headers = stretch.headers
    before = np.concatenate(([last_offset], stretch.last_offsets[:-1]))
    fine = headers["base_offset"] > before
    if not fine.all():
        index = int(np.argmin(fine))
        offset = int(headers["base_offset"][index])
        raise stretch.error(index, f"offset {offset} follows {before[index]}")
    fine = (stretch.last_offsets >= headers["base_offset"]) & (headers["record_count"] >= 0)
    if not fine.all():
        raise stretch.error(int(np.argmin(fine)), "a count is negative")


def _error(source: str, chunk_number: int, position: int, reason: object) -> DecodeError:
    return DecodeError(f"{source}, chunk {chunk_number} at byte {position}: {reason}")


class Selection:
    """Selects batches with data between two offsets that no aborted transaction has written.

    As in Kafka's consumer, a transaction of `aborted` (producer id, first offset) lasts from its
    first offset to its marker, so a producer may have several in the list.
    """

    def __init__(self, start: int, end: int, aborted: Sequence[tuple[int, int]]) -> None:
        self._start = start
        self._end = end
        self._waiting = sorted(aborted, key=lambda transaction: -transaction[1])
        self._aborting: set[int] = set()

    def indexes(self, stretch: Stretch) -> Int64s:
        """The selected batches of a stretch. Must be called for every stretch, in order."""
        headers = stretch.headers
        kept = headers["attributes"] & CONTROL == 0
        kept &= (headers["base_offset"] < self._end) & (stretch.last_offsets >= self._start)
        if self._waiting or self._aborting:
            for index in np.flatnonzero(headers["attributes"] & TRANSACTIONAL).tolist():
                kept[index] &= not self._is_aborted(stretch, index)
        return np.flatnonzero(kept)

    def _is_aborted(self, stretch: Stretch, index: int) -> bool:
        while self._waiting and self._waiting[-1][1] <= stretch.last_offsets[index]:
            self._aborting.add(self._waiting.pop()[0])
        header = stretch.headers[index]
        producer_id = int(header["producer_id"])
        if producer_id not in self._aborting:
            return False
        if header["attributes"] & CONTROL and _is_abort(stretch, index):
            self._aborting.discard(producer_id)
        return True


def _is_abort(stretch: Stretch, index: int) -> bool:
    position = int(stretch.positions[index])
    try:
        header = check_batch(stretch.chunk, position)
        (marker,) = records(stretch.chunk[position : position + header.size], header)
        return not read_marker(marker).is_commit
    except (DecodeError, ValueError) as error:
        raise stretch.error(index, error) from None
