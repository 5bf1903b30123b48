"""Converts records of many batches to Arrow columns and back, with numpy and Arrow's kernels.

Scan: the start of a record depends on the length of the record before it. So all batches proceed in
lockstep: step k finds the k-th record of every batch, and the batches share its cost. Once all
records are found, each field takes one pass over the positions at which the previous field ended.

Pack: consecutive varints of a record become one short string, and Arrow joins these with keys and
values by row. The bytes of the joined column are the records.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dragoman.spark.batches.layout import (
    TIME_MS_MAX,
    Bytes,
    Int64s,
    MalformedBatchError,
    Rows,
    Scanned,
    field_sizes,
    fixed_column,
    gather,
    headers_column,
    offsets_of,
)
from dragoman.spark.batches.varints import (
    PAIR_SIZES,
    PAIR_VALUES,
    BadVarintError,
    read_pairs,
    read_varints,
    varint_sizes,
    write_varints,
)

#: Large enough for many batches: a step costs the same for one batch as for a hundred.
UNIT_BYTES = 32 << 20


def scan(
    flat: Bytes, batches: NDArray[Any], start: int, end: int, wanted: frozenset[str]
) -> Scanned:
    """The `Scan` of layout.py."""
    try:
        records = _Records(flat, batches)
    except _MalformedRecordError as error:
        ends = np.cumsum(batches["count"])
        raise MalformedBatchError(int(np.searchsorted(ends, error.row, side="right"))) from None
    kept = (records.offsets >= start) & (records.offsets < end)
    rows = slice(None) if kept.all() else np.flatnonzero(kept)
    columns: dict[str, pa.Array] = {}
    if "key" in wanted:
        columns["key"] = gather(flat, *records.keys.select(rows), pa.binary())
    if "value" in wanted:
        columns["value"] = gather(flat, *records.values.select(rows), pa.binary())
    if "offset" in wanted:
        columns["offset"] = fixed_column("offset", records.offsets[rows])
    if "timestamp" in wanted:
        columns["timestamp"] = fixed_column("timestamp", records.times_ms[rows] * 1000)
    if "timestampType" in wanted:
        kinds = records.of_batch("is_append_time").astype(np.int32)
        columns["timestampType"] = fixed_column("timestampType", kinds[rows])
    if "headers" in wanted:
        columns["headers"] = _headers_column(flat, records.headers, kept)
    return Scanned(int(np.count_nonzero(kept)), columns)


class _MalformedRecordError(Exception):
    """A record is malformed; `row` is its index among the records of all batches."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _Fields(NamedTuple):
    """Keys, values or names: where each begins and its size, negative for null."""

    starts: Int64s
    sizes: Int64s

    def select(self, rows: slice | Int64s | NDArray[np.bool_]) -> _Fields:
        return _Fields(self.starts[rows], self.sizes[rows])


class _Headers(NamedTuple):
    """The headers of all records, in order; `counts` is the number of headers of each record."""

    counts: Int64s
    names: _Fields
    values: _Fields


class _Cursor:
    """A position in each of many records. Every read advances all of them."""

    def __init__(self, flat: Bytes, at: Int64s, ends: Int64s, rows: Int64s | None = None) -> None:
        self._flat = flat
        self.at = at
        self.ends = ends
        self._rows = rows

    def require(self, fine: NDArray[np.bool_]) -> None:
        if not fine.all():
            self._refuse(int(np.argmin(fine)))

    def _refuse(self, index: int) -> None:
        raise _MalformedRecordError(index if self._rows is None else int(self._rows[index]))

    def varints(self) -> Int64s:
        try:
            values, self.at = read_varints(self._flat, self.at)
        except BadVarintError as error:
            self._refuse(error.index)
        return values

    def fields(self) -> _Fields:
        sizes = self.varints()
        starts = self.at
        self.require(sizes <= self.ends - starts)
        self.at = starts + np.maximum(sizes, 0)
        return _Fields(starts, sizes)


class _Records:
    """Every field of every record, by position or value."""

    def __init__(self, flat: Bytes, batches: NDArray[Any]) -> None:
        self._batches = batches
        cursor = _Cursor(flat, *_find_records(flat, batches))
        cursor.varints()  # the length, which is already known
        cursor.at += 1  # attributes, none of which is defined
        time_deltas = cursor.varints()
        offset_deltas = cursor.varints()
        self.keys = cursor.fields()
        self.values = cursor.fields()
        self.headers = _read_headers(flat, cursor)
        cursor.require(cursor.at == cursor.ends)
        self.offsets = self._offsets(cursor, offset_deltas)
        self.times_ms = self._times_ms(cursor, time_deltas)

    def of_batch(self, field: str) -> Int64s:
        """A field of the batch for each of its records."""
        return np.repeat(self._batches[field], self._batches["count"])

    def _offsets(self, cursor: _Cursor, deltas: Int64s) -> Int64s:
        bases = self.of_batch("base_offset")
        offsets = bases + deltas
        cursor.require((deltas == deltas.astype(np.int32)) & ((deltas < 0) | (offsets >= bases)))
        return offsets

    def _times_ms(self, cursor: _Cursor, deltas: Int64s) -> Int64s:
        bases = self.of_batch("time_ms")
        if self._batches["is_append_time"].any():
            deltas = np.where(self.of_batch("is_append_time"), 0, deltas)
        times = bases + deltas
        has_overflowed = ((bases ^ times) & (deltas ^ times)) < 0
        cursor.require((np.abs(times) <= TIME_MS_MAX) & ~has_overflowed & (times >= -TIME_MS_MAX))
        return times


# ---- where records begin


