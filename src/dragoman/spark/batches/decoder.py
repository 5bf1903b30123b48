"""Decodes record batches to Arrow batches, in exactly the types that Spark expects.

`walk.py` finds the batches, `units.py` collects their uncompressed records until there are enough
to scan them together, and the compiled library or numpy scans them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dragoman.spark.batches import compiled, numpy_records
from dragoman.spark.batches.layout import COLUMN_TYPES, MalformedBatchError, Scan, Scanned
from dragoman.spark.batches.units import Unit, pieces
from dragoman.spark.batches.walk import Selection, stretches
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
