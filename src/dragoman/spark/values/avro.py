"""Decodes Avro values to Arrow without a loop over records.

Values of one schema have the same fields in the same order, so all values of a batch are decoded in
lockstep: each field takes one pass over the positions at which the previous field ended. A union
branch takes a pass over the values that have it. Numbers in arrays are located all at once. Items
of other types are decoded in lockstep, too, the k-th item of every array in step k, while many
arrays have one; the ends of the remaining items are found one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from dragoman.spark.batches.layout import TIME_MS_MAX, Int64s
from dragoman.spark.values.avro_cursor import Cursor
from dragoman.spark.values.avro_schema import AvroType, parse_avro_schema
from dragoman.spark.values.decoded import Decode, Decoded, fixed_width, scattered

#: Framing before a value: a marker and the schema's fingerprint, or a marker and a schema id.
_SINGLE_OBJECT = b"\xc3\x01"
_CONFLUENT_BYTES = 5
#: Steps of a lockstep whose columns are kept before they are concatenated.
_PIECES_MAX = 4096
#: With fewer rows, a step costs more than walking over the items.
_FEW_ROWS = 64

#: None if the column was not requested, so that only positions advance.
Kind: TypeAlias = pa.DataType | None
Column: TypeAlias = Any  # a pyarrow.Array, or None
#: Columns of one step, and the rows that they belong to.
Piece: TypeAlias = tuple[list[Column], Int64s]
Step: TypeAlias = "Callable[[_ColumnReader, Int64s], list[Column]]"


class AvroFormat(msgspec.Struct, frozen=True):
    #: The writer's schema, as JSON.
    schema: str
    #: Empty (plain, or single-object encoding of this schema), single-object or confluent.
    framing: str = ""

    def spark_type(self) -> DataType:
        return parse_avro_schema(self.schema).spark_type

    def decoder(self, kind: pa.DataType) -> Decode:
        schema = parse_avro_schema(self.schema)

        def decode(values: pa.BinaryArray) -> Decoded:
            cursor, rows = Cursor.over(values), np.arange(len(values))
            _skip_framing(cursor, rows, self.framing, schema.fingerprint)
            array = _ColumnReader(cursor).column(schema, kind, rows)
            cursor.refuse(rows, cursor.left(rows) > 0, "bytes follow the last field")
            if cursor.problems:
                array = array.filter(pa.array(~cursor.is_bad))
            if self.framing != "confluent":
                _name_other_schemas(cursor.problems, values, schema.fingerprint)
            return Decoded(array, cursor.problems)

        return decode


def _skip_framing(cursor: Cursor, rows: Int64s, framing: str, fingerprint: bytes) -> None:
    if framing == "confluent":
        is_framed = cursor.skip(rows, b"\0", _CONFLUENT_BYTES)
        cursor.refuse(rows, ~is_framed, "it does not begin with a zero byte and a schema id")
        return
    header = _SINGLE_OBJECT + fingerprint
    is_framed = cursor.skip(rows, header, len(header))
    if framing:
        cursor.refuse(rows, ~is_framed, "it does not begin with the schema's fingerprint")


def _name_other_schemas(problems: dict[int, str], values: pa.Array, fingerprint: bytes) -> None:
    """Add to a problem that the value looks like single-object encoding of another schema.

    A plain value may begin with any bytes, so the marker alone is not an error.
    """
    for row, problem in problems.items():
        mark, other = values[row].as_py()[:2], values[row].as_py()[2:10]
        if mark == _SINGLE_OBJECT and other != fingerprint:
            problems[row] = (
                f"{problem}; as single-object encoding its schema has the fingerprint "
                f"{other.hex()}, the given schema has {fingerprint.hex()}"
            )


class _ColumnReader:
    """Reads columns of the given rows and advances the positions of these rows."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def column(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        return _READERS[schema.kind](self, schema, kind, rows)

    def _null(self, _: AvroType, kind: Kind, rows: Int64s) -> Column:
        return None if kind is None else pa.nulls(len(rows), kind)

    def _boolean(self, _: AvroType, kind: Kind, rows: Int64s) -> Column:
        found = self._cursor.lines(rows, 1)[:, 0]
        self._cursor.refuse(rows, found > 1, "a boolean is neither 0 nor 1")
        return None if kind is None else pa.array(found == 1)

    def _int(self, _: AvroType, kind: Kind, rows: Int64s) -> Column:
        found = self._cursor.numbers(rows)
        narrow = found.astype(np.int32)
        self._cursor.refuse(rows, narrow != found, "an int has more than 32 bits")
        return None if kind is None else fixed_width(narrow, kind)

    def _long(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        found = self._cursor.numbers(rows)
        if schema.logical.endswith("-millis"):
            is_wrong = (found > TIME_MS_MAX) | (found < -TIME_MS_MAX)
            self._cursor.refuse(rows, is_wrong, "a time is out of range")
            found *= 1000
        return None if kind is None else fixed_width(found, kind)

    def _float(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        found = self._cursor.lines(rows, 4 if schema.kind == "float" else 8)
        return None if kind is None else fixed_width(found, kind)

    def _bytes(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        is_fixed = schema.kind == "fixed"
        sizes = np.full(len(rows), schema.size) if is_fixed else self._cursor.numbers(rows)
        starts, sizes = self._cursor.spans(rows, sizes)
        if kind is None:
            return None
        if schema.logical == "decimal":
            return fixed_width(self._cursor.decimals(rows, starts, sizes, schema.precision), kind)
        return self._cursor.gathered(rows, starts, sizes, kind)

    def _enum(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        found = self._cursor.indexes(rows, len(schema.symbols), "symbol")
        return None if kind is None else pa.array(schema.symbols, kind).take(pa.array(found))

    def _record(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        wanted = {field.name: field.type for field in kind or ()}
        found = {
            name: self.column(part, wanted.get(name), rows)
            for name, part in zip(schema.field_names, schema.parts, strict=True)
        }
        if kind is None:
            return None
        return pa.StructArray.from_arrays([found[name] for name in wanted], fields=list(kind))

    # ---- unions

    def _union(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        taken = self._cursor.indexes(rows, len(schema.parts), "branch")
        branches = [
            (part, np.flatnonzero(taken == index))
            for index, part in enumerate(schema.parts)
            if part.kind != "null" or not schema.branches
        ]
        if len(branches) == 1:
            ((part, places),) = branches
            array = self.column(part, kind, rows[places])
            return None if kind is None else scattered(array, places, len(rows))
        if schema.widened:
            return self._widened(branches, kind, rows)
        return self._members(branches, kind, rows)

    def _widened(self, branches: list[tuple[AvroType, Int64s]], kind: Kind, rows: Int64s) -> Column:
        arrays = [
            # Logical types are lost in the wider number, as in spark-avro.
            self.column(AvroType(kind=part.kind), kind and _NUMBERS[part.kind], rows[places])
            for part, places in branches
        ]
        if kind is None:
            return None
        every = np.concatenate([places for _, places in branches])
        return scattered(pa.concat_arrays([each.cast(kind) for each in arrays]), every, len(rows))

    def _members(self, branches: list[tuple[AvroType, Int64s]], kind: Kind, rows: Int64s) -> Column:
        """A struct of all branches, exactly one of which is not null."""
        wanted = {field.name: field.type for field in kind or ()}
        is_null = np.ones(len(rows), np.bool_)
        members: dict[str, pa.Array] = {}
        for index, (part, places) in enumerate(branches):
            name = f"member{index}"
            array = self.column(part, wanted.get(name), rows[places])
            is_null[places] = False
            if name in wanted:
                members[name] = scattered(array, places, len(rows))
        if kind is None:
            return None
        arrays = [members[name] for name in wanted]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pa.array(is_null))

    # ---- arrays and maps

    def _array(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        (item,) = schema.parts
        wanted = None if kind is None else kind.value_type

        def step(reading: _ColumnReader, each: Int64s) -> list[Column]:
            return [reading.column(item, wanted, each)]

        offsets, (items,) = self._blocks(rows, item, step, [wanted])
        return None if kind is None else pa.ListArray.from_arrays(offsets, items, type=kind)

    def _map(self, schema: AvroType, kind: Kind, rows: Int64s) -> Column:
        of_key, of_value = schema.entry.parts
        wanted = [None, None] if kind is None else [kind.key_type, kind.item_type]

        def step(reading: _ColumnReader, each: Int64s) -> list[Column]:
            key = reading.column(of_key, wanted[0], each)
            return [key, reading.column(of_value, wanted[1], each)]

        offsets, (keys, items) = self._blocks(rows, schema.entry, step, wanted)
        return None if kind is None else pa.MapArray.from_arrays(offsets, keys, items, type=kind)

    def _block(self, rows: Int64s, counts: Int64s, item: AvroType, step: Step) -> Iterator[Piece]:
        """`counts` items of each row: numbers at once, others in steps that many rows share."""
        cursor, here, done = self._cursor, np.arange(len(rows)), 0
        while here.size > _FEW_ROWS and item.kind not in _WIDTHS:
            yield step(self, rows[here]), here
            done += 1
            here = here[(counts[here] > done) & ~cursor.is_bad[rows[here]]]
        rows, counts = rows[here], counts[here] - done
        if item.kind in _WIDTHS:
            inner, owners = cursor.numbers_within(rows, counts, _WIDTHS[item.kind])
        else:
            inner, owners = cursor.items_within(rows, counts, item)
        yield step(_ColumnReader(inner), np.arange(len(owners))), here[owners]
        cursor.adopt(inner, rows, owners)

    def _blocks(
        self,
        rows: Int64s,
        item: AvroType,
        step: Step,
        kinds: list[Kind],
    ) -> tuple[pa.Array, list[Column]]:
        """The offsets at which the items of each row begin and end, and all items in row order."""
        none = [None if kind is None else pa.array([], kind) for kind in kinds]
        pieces: list[Piece] = [(none, rows[:0])]
        active = np.arange(len(rows))
        while active.size:
            counts = self._cursor.counts(rows[active])
            active, counts = active[counts > 0], counts[counts > 0]
            for columns, owners in self._block(rows[active], counts, item, step):
                pieces.append((columns, active[owners]))
                if len(pieces) > _PIECES_MAX:
                    pieces = [_joined(pieces)]
            active = active[~self._cursor.is_bad[rows[active]]]
        columns, owners = _joined(pieces)
        if (np.diff(owners) < 0).any():
            order = pa.array(np.argsort(owners, kind="stable"))
            columns = [each if each is None else each.take(order) for each in columns]
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owners, minlength=len(rows)), out=offsets[1:])
        return pa.array(offsets), columns


def _joined(pieces: list[Piece]) -> Piece:
    columns = zip(*(each for each, _ in pieces), strict=True)
    owners = np.concatenate([each for _, each in pieces])
    return [None if each[0] is None else pa.concat_arrays(each) for each in columns], owners


_NUMBERS = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}
#: Bytes of a number, 0 when that varies. Items of these types need no steps.
_WIDTHS = {"boolean": 1, "float": 4, "double": 8, "int": 0, "long": 0, "enum": 0}
_READERS: dict[str, Callable[[_ColumnReader, AvroType, Kind, Int64s], Column]] = {
    "null": _ColumnReader._null,
    "boolean": _ColumnReader._boolean,
    "int": _ColumnReader._int,
    "long": _ColumnReader._long,
    "float": _ColumnReader._float,
    "double": _ColumnReader._float,
    "bytes": _ColumnReader._bytes,
    "string": _ColumnReader._bytes,
    "fixed": _ColumnReader._bytes,
    "enum": _ColumnReader._enum,
    "record": _ColumnReader._record,
    "union": _ColumnReader._union,
    "array": _ColumnReader._array,
    "map": _ColumnReader._map,
}
