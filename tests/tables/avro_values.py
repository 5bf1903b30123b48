"""Avro schemas and values of them, made by chance, with the bytes and the row that each stands for.

The encoder here is a second reading of the specification, record by record. It knows which branch
of a union it takes, and cuts arrays and maps into blocks of either form.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from dragoman.spark.values.avro import AvroFormat
from dragoman.spark.values.decoded import Decoded

#: The bytes of a value, and what a table shows for it.
Encoded: TypeAlias = tuple[bytes, Any]
#: A schema, a strategy for its values, and whether it is a union or could be null.
Typed: TypeAlias = tuple[Any, st.SearchStrategy[Encoded]]


def number(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


def _typed(
    schema: Any, values: st.SearchStrategy[Any], encode: Callable[[Any], bytes]
) -> st.SearchStrategy[Typed]:
    return st.just((schema, values.map(lambda value: (encode(value), value))))


def _times(logical: str, unit: timedelta) -> st.SearchStrategy[Typed]:
    zone = None if logical.startswith("local") else UTC
    start = datetime(1970, 1, 1, tzinfo=zone)
    span = 6 * 10**10 * (timedelta(seconds=1) // unit)
    ticks = st.integers(-span, span)
    return st.just(
        (
            {"type": "long", "logicalType": logical},
            ticks.map(lambda value: (number(value), start + value * unit)),
        )
    )


def _decimals(precision: int, scale: int, size: int) -> st.SearchStrategy[Typed]:
    """Of a fixed when it has a size."""
    kind: Any = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if size:
        kind |= {"type": "fixed", "size": size, "name": f"fixed_{precision}_{scale}_{size}"}
    unscaled = st.integers(1 - 10**precision, 10**precision - 1)

    def encoded(value: int) -> Encoded:
        width = size or value.bit_length() // 8 + 1
        data = value.to_bytes(width, "big", signed=True)
        return data if size else sized(data), Decimal(f"{value}E-{scale}")

    return st.just((kind, unscaled.map(encoded)))


def _doubles(width: int) -> st.SearchStrategy[float]:
    return st.floats(width=width, allow_nan=False)


_SCALARS = st.one_of(
    _typed("boolean", st.booleans(), lambda value: bytes([value])),
    _typed("int", st.integers(-(2**31), 2**31 - 1), number),
    _typed("long", st.integers(-(2**63), 2**63 - 1), number),
    _typed("float", _doubles(32), lambda value: struct.pack("<f", value)),
    _typed("double", _doubles(64), lambda value: struct.pack("<d", value)),
    _typed("string", st.text(max_size=12), lambda value: sized(value.encode())),
    _typed(
        {"type": "string", "logicalType": "uuid"}, st.uuids().map(str), lambda v: sized(v.encode())
    ),
    _typed("bytes", st.binary(max_size=12), sized),
    _typed(
        {"type": "int", "logicalType": "date"},
        st.dates(),
        lambda value: number((value - date(1970, 1, 1)).days),
    ),
    _times("timestamp-millis", timedelta(milliseconds=1)),
    _times("timestamp-micros", timedelta(microseconds=1)),
    _times("local-timestamp-millis", timedelta(milliseconds=1)),
    _times("local-timestamp-micros", timedelta(microseconds=1)),
    _decimals(9, 2, 0),
    _decimals(38, 10, 0),
)


@st.composite
def types(draw: st.DrawFn, depth: int = 3, names: list[str] | None = None) -> Typed:
    """Any type; `names` keeps those that are taken."""
    names = [] if names is None else names
    pick = draw(st.integers(0, 9 if depth else 5))
    if pick < 4:
        return draw(_SCALARS)
    if pick == 4:
        return draw(_named_scalars(names))
    if pick == 5 or depth == 0:
        return _nullable(draw(_SCALARS), draw(st.booleans()))
    if pick == 6:
        return _array(draw(types(depth - 1, names)))
    if pick == 7:
        return _map(draw(types(depth - 1, names)))
    if pick == 8:
        return draw(_unions(depth - 1, names))
    return draw(records(depth - 1, names))


@st.composite
def records(draw: st.DrawFn, depth: int = 3, names: list[str] | None = None) -> Typed:
    names = [] if names is None else names
    name = _name(names)
    fields = [draw(types(depth, names)) for _ in range(draw(st.integers(1, 4)))]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(fields)],
    }

    def joined(values: tuple[Encoded, ...]) -> Encoded:
        row = {f"f{index}": value for index, (_, value) in enumerate(values)}
        return b"".join(data for data, _ in values), row

    return schema, st.tuples(*(values for _, values in fields)).map(joined)


def _name(names: list[str]) -> str:
    names.append(f"n{len(names)}")
    return names[-1]


@st.composite
def _named_scalars(draw: st.DrawFn, names: list[str]) -> Typed:
    name = _name(names)
    if draw(st.booleans()):
        symbols = [f"S{index}" for index in range(draw(st.integers(1, 5)))]
        places = st.integers(0, len(symbols) - 1)
        schema: Any = {"type": "enum", "name": name, "symbols": symbols}
        return schema, places.map(lambda place: (number(place), symbols[place]))
    size = draw(st.integers(1, 20))
    data = st.binary(min_size=size, max_size=size)
    return {"type": "fixed", "name": name, "size": size}, data.map(lambda each: (each, each))


def _nullable(typed: Typed, null_first: bool) -> Typed:
    kind, values = typed
    null = (number(0 if null_first else 1), None)
    there = values.map(lambda each: (number(1 if null_first else 0) + each[0], each[1]))
    return ["null", kind] if null_first else [kind, "null"], there | st.just(null)


def _blocks(items: list[bytes], sizes: list[int], with_bytes: bool) -> bytes:
    out, rest = b"", items
    while rest:
        size = max(1, min(sizes.pop() if sizes else len(rest), len(rest)))
        data, rest = b"".join(rest[:size]), rest[size:]
        out += number(-size) + sized(data) if with_bytes else number(size) + data
    return out + number(0)


_CUTS = st.tuples(st.lists(st.integers(1, 4), max_size=3), st.booleans())


def _array(typed: Typed) -> Typed:
    kind, values = typed

    def joined(given: tuple[list[Encoded], tuple[list[int], bool]]) -> Encoded:
        items, (sizes, with_bytes) = given
        return _blocks([data for data, _ in items], list(sizes), with_bytes), [
            value for _, value in items
        ]

    return {"type": "array", "items": kind}, st.tuples(st.lists(values, max_size=6), _CUTS).map(
        joined
    )


def _map(typed: Typed) -> Typed:
    kind, values = typed

    def joined(given: tuple[dict[str, Encoded], tuple[list[int], bool]]) -> Encoded:
        items, (sizes, with_bytes) = given
        parts = [sized(key.encode()) + data for key, (data, _) in items.items()]
        shown = [(key, value) for key, (_, value) in items.items()]
        return _blocks(parts, list(sizes), with_bytes), shown

    entries = st.dictionaries(st.text(max_size=5), values, max_size=5)
    return {"type": "map", "values": kind}, st.tuples(entries, _CUTS).map(joined)


@st.composite
def _unions(draw: st.DrawFn, depth: int, names: list[str]) -> Typed:
    """Of several types: a struct with a member for each, of which one is there."""
    branches = [
        draw(_typed("boolean", st.booleans(), lambda value: bytes([value]))),
        draw(_typed("string", st.text(max_size=5), lambda value: sized(value.encode()))),
        draw(records(0, names)) if depth else draw(_named_scalars(names)),
    ]
    with_null = draw(st.booleans())
    start = int(with_null)

    def member(index: int) -> Callable[[Encoded], Encoded]:
        def shown(each: Encoded) -> Encoded:
            row = {f"member{place}": None for place in range(3)}
            return number(start + index) + each[0], row | {f"member{index}": each[1]}

        return shown

    values = st.one_of(*(values.map(member(i)) for i, (_, values) in enumerate(branches)))
    kinds = [kind for kind, _ in branches]
    if with_null:
        return ["null", *kinds], values | st.just((number(0), None))
    return kinds, values


def decode(schema: str, values: list[bytes], framing: str = "") -> Decoded:
    """Decoded to the type that the schema has."""
    made = AvroFormat(schema, framing)
    kind = to_arrow_type(made.spark_type(), timezone="UTC")
    decoded = made.decoder(kind)(pa.array(values, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == kind
    return decoded
