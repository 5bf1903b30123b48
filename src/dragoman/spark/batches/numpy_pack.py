"""Rows to the records of batches with numpy and Arrow's own kernels.

All varints of a record that follow each other become one short string, and Arrow joins those with
keys and values, row by row: the bytes of the joined column are the records.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dragoman.spark.batches.layout import Int64s, Rows, field_sizes, offsets_of
from dragoman.spark.batches.varints import varint_sizes, write_varints


def pack(rows: Rows, bounds: Int64s) -> list[memoryview]:
    """The `Pack` of layout.py."""
    firsts, counts = bounds[:-1], np.diff(bounds)
    times = rows.times_ms - np.repeat(rows.times_ms[firsts], counts)
    offsets = np.arange(len(times)) - np.repeat(firsts, counts)
    key_sizes = field_sizes(rows.key, len(times))
    sizes = 1 + varint_sizes(times) + varint_sizes(offsets) + content_sizes(rows)
    # The attributes, always 0, are the same byte as a varint.
    front = write_varints([sizes, np.zeros_like(times), times, offsets, key_sizes])
    middle = write_varints([field_sizes(rows.value, len(times))])
    keys = [] if rows.key is None else [rows.key]
    headers = pa.scalar(b"\0") if rows.headers is None else rows.headers
    records = _join(front, *keys, middle, rows.value, headers)
    body = memoryview(records.buffers()[2])
    ends = offsets_of(records)[bounds].tolist()
    return [body[begin:end] for begin, end in pairwise(ends)]


def content_sizes(rows: Rows) -> Int64s:
    """Bytes of each row's record from its key on: what does not depend on its batch."""
    count = len(rows.times_ms)
    total = (
        field_sizes(rows.headers, count) if rows.headers is not None else np.ones(count, np.int64)
    )
    for column in (rows.key, rows.value):
        sizes = field_sizes(column, count)
        total = total + varint_sizes(sizes) + np.maximum(sizes, 0)
    return total


def join_headers(counts: Int64s, names: pa.BinaryArray, values: pa.BinaryArray) -> pa.BinaryArray:
    """Headers in wire form, by row; `counts` says how many of the names each row has."""
    entries = _join(
        *(write_varints([field_sizes(names, len(names))]), names),
        *(write_varints([field_sizes(values, len(names))]), values),
    )
    ends = np.concatenate(([0], np.cumsum(counts)))
    by_row = pa.Array.from_buffers(
        pa.binary(),
        len(counts),
        [None, pa.py_buffer(offsets_of(entries)[ends]), entries.buffers()[2]],
    )
    return _join(write_varints([counts]), by_row)


def _join(*parts: pa.Array | pa.Scalar) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
