"""Decodes record batches to Arrow batches, in exactly the types that Spark expects.

`walk.py` finds the batches. Their uncompressed records are collected until there are enough to scan
them together: stretches of batches become pieces, pieces fill a unit, and a unit is one flat buffer
with a table of its batches. The compiled library or numpy scans it. The buffer is reused for the
next unit, so that it stays in the processor's cache; a scan copies what it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.errors import DecodeError
from dragoman.limits import BATCH_HEADER_BYTES
from dragoman.log.batch import CODEC_MASK, LENGTH_PREFIX_BYTES, LOG_APPEND_TIME
from dragoman.log.compression import decompress
from dragoman.spark.batches import compiled, numpy_records
from dragoman.spark.batches.layout import (
    ARROW_BYTES_MAX,
    BATCH,
    COLUMN_TYPES,
    RECORD_BYTES_MIN,
    Bytes,
    Int64s,
    MalformedBatchError,
    Scan,
    Scanned,
)
from dragoman.spark.batches.walk import Selection, Stretch, stretches
from dragoman.types import Buffer


class BatchDecoder:
    """Decodes to the named columns, in that order; `headers` requires `include_headers`.

    The compiled library is used if available, unless `use_compiled` is False. Raises `ValueError`
    for an unknown column, and if `use_compiled` is True without a library.
    """

    def __init__(
        self, columns: Sequence[str], *, include_headers: bool, use_compiled: bool | None = None
    ) -> None:
        known = [name for name in COLUMN_TYPES if include_headers or name != "headers"]
        unknown = [name for name in columns if name not in known]
        if unknown or not columns:
            raise ValueError(f"no column {', '.join(unknown)}; the columns are {', '.join(known)}")
        self.schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
        self._wanted = frozenset(columns)
        library = compiled.load() if use_compiled is not False else None
        if library is None and use_compiled:
            raise ValueError(f"{compiled.LIBRARY} is missing or was not compiled from this source")
        if library is None:
            self._scan: Scan = numpy_records.scan
            self._unit_bytes = numpy_records.UNIT_BYTES
        else:
            self._scan = compiled.CompiledRecords(library).scan
            self._unit_bytes = compiled.UNIT_BYTES

    def decode(
        self,
        chunks: Sequence[Buffer],
        *,
        topic: str,
        partition: int,
        start: int,
        end: int,
        aborted: Sequence[tuple[int, int]] = (),
        committed_only: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records with start ≤ offset < end from chunks of whole batches, in order.

        `aborted` holds (producer id, first offset) of aborted transactions, as Kafka's brokers
        report them; with `committed_only` their records are left out. Control records always are.
        Raises `DecodeError`, which names the place, for malformed or damaged batches.
        """
        unit = Unit(self._unit_bytes)
        piece_bytes = self._unit_bytes // 4
        selection = Selection(start, end, aborted if committed_only else ())
        for stretch in stretches(chunks, f"{topic}-{partition}", piece_bytes):
            for piece in pieces(stretch, selection.indexes(stretch), piece_bytes):
                if not unit.has_room(piece):
                    yield from self._columns(unit, topic, partition, start, end)
                    unit.clear()
                unit.add(piece)
        yield from self._columns(unit, topic, partition, start, end)

    def _columns(
        self, unit: Unit, topic: str, partition: int, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        if unit.is_empty:
            return
        try:
            rows, columns = self._scanned(unit, start, end)
        except MalformedBatchError as error:
            raise unit.error(error.index, "records are malformed") from None
        if not rows:
            return
        if "topic" in self._wanted:
            columns["topic"] = _repeated(topic.encode(), rows)
        if "partition" in self._wanted:
            columns["partition"] = pa.array(np.full(rows, partition, np.int32))
        yield pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )

    def _scanned(self, unit: Unit, start: int, end: int) -> Scanned:
        table = unit.table
        try:
            return self._scan(unit.flat, table, start, end, self._wanted)
        except pa.ArrowInvalid as error:
            # A header's name is not UTF-8: find its batch.
            for index in range(len(table)):
                try:
                    self._scan(unit.flat, table[index : index + 1], start, end, self._wanted)
                except pa.ArrowInvalid:
                    raise unit.error(index, error) from None
            raise


def _repeated(text: bytes, rows: int) -> pa.Array:
    offsets = np.arange(0, (rows + 1) * len(text), len(text), dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text * rows))


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
