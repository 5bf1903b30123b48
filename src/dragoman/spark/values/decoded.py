"""What decoders of values give back, and what they share: which values are wrong, and why."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dragoman.spark.batches.layout import Int64s


class Decoded(NamedTuple):
    #: The values that are right, in their order.
    values: pa.Array
    #: What is wrong with each of the others, by its place among those given.
    problems: dict[int, str]


#: Values without nulls to columns of the type that the decoder was made for.
Decode: TypeAlias = Callable[[pa.BinaryArray], Decoded]


def converted(
    items: Sequence[Any], parse: Callable[[Any], Any], build: Callable[[list[Any]], pa.Array]
) -> Decoded:
    """The column of all items; without those that do not parse or that no column can hold.

    Which these are is found by halves, so that few of them cost little.
    """
    try:
        with _collector_paused():
            return Decoded(build([parse(item) for item in items]), {})
    except Exception as error:  # noqa: BLE001 - libraries have many ways to say that bytes are wrong
        if len(items) == 1:
            return Decoded(build([]), {0: f"{type(error).__name__}: {error}"})
    middle = len(items) // 2
    first = converted(items[:middle], parse, build)
    second = converted(items[middle:], parse, build)
    problems = {middle + row: problem for row, problem in second.problems.items()}
    return Decoded(pa.concat_arrays([first.values, second.values]), first.problems | problems)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A batch makes many objects and no cycles; looking for some takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def fixed_width(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as Arrow has them in memory."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def scattered(array: pa.Array, places: Int64s, count: int) -> pa.Array:
    """`count` rows with those of the array at their places, null elsewhere."""
    if len(places) == count and (np.diff(places) > 0).all():
        return array
    chosen = np.full(count, -1, np.int64)
    chosen[places] = np.arange(len(places))
    return array.take(pa.array(chosen, mask=chosen < 0))
