"""Where Avro items end, found one by one: for few values with many items.

A step of the lockstep costs the same for one value as for many, about as much as walking over fifty
items. Only the ends are found here; what is between them is read by those who read everything else,
and they notice when an item does not end where it seemed to.
"""

from __future__ import annotations

from dragoman.spark.values.avro_schema import AvroType

_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBER_BITS_MAX = 70


def item_ends(item: AvroType, data: memoryview, at: int, end: int, count: int) -> list[int]:
    """Raises `ValueError` or `IndexError` when there are not so many up to `end`."""
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
            raise ValueError("there is no such branch")
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
        # Every item takes a byte at least.
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