#: By the first two bytes of a record: the distance to the next one; 0 when it takes more bytes.
_JUMPS = np.where((PAIR_SIZES > 0) & (PAIR_VALUES >= 0), PAIR_SIZES + PAIR_VALUES, 0)


def _find_records(flat: Bytes, batches: NDArray[Any]) -> tuple[Int64s, Int64s]:
    """The start of each record, including its length, and its end.

    Batches with the most records come first, so that the batches with a k-th record are a prefix.
    """
    order = np.argsort(-batches["count"], kind="stable")
    counts = batches["count"][order]
    at = batches["start"][order]
    step_count = int(counts[0]) if len(counts) else 0
    widths = np.searchsorted(-counts, -np.arange(step_count), side="left")
    step_starts = np.concatenate(([0], np.cumsum(widths)))
    found = np.empty(step_starts[-1], np.int64)
    ends = np.empty(step_starts[-1], np.int64)
    first_rows = np.cumsum(batches["count"]) - batches["count"]
    for step, (width, begin) in enumerate(zip(widths.tolist(), step_starts.tolist(), strict=False)):
        positions = at[:width]
        found[begin : begin + width] = positions
        jumps = _JUMPS.take(read_pairs(flat, positions))
        if jumps.all():
            positions += jumps
        else:
            rows = first_rows[order[:width]] + step
            positions[:] = _next_records(flat, positions, rows)
        ends[begin : begin + width] = positions
    is_filled = np.empty(len(order), np.bool_)
    is_filled[order] = at == batches["start"][order] + batches["size"][order]
    if not is_filled.all():
        raise MalformedBatchError(int(np.argmin(is_filled)))
    rows = _row_order(order, batches["count"], step_starts)
    return found[rows], ends[rows]


def _next_records(flat: Bytes, positions: Int64s, rows: Int64s) -> Int64s:
    """The positions after records of any length; slower than the table."""
    cursor = _Cursor(flat, positions, positions, rows)
    sizes = cursor.varints()
    # A record that ends past all data is harmless, because the next one ends there, too.
    cursor.require((sizes >= 0) & (sizes <= len(flat)))
    return cursor.at + sizes


def _row_order(order: Int64s, counts: Int64s, step_starts: Int64s) -> Int64s:
    """For each record in log order, its index in the order of the steps."""
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    first_rows = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum())) - np.repeat(first_rows, counts)
    return step_starts[steps] + np.repeat(ranks, counts)


# ---- headers


def _read_headers(flat: Bytes, cursor: _Cursor) -> _Headers:
    """Read headers in lockstep: the first header of all records that have one, then the second."""
    counts = cursor.varints()
    cursor.require((counts >= 0) & (2 * counts <= cursor.ends - cursor.at))
    total = int(counts.sum())
    names = _Fields(np.empty(total, np.int64), np.empty(total, np.int64))
    values = _Fields(np.empty(total, np.int64), np.empty(total, np.int64))
    first_entries = np.cumsum(counts) - counts
    rows = np.flatnonzero(counts)
    step = 0
    while rows.size:
        these = _Cursor(flat, cursor.at[rows], cursor.ends[rows], rows)
        for fields in (names, values):
            fields.starts[first_entries[rows] + step], fields.sizes[first_entries[rows] + step] = (
                these.fields()
            )
        these.require(names.sizes[first_entries[rows] + step] >= 0)
        cursor.at[rows] = these.at
        step += 1
        rows = rows[counts[rows] > step]
    return _Headers(counts, names, values)


def _headers_column(flat: Bytes, headers: _Headers, kept: NDArray[np.bool_]) -> pa.Array:
    entries = np.repeat(kept, headers.counts)
    offsets = np.zeros(np.count_nonzero(kept) + 1, np.int32)
    np.cumsum(headers.counts[kept], out=offsets[1:])
    names = gather(flat, *headers.names.select(entries), pa.string())
    return headers_column(
        offsets, names, gather(flat, *headers.values.select(entries), pa.binary())
    )


# ---- bytes


def pack(rows: Rows, bounds: Int64s) -> list[memoryview]:
    """The `Pack` of layout.py."""
    firsts, counts = bounds[:-1], np.diff(bounds)
    times = rows.times_ms - np.repeat(rows.times_ms[firsts], counts)
    offsets = np.arange(len(times)) - np.repeat(firsts, counts)
    key_sizes = field_sizes(rows.key, len(times))
    sizes = 1 + varint_sizes(times) + varint_sizes(offsets) + content_sizes(rows)
    # The attributes are always 0, which is the same byte as a varint.
    front = write_varints([sizes, np.zeros_like(times), times, offsets, key_sizes])
    middle = write_varints([field_sizes(rows.value, len(times))])
    keys = [] if rows.key is None else [rows.key]
    headers = pa.scalar(b"\0") if rows.headers is None else rows.headers
    records = _join(front, *keys, middle, rows.value, headers)
    body = memoryview(records.buffers()[2])
    ends = offsets_of(records)[bounds].tolist()
    return [body[begin:end] for begin, end in pairwise(ends)]


def content_sizes(rows: Rows) -> Int64s:
    """Bytes of each row's record after the key's length field, which do not depend on its batch."""
    count = len(rows.times_ms)
    total = (
        field_sizes(rows.headers, count) if rows.headers is not None else np.ones(count, np.int64)
    )
    for column in (rows.key, rows.value):
        sizes = field_sizes(column, count)
        total = total + varint_sizes(sizes) + np.maximum(sizes, 0)
    return total


def join_headers(counts: Int64s, names: pa.BinaryArray, values: pa.BinaryArray) -> pa.BinaryArray:
    """Headers in wire format, by row; `counts` is the number of headers of each row."""
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
