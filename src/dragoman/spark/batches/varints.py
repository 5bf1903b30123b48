"""Reading and writing many zigzag varints at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.spark.batches.layout import Bytes, Int64s

_VARINT_BYTES_MAX = 10


class BadVarintError(Exception):
    """The varint at `index` of those read does not fit in 64 bits."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class ReadVarints(NamedTuple):
    values: Int64s
    #: Where each ends; past the input when it is cut off, which callers must check.
    ends: Int64s


def read_varints(flat: Bytes, positions: Int64s) -> ReadVarints:
    """Raises `BadVarintError` for the first that does not fit in 64 bits."""
    found = scan_varints(flat, positions)
    if len(positions) and found.ends.min() < 0:
        raise BadVarintError(int(np.argmin(found.ends)))
    return found


def scan_varints(flat: Bytes, positions: Int64s) -> ReadVarints:
    """Varints of one or two bytes, the usual ones, by table; longer ones byte by byte.

    A position outside of `flat` reads its last byte, never foreign memory. A varint that does not
    fit in 64 bits ends at -1.
    """
    first = flat.take(positions, mode="clip")
    if not (first >= 0x80).any():
        return ReadVarints(PAIR_VALUES.take(first).astype(np.int64), positions + 1)
    pairs = read_pairs(flat, positions)
    values = PAIR_VALUES.take(pairs).astype(np.int64)
    sizes = PAIR_SIZES.take(pairs)
    ends = positions + sizes
    longer = np.flatnonzero(sizes == 0)
    if longer.size:
        values[longer], ends[longer] = _scan_longer(flat, positions[longer])
    return ReadVarints(values, ends)


def read_pairs(flat: Bytes, positions: Int64s) -> NDArray[np.uint16]:
    """The byte at each position and the one after it: indexes of the two tables."""
    pairs = flat.take(positions + 1, mode="clip").astype(np.uint16)
    pairs <<= 8
    pairs |= flat.take(positions, mode="clip")
    return pairs


def _scan_longer(flat: Bytes, positions: Int64s) -> ReadVarints:
    bits = np.zeros(len(positions), np.uint64)
    ends = positions.copy()
    rows: slice | Int64s = slice(None)
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = flat.take(ends[rows], mode="clip")
        bits[rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        ends[rows] += 1
        # The tenth byte has room for one bit.
        continues = byte > (1 if shift == 63 else 0x7F)
        if not continues.any():
            return ReadVarints(_unzigzag(bits), ends)
        if not continues.all():
            rows = np.arange(len(positions))[rows][continues]
    ends[rows] = -1
    return ReadVarints(_unzigzag(bits), ends)


def _unzigzag(values: NDArray[np.uint64]) -> Int64s:
    signs = (values & np.uint64(1)).view(np.int64)
    return (values >> np.uint64(1)).view(np.int64) ^ -signs


def _pair_tables() -> tuple[NDArray[np.int16], NDArray[np.int8]]:
    pairs = np.arange(1 << 16, dtype=np.uint64)
    first, second = pairs & 0xFF, pairs >> 8
    is_one_byte = first < 0x80
    values = _unzigzag(np.where(is_one_byte, first, first & 0x7F | second << 7))
    sizes = np.select([is_one_byte, second < 0x80], [1, 2], 0)
    return values.astype(np.int16), sizes.astype(np.int8)


#: By pair of bytes: the varint at its beginning, and its size; 0 when it is longer than the pair.
PAIR_VALUES, PAIR_SIZES = _pair_tables()


# ---- writing


def varint_sizes(values: Int64s) -> Int64s:
    return _sizes(_zigzag(values))


def write_varints(columns: Sequence[Int64s]) -> pa.BinaryArray:
    """For each row, the varints of all columns, one after the other."""
    bits = [_zigzag(column) for column in columns]
    sizes = [_sizes(column) for column in bits]
    offsets = np.zeros(len(bits[0]) + 1, np.int32)
    np.cumsum(sum(sizes), out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    positions = offsets[:-1].astype(np.int64)
    for column, column_sizes in zip(bits, sizes, strict=True):
        _write(out, positions, column, column_sizes)
        positions += column_sizes
    return pa.Array.from_buffers(
        pa.binary(), len(bits[0]), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )


def _write(out: Bytes, positions: Int64s, bits: NDArray[np.uint64], sizes: Int64s) -> None:
    rows: slice | Int64s = slice(None)
    for index in range(int(sizes.max(initial=0))):
        byte = (bits[rows] >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        continues = sizes[rows] > index + 1
        byte[continues] |= 0x80
        out[positions[rows] + index] = byte
        rows = np.flatnonzero(sizes > index + 1)


def _zigzag(values: Int64s) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _sizes(bits: NDArray[np.uint64]) -> Int64s:
    sizes = np.ones(len(bits), np.int64)
    limit = 7
    while limit < 64 and (more := bits >= np.uint64(1 << limit)).any():
        sizes += more
        limit += 7
    return sizes
