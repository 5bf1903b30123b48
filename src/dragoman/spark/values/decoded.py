"""The result of value decoders, and checks against the user's schema."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dragoman.errors import ConfigError
from dragoman.spark.batches.layout import Int64s


class Decoded(NamedTuple):
    #: The values that decode, in order.
    values: pa.Array
    #: By index among the given values, why a value does not decode.
    problems: dict[int, str]


#: Decodes values without nulls to a column of the type that the decoder was made for.
Decode: TypeAlias = Callable[[pa.BinaryArray], Decoded]


def converted(
    items: Sequence[Any], parse: Callable[[Any], Any], build: Callable[[list[Any]], pa.Array]
) -> Decoded:
    """The column of all items except those that do not parse or do not fit the column.

    Such items are found by bisection, so a few of them cost little.
    """
    try:
        with _collector_paused():
            return Decoded(build([parse(item) for item in items]), {})
    except Exception as error:  # noqa: BLE001 - libraries raise many exceptions for malformed bytes
        if len(items) == 1:
            return Decoded(build([]), {0: f"{type(error).__name__}: {error}"})
    middle = len(items) // 2
    first = converted(items[:middle], parse, build)
    second = converted(items[middle:], parse, build)
    problems = {middle + row: problem for row, problem in second.problems.items()}
    return Decoded(pa.concat_arrays([first.values, second.values]), first.problems | problems)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, because a batch creates many objects but no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def fixed_width(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array over the memory of the numbers."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def scattered(array: pa.Array, places: Int64s, count: int) -> pa.Array:
    """`count` rows: those of the array at `places`, null elsewhere."""
    if len(places) == count and (np.diff(places) > 0).all():
        return array
    chosen = np.full(count, -1, np.int64)
    chosen[places] = np.arange(len(places))
    return array.take(pa.array(chosen, mask=chosen < 0))


def check_fits(found: DataType, wanted: DataType, where: str = "value") -> None:
    """Raises `ConfigError` for a user's schema that differs from the type of the values.

    The user's schema may leave out fields and differ in nullability.
    """
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        known = {field.name: field.dataType for field in found.fields}
        for field in wanted.fields:
            if field.name not in known:
                listed = ", ".join(known)
                raise ConfigError(f"{where} has no field {field.name!r}; its fields are {listed}")
            check_fits(known[field.name], field.dataType, f"{where}.{field.name}")
    elif isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        check_fits(found.elementType, wanted.elementType, where)
    elif isinstance(found, MapType) and isinstance(wanted, MapType):
        check_fits(found.keyType, wanted.keyType, where)
        check_fits(found.valueType, wanted.valueType, where)
    elif found != wanted:
        is_type, given = found.simpleString(), wanted.simpleString()
        raise ConfigError(f"{where} is {is_type}, the schema has {given}")


def forbidden_nulls(array: pa.Array, field: pa.Field) -> dict[int, str]:
    """Nulls in NOT NULL fields, by row. Spark would read them as arbitrary values."""
    if not _first_null(array, field):
        return {}
    rows = ((row, _first_null(array.slice(row, 1), field)) for row in range(len(array)))
    return {row: f"{name} is null, the schema has NOT NULL" for row, name in rows if name}


def _first_null(array: pa.Array, field: pa.Field) -> str:
    """The path of the first NOT NULL field that is null; empty when there is none."""
    if array.null_count and not field.nullable:
        return str(field.name)
    # A null has no fields to check.
    kind, valid = array.type, array.drop_null() if array.null_count else array
    if pa.types.is_struct(kind):
        within = [(valid.field(index), each) for index, each in enumerate(kind)]
    elif pa.types.is_list(kind):
        within = [(valid.flatten(), kind.value_field)]
    elif pa.types.is_map(kind):
        entries = (
            slice(valid.offsets[0].as_py(), valid.offsets[-1].as_py()) if len(valid) else slice(0)
        )
        within = [(valid.keys[entries], kind.key_field), (valid.items[entries], kind.item_field)]
    else:
        return ""
    names = (_first_null(inner, each) for inner, each in within)
    return next((f"{field.name}.{name}" for name in names if name), "")
