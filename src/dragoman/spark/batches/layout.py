"""Shared by the compiled and the numpy scan: the table of batches, Arrow types, and the error
class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.types import Buffer

Int64s: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

#: The input of a scan for each batch. `batch_t` of records.c has the same layout.
BATCH = np.dtype(
    [
        (name, np.int64)
        for name in ("start", "size", "count", "base_offset", "time_ms", "is_append_time")
    ]
)
#: The smallest record: length, attributes, two deltas, two lengths and a count of one byte each.
RECORD_BYTES_MIN = 7

#: Times are milliseconds in batches and microseconds in Arrow; larger ones overflow.
TIME_MS_MAX = (2**63 - 1) // 1000

#: Arrow counts the bytes of a column in 32 bits.
ARROW_BYTES_MAX = 2**31 - 1

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
#: Spark's own conversion of the columns of its Kafka source, with which Spark compares each batch.
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}


class Scanned(NamedTuple):
    """The requested columns of `row_count` records."""

    row_count: int
    columns: dict[str, pa.Array]


#: (payloads, table of batches, first offset, end offset, columns) → records in that range.
Scan: TypeAlias = Callable[[Bytes, NDArray[Any], int, int, frozenset[str]], Scanned]


class Rows(NamedTuple):
    """The content of records; `headers` are in wire format, preceded by their count."""

    key: pa.BinaryArray | None
    value: pa.BinaryArray
    headers: pa.BinaryArray | None
    times_ms: Int64s


#: (rows, first rows of batches and the number of rows) → the records of each batch in wire format.
Pack: TypeAlias = Callable[[Rows, Int64s], Iterable[Buffer]]


class MalformedBatchError(Exception):
    """The records of the batch at `index` of a table do not match its header.

    `BatchDecoder` converts it to a `DecodeError`.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def headers_column(offsets: NDArray[np.int32], names: pa.Array, values: pa.Array) -> pa.Array:
    """The column of headers, null for records without any.

    Raises `pyarrow.ArrowInvalid` when a name is not UTF-8.
    """
    names.validate(full=True)
    entries = pa.StructArray.from_buffers(HEADER, len(names), [None], children=[names, values])
    has_headers = np.packbits(offsets[1:] > offsets[:-1], bitorder="little")
    return pa.ListArray.from_buffers(
        COLUMN_TYPES["headers"],
        len(offsets) - 1,
        [pa.py_buffer(has_headers), pa.py_buffer(offsets)],
        children=[entries],
    )


def fixed_column(name: str, numbers: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(COLUMN_TYPES[name], len(numbers), [None, pa.py_buffer(numbers)])


# ---- columns of variable length


def offsets_of(column: pa.Array) -> NDArray[np.int32]:
    """The offsets of a column of variable length; of a slice, those of its rows."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1]


def field_sizes(column: pa.Array | None, count: int) -> Int64s:
    """Bytes of each field; -1 for null, and for a column that is None."""
    if column is None:
        return np.full(count, -1, np.int64)
    sizes = np.diff(offsets_of(column)).astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def gather(flat: Bytes, starts: Int64s, sizes: Int64s, kind: pa.DataType) -> pa.Array:
    """The column of the fields at these positions; null where the size is negative.

    Positions increase, so fields and the gaps between them form one array over the input, of which
    every second entry is taken.
    """
    count = len(starts)
    if not count:
        return pa.array([], kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(sizes, 0)
    everything = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(flat)]
    )
    is_null = sizes < 0
    chosen = pa.array(
        np.arange(0, 2 * count, 2, dtype=np.int32), mask=is_null if is_null.any() else None
    )
    return everything.take(chosen)
