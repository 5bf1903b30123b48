"""Positions in many Avro values, and readers for the parts of values at these positions.

All values are in one array of bytes. Row numbers increase, and so do their positions. A malformed
value is marked with the reason and its position moves to its end; later reads of it return
meaningless data, but no read leaves the array.

If few values have many items, the ends of items are found one by one (`item_ends`), because a
lockstep step costs the same for one value as for many, about as much as walking over fifty items.
Only the ends are found that way; the items are then read like all others, which detects an item
whose end was wrong.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.spark.batches.layout import Bytes, Int64s, gather, offsets_of
from dragoman.spark.batches.varints import scan_varints
from dragoman.spark.values.avro_schema import AvroType

#: Twice the size of a decimal, because further bytes could only repeat its sign.
_DECIMAL_BYTES_MAX = 32
_CUT_OFF = "it is cut off"


class Cursor:
    def __init__(self, flat: Bytes, at: Int64s, ends: Int64s) -> None:
        self._flat = flat
        self._at = at
        self._ends = ends
        self.is_bad = np.zeros(len(at), np.bool_)
        #: Row → why its value is malformed.
        self.problems: dict[int, str] = {}

    @staticmethod
    def over(values: pa.BinaryArray) -> Cursor:
        data = values.buffers()[2] if len(values) else None
        # At least one byte, so that every read has a byte to return.
        flat = np.frombuffer(data, np.uint8) if data else np.zeros(1, np.uint8)
        offsets = offsets_of(values).astype(np.int64) if len(values) else np.zeros(1, np.int64)
        return Cursor(flat, offsets[:-1].copy(), offsets[1:])

    def refuse(self, rows: Int64s, is_wrong: NDArray[np.bool_], problem: str) -> None:
        if is_wrong.any():
            wrong = rows[is_wrong]
            for row in wrong[~self.is_bad[wrong]].tolist():
                self.problems[row] = problem
            self.is_bad[wrong] = True
            self._at[wrong] = self._ends[wrong]

    def left(self, rows: Int64s) -> Int64s:
        """Bytes up to the end of each value."""
        return self._of(self._ends, rows) - self._of(self._at, rows)

    def _of(self, numbers: Int64s, rows: Int64s) -> Int64s:
        # If there are as many rows as positions, these are all rows.
        return numbers if len(rows) == len(numbers) else numbers[rows]

    def _move(self, rows: Int64s, to: Int64s) -> None:
        if len(rows) == len(self._at):
            self._at = to
        else:
            self._at[rows] = to

    # ---- parts of values

    def skip(self, rows: Int64s, start: bytes, size: int) -> NDArray[np.bool_]:
        """Skip `size` bytes of the values that begin with `start`. Returns a mask of these
        values.
        """
        is_so: NDArray[np.bool_] = self.left(rows) >= size
        for index, byte in enumerate(start):
            if not is_so.any():
                break
            is_so &= self._flat.take(self._at[rows] + index, mode="clip") == byte
        self._at[rows[is_so]] += size
        return is_so

    def numbers(self, rows: Int64s) -> Int64s:
        values, ends = scan_varints(self._flat, self._of(self._at, rows))
        is_cut_off, is_too_long = ends > self._of(self._ends, rows), ends < 0
        self._move(rows, ends)
        self.refuse(rows, is_cut_off, _CUT_OFF)
        self.refuse(rows, is_too_long, "a number has more than 64 bits")
        return values

    def indexes(self, rows: Int64s, count: int, what: str) -> Int64s:
        """Numbers below `count`; 0 where a number is out of range."""
        found = self.numbers(rows)
        is_wrong = (found < 0) | (found >= count)
        self.refuse(rows, is_wrong, f"a {what} is out of range")
        found[is_wrong] = 0
        return found

    def counts(self, rows: Int64s) -> Int64s:
        """Items in the next block of an array or map; 0 when there are no more."""
        counts = self.numbers(rows)
        sized = rows[counts < 0]
        if sized.size:
            self.numbers(sized)  # bytes of the block, for readers that skip it
            counts = np.abs(counts)
        # Every item takes at least one byte, and the smallest integer has no positive counterpart.
        is_wrong = (counts < 0) | (counts > self.left(rows))
        self.refuse(rows, is_wrong, "an array or map has more items than bytes")
        return np.where(self.is_bad[rows], 0, counts)

    def spans(self, rows: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s]:
        """Advance by `sizes` bytes. Returns their starts and sizes, with size 0 where they do not
        fit.
        """
        is_wrong = (sizes < 0) | (sizes > self.left(rows))
        self.refuse(rows, is_wrong, "a length goes past the end")
        sizes = np.where(is_wrong, 0, sizes)
        starts = self._of(self._at, rows)
        self._move(rows, starts + sizes)
        return starts, sizes

    def lines(self, rows: Int64s, width: int) -> Bytes:
        """The next `width` bytes of each row, one line per row."""
        starts = self._of(self._at, rows)
        is_cut_off = self.left(rows) < width
        self._move(rows, starts + width)
        self.refuse(rows, is_cut_off, _CUT_OFF)
        return self._flat.take(starts[:, None] + np.arange(width), mode="clip")

    # ---- the content of spans

    def gathered(self, rows: Int64s, starts: Int64s, sizes: Int64s, kind: pa.DataType) -> pa.Array:
        found = gather(self._flat, starts, sizes, pa.binary())
        if not pa.types.is_string(kind):
            return found
        try:
            return found.cast(kind)
        except pa.ArrowInvalid:
            is_wrong = np.array([not _is_text(each) for each in found.to_pylist()], np.bool_)
            self.refuse(rows, is_wrong, "a string is not UTF-8")
            # Empty and not null, since keys of a map cannot be null.
            return gather(self._flat, starts, np.where(is_wrong, 0, sizes), kind)

    def decimals(
        self, rows: Int64s, starts: Int64s, sizes: Int64s, precision: int
    ) -> NDArray[np.uint8]:
        """Two's complement, big-endian, to 16 bytes in little-endian order."""
        self.refuse(
            rows, (sizes < 1) | (sizes > _DECIMAL_BYTES_MAX), "a decimal has an impossible size"
        )
        is_negative = (self._flat.take(starts, mode="clip") >= 0x80) & (sizes > 0)
        filler = np.where(is_negative, 0xFF, 0).astype(np.uint8)
        out = np.repeat(filler[:, None], 16, axis=1)
        is_wrong = np.zeros(len(rows), np.bool_)
        for index in range(min(int(sizes.max(initial=0)), _DECIMAL_BYTES_MAX)):
            byte = self._flat.take(starts + sizes - 1 - index, mode="clip")
            byte = np.where(sizes > index, byte, filler)
            if index < 16:
                out[:, index] = byte
            else:
                is_wrong |= byte != filler
        low, high = out.view(np.uint64)[:, 0], out.view(np.int64)[:, 1]
        least, most = (_halves(number) for number in (1 - 10**precision, 10**precision - 1))
        is_wrong |= (high > most[0]) | ((high == most[0]) & (low > most[1]))
        is_wrong |= (high < least[0]) | ((high == least[0]) & (low < least[1]))
        # A longer number may have lost its sign.
        is_wrong |= (high < 0) != is_negative
        self.refuse(rows, is_wrong, f"a decimal has more than {precision} digits")
        return out

    # ---- items whose ends are known

    @cached_property
    def _last_bytes(self) -> Int64s:
        """The positions at which numbers of variable length may end."""
        return np.flatnonzero(self._flat < 0x80)

    def numbers_within(self, rows: Int64s, counts: Int64s, width: int) -> tuple[Cursor, Int64s]:
        """A cursor over `counts` numbers of each row, and the row that owns each number.

        Numbers have `width` bytes; with 0 they are varints, which end with a byte below 0x80.
        """
        at, left = self._at[rows], self.left(rows)
        if width:
            is_wrong = counts * width > left
        else:
            first = np.searchsorted(self._last_bytes, at)
            last = first + counts - 1
            ends = self._last_bytes.take(last, mode="clip") + 1
            is_wrong = (last >= len(self._last_bytes)) | (ends - at > left)
        self.refuse(rows, is_wrong, _CUT_OFF)
        counts = np.where(is_wrong, 0, counts)
        owners = np.repeat(np.arange(len(rows)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        if width:
            ends = at[owners] + (within + 1) * width
        else:
            ends = self._last_bytes[first[owners] + within] + 1
        return self._within(rows, owners, ends), owners

    def items_within(self, rows: Int64s, counts: Int64s, item: AvroType) -> tuple[Cursor, Int64s]:
        """A cursor over `counts` items of any type of each row, and the row that owns each item."""
        data = self._flat.data
        owners: list[Int64s] = []
        ends: list[int] = []
        for index, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            try:
                found = item_ends(item, data, int(self._at[row]), int(self._ends[row]), count)
            except (ValueError, IndexError) as error:
                problem = str(error) if isinstance(error, ValueError) else _CUT_OFF
                self.refuse(rows, rows == row, problem)
                continue
            ends += found
            owners.append(np.full(len(found), index))
        every = np.concatenate(owners) if owners else np.zeros(0, np.int64)
        return self._within(rows, every, np.array(ends, np.int64)), every

    def _within(self, rows: Int64s, owners: Int64s, ends: Int64s) -> Cursor:
        """A cursor over adjacent items; their rows advance to the end of their last item."""
        starts = np.roll(ends, 1)
        is_first = np.diff(owners, prepend=-1) > 0
        starts[is_first] = self._at[rows[owners[is_first]]]
        is_last = np.diff(owners, append=len(rows)) > 0
        self._at[rows[owners[is_last]]] = ends[is_last]
        return Cursor(self._flat, starts, ends)

    def adopt(self, inner: Cursor, rows: Int64s, owners: Int64s) -> None:
        """Mark the rows of malformed items as malformed."""
        every = np.arange(len(owners))
        inner.refuse(every, inner.left(every) > 0, "an item is longer than its content")
        for index, problem in inner.problems.items():
            row = rows[owners[index : index + 1]]
            self.refuse(row, ~self.is_bad[row], problem)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _halves(number: int) -> tuple[int, int]:
    return number >> 64, number & (2**64 - 1)


_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBER_BITS_MAX = 70


def item_ends(item: AvroType, data: memoryview, at: int, end: int, count: int) -> list[int]:
    """Raises `ValueError` or `IndexError` when `count` items do not fit before `end`."""
    ends = []
    for _ in range(count):
        at = _end(item, data, at, end)
        if at > end:
            raise ValueError("it is cut off")
        ends.append(at)
    return ends


def _end(schema: AvroType, data: memoryview, at: int, end: int) -> int:
    kind = schema.kind
    if kind in ("string", "bytes"):
        size, at = _number(data, at)
        if not 0 <= size <= end - at:
            raise ValueError("a length goes past the end")
        return at + size
    if kind in ("int", "long", "enum"):
        return _number(data, at)[1]
    if kind in _WIDTHS:
        return at + _WIDTHS[kind]
    if kind == "fixed":
        return at + schema.size
    if kind == "record":
        for part in schema.parts:
            at = _end(part, data, at, end)
        return at
    if kind == "union":
        branch, at = _number(data, at)
        if branch < 0:
            raise ValueError("a branch is out of range")
        return _end(schema.parts[branch], data, at, end)
    return _end_of_blocks(schema, data, at, end)


def _end_of_blocks(schema: AvroType, data: memoryview, at: int, end: int) -> int:
    item = schema.entry if schema.kind == "map" else schema.parts[0]
    while True:
        count, at = _number(data, at)
        if count == 0:
            return at
        if count < 0:
            count, (_, at) = -count, _number(data, at)
        # Every item takes at least one byte.
        if count > end - at:
            raise ValueError("an array or map has more items than bytes")
        ends = item_ends(item, data, at, end, count)
        at = ends[-1]


def _number(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, _NUMBER_BITS_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a number has more than 64 bits")
