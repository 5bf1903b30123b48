"""The library compiled from `records.c`, if it exists.

It is loaded once per process. `DRAGOMAN_SPARK_RECORDS=numpy` disables it, for comparison.
"""

from __future__ import annotations

import ctypes
import os
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.spark.batches.layout import (
    COLUMN_TYPES,
    Bytes,
    Int64s,
    MalformedBatchError,
    Rows,
    Scanned,
    headers_column,
    offsets_of,
)

_SOURCE = Path(__file__).with_name("records.c")
LIBRARY = Path(__file__).with_name("_records.so")


class _Binary(ctypes.Structure):
    _fields_ = [
        ("offsets", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("nulls", ctypes.c_int64),
    ]


class _Columns(ctypes.Structure):
    _fields_ = [
        ("offsets", ctypes.c_void_p),
        ("timestamps", ctypes.c_void_p),
        ("timestamp_types", ctypes.c_void_p),
        ("header_offsets", ctypes.c_void_p),
        ("key", _Binary),
        ("value", _Binary),
        ("header_name", _Binary),
        ("header_value", _Binary),
    ]


class _Source(ctypes.Structure):
    _fields_ = [
        ("offsets", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("shift", ctypes.c_int64),
    ]


def load(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """Load the library. None if it is missing or was compiled from another version of the
    source.
    """
    return None if os.environ.get("DRAGOMAN_SPARK_RECORDS") == "numpy" else _load(path)


@cache
def _load(path: Path) -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(path))
        if library.dragoman_source_id() != ctypes.c_int(zlib.crc32(_SOURCE.read_bytes())).value:
            return None
    except (OSError, AttributeError):
        return None
    library.dragoman_decode.restype = ctypes.c_int64
    library.dragoman_encode.restype = ctypes.c_int64
    return library


#: Small enough for input and output to stay in the processor's cache.
UNIT_BYTES = 4 << 20


class CompiledRecords:
    """Scan and pack with a library that `load` returned."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._decode = library.dragoman_decode
        self._encode = library.dragoman_encode

    def scan(
        self, flat: Bytes, batches: NDArray[Any], start: int, end: int, wanted: frozenset[str]
    ) -> Scanned:
        """The `Scan` of layout.py."""
        out = _Outputs(int(batches["count"].sum()), len(flat), wanted)
        rows = self._decode(
            ctypes.c_void_p(flat.ctypes.data),
            ctypes.c_void_p(batches.ctypes.data),
            ctypes.c_int64(len(batches)),
            ctypes.c_int64(start),
            ctypes.c_int64(end),
            ctypes.byref(out.columns),
        )
        if rows < 0:
            raise MalformedBatchError(-1 - rows)
        return Scanned(rows, out.arrays(rows))

    def pack(self, rows: Rows, bounds: Int64s) -> Iterator[memoryview]:
        """The `Pack` of layout.py. Each view is overwritten when the next is requested."""
        columns = [_source(rows.key), _source(rows.value), _source(rows.headers)]
        room = np.empty(_bytes_max(rows, bounds), np.uint8)
        for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            size = self._encode(
                *(ctypes.byref(column) for column in columns),
                ctypes.c_void_p(rows.times_ms.ctypes.data),
                ctypes.c_int64(first),
                ctypes.c_int64(end),
                ctypes.c_void_p(room.ctypes.data),
            )
            yield room.data[:size]


def _bytes_max(rows: Rows, bounds: Int64s) -> int:
    """Upper bound of the largest batch: the bytes of fields and the longest varints around them."""
    sizes = np.full(len(rows.times_ms), _VARINTS_BYTES_MAX, np.int64)
    for column in (rows.key, rows.value, rows.headers):
        if column is not None:
            sizes += np.diff(offsets_of(column))
    return int(np.add.reduceat(sizes, bounds[:-1]).max())


def _source(column: pa.BinaryArray | None) -> _Source:
    if column is None:
        return _Source()
    valid, offsets, data = column.buffers()
    return _Source(
        offsets.address + 4 * column.offset,
        data.address if data is not None else None,
        valid.address if valid is not None else None,
        column.offset,
    )


class _Outputs:
    """Memory for the requested columns, each as large as the input allows it to become."""

    def __init__(self, rows_max: int, input_bytes: int, wanted: frozenset[str]) -> None:
        self.columns = _Columns()
        self._wanted = wanted
        #: Buffers by field of the structure, kept alive while the library writes to them.
        self._fixed: dict[str, pa.Buffer] = {}
        self._binary: dict[str, tuple[pa.Buffer, pa.Buffer, pa.Buffer]] = {}
        for column, (field, item_bytes) in _FIXED_FIELDS.items():
            if column in wanted:
                self._add_fixed(field, rows_max * item_bytes)
        for column in ("key", "value"):
            if column in wanted:
                self._add_binary(column, rows_max, input_bytes)
        if "headers" in wanted:
            self._add_fixed("header_offsets", (rows_max + 1) * 4)
            for field in ("header_name", "header_value"):
                self._add_binary(field, input_bytes // _HEADER_BYTES_MIN, input_bytes)

    def _add_fixed(self, field: str, size: int) -> None:
        self._fixed[field] = _room(size)
        setattr(self.columns, field, self._fixed[field].address)

    def _add_binary(self, field: str, count_max: int, bytes_max: int) -> None:
        offsets, data = _room((count_max + 1) * 4), _room(bytes_max)
        valid = pa.py_buffer(bytearray(count_max // 8 + 1))
        self._binary[field] = valid, offsets, data
        setattr(self.columns, field, _Binary(offsets.address, data.address, valid.address))

    def arrays(self, rows: int) -> dict[str, pa.Array]:
        arrays = {
            column: pa.Array.from_buffers(
                COLUMN_TYPES[column], rows, [None, self._fixed[field].slice(0, rows * item_bytes)]
            )
            for column, (field, item_bytes) in _FIXED_FIELDS.items()
            if column in self._wanted
        }
        for column in ("key", "value"):
            if column in self._wanted:
                arrays[column] = self._binary_array(column, pa.binary())
        if "headers" in self._wanted:
            arrays["headers"] = headers_column(
                np.frombuffer(self._fixed["header_offsets"], np.int32)[: rows + 1],
                self._binary_array("header_name", pa.string()),
                self._binary_array("header_value", pa.binary()),
            )
        return arrays

    def _binary_array(self, field: str, kind: pa.DataType) -> pa.Array:
        written = getattr(self.columns, field)
        valid, offsets, data = self._binary[field]
        used = np.frombuffer(offsets, np.int32)[written.count].item()
        return pa.Array.from_buffers(
            kind,
            written.count,
            [
                valid.slice(0, (written.count + 7) // 8) if written.nulls else None,
                offsets.slice(0, (written.count + 1) * 4),
                data.slice(0, used),
            ],
            written.nulls,
        )


def _room(size: int) -> pa.Buffer:
    """A buffer whose first item is zero: the first offset of a column of variable length."""
    room = pa.allocate_buffer(max(size, 8))
    ctypes.memset(room.address, 0, 8)
    return room


#: A column of numbers, its field of `_Columns`, and bytes per row.
_FIXED_FIELDS = {
    "offset": ("offsets", 8),
    "timestamp": ("timestamps", 8),
    "timestampType": ("timestamp_types", 4),
}
#: Bytes of a record around its fields: length, attributes, two deltas, two lengths, header count.
_VARINTS_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 1
#: The smallest header: two lengths.
_HEADER_BYTES_MIN = 2
