"""Uncompressed records, collected from batches until there are enough to scan them together.

Stretches of batches become pieces, pieces fill a unit, and a unit is a flat buffer with a table of
its batches. The buffer is reused for the next unit, so that it stays in the processor's cache; a
scan copies the data that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import CODEC_MASK, LENGTH_PREFIX_BYTES, LOG_APPEND_TIME
from dragoman.log.compression import decompress
from dragoman.spark.batches.layout import (
    ARROW_BYTES_MAX,
    BATCH,
    RECORD_BYTES_MIN,
    Bytes,
    Int64s,
)
from dragoman.spark.batches.walk import Stretch
from dragoman.types import Buffer


class Piece(NamedTuple):
    """Some batches of a stretch; `starts` and `sizes` locate their records in `parts`."""

    stretch: Stretch
    indexes: Int64s
    parts: list[Buffer]
    starts: Int64s
    sizes: Int64s

    @property
    def byte_count(self) -> int:
        return sum(map(len, self.parts))

    def table(self, shift: int) -> NDArray[Any]:
        """The rows of `BATCH` for parts that are copied to `shift`."""
        headers = self.stretch.headers[self.indexes]
        counts = headers["record_count"].astype(np.int64)
        too_many = counts * RECORD_BYTES_MIN > self.sizes
        if too_many.any():
            index = int(np.argmax(too_many))
            raise self.error(index, f"{counts[index]} records in {self.sizes[index]} bytes")
        rows = np.empty(len(headers), BATCH)
        rows["start"] = self.starts + shift
        rows["size"] = self.sizes
        rows["count"] = counts
        rows["base_offset"] = headers["base_offset"]
        rows["is_append_time"] = headers["attributes"] & LOG_APPEND_TIME != 0
        rows["time_ms"] = np.where(
            rows["is_append_time"], headers["max_timestamp"], headers["base_timestamp"]
        )
        return rows

    def error(self, index: int, reason: object) -> DecodeError:
        return self.stretch.error(int(self.indexes[index]), reason)


def pieces(stretch: Stretch, indexes: Int64s, bytes_min: int) -> Iterator[Piece]:
    """Uncompressed batches as one piece over the input; others decompressed, some at a time."""
    codecs = stretch.headers["attributes"][indexes] & CODEC_MASK
    if len(indexes) and not codecs.any():
        yield _plain(stretch, indexes)
        return
    parts: list[Buffer] = []
    first = size = 0
    for at, index in enumerate(indexes.tolist()):
        try:
            parts.append(decompress(int(codecs[at]), stretch.payload(index)))
        except DecodeError as error:
            raise stretch.error(index, error) from None
        size += len(parts[-1])
        if size >= bytes_min or at + 1 == len(indexes):
            sizes = np.array([len(part) for part in parts])
            yield Piece(stretch, indexes[first : at + 1], parts, np.cumsum(sizes) - sizes, sizes)
            parts, first, size = [], at + 1, 0


def _plain(stretch: Stretch, indexes: Int64s) -> Piece:
    header_bytes = np.int64(BATCH_HEADER_BYTES - LENGTH_PREFIX_BYTES)
    starts = stretch.positions[indexes] + BATCH_HEADER_BYTES
    sizes = stretch.headers["length"][indexes] - header_bytes
    begin, end = int(starts[0]), int(starts[-1] + sizes[-1])
    return Piece(stretch, indexes, [stretch.chunk[begin:end]], starts - begin, sizes)


class Unit:
    """One flat buffer, which grows for a single larger piece, and the table of its batches."""

    def __init__(self, bytes_max: int) -> None:
        self._room = np.empty(bytes_max, np.uint8)
        self._used = 0
        self._pieces: list[Piece] = []
        self._tables: list[NDArray[Any]] = []

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    @property
    def flat(self) -> Bytes:
        return self._room[: self._used]

    @property
    def table(self) -> NDArray[Any]:
        return np.concatenate(self._tables)

    def clear(self) -> None:
        self._used = 0
        self._pieces.clear()
        self._tables.clear()

    def has_room(self, piece: Piece) -> bool:
        return not self._used or self._used + piece.byte_count <= len(self._room)

    def add(self, piece: Piece) -> None:
        size = self._used + piece.byte_count
        if size > ARROW_BYTES_MAX:
            raise piece.error(0, f"{size} bytes of records are too many: at most {ARROW_BYTES_MAX}")
        if size > len(self._room):
            self._room = np.empty(size, np.uint8)
        self._tables.append(piece.table(self._used))
        self._pieces.append(piece)
        for part in piece.parts:
            self._room.data[self._used : self._used + len(part)] = part
            self._used += len(part)

    def error(self, index: int, reason: object) -> DecodeError:
        """An error about the batch at this index of the table."""
        for piece in self._pieces:
            if index < len(piece.indexes):
                return piece.error(index, reason)
            index -= len(piece.indexes)
        raise IndexError(index)
