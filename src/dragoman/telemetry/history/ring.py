"""Samples in memory: two rings of rows, one of fine and one of coarse steps.

A row has one float32 for each series that existed when it was taken, in the order of its columns;
NaN stands for no value, and so does a column beyond the row's end. Rows therefore take memory only
for what there is, and they are written to files as they are (`files.py`).

Columns are only ever added. To free those of series that are gone, a new `Columns` begins; older
rows keep the one that they were taken with.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from math import nan
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dragoman.limits import HISTORY_COARSE_ROWS, HISTORY_COARSE_S, HISTORY_FINE_ROWS, HISTORY_FINE_S
from dragoman.telemetry.history.figures import FIGURES, Key

Result = TypeVar("Result")
#: Work that pauses where it yields, so that no loop turn is long.
Steps: TypeAlias = Generator[None, None, Result]

#: Key of a column whose series was lost with damage of a file.
UNKNOWN: Final[Key] = ()


class Columns:
    """Series and their places in rows."""

    __slots__ = ("index", "keys")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self.keys: list[Key] = []
        self.index: dict[Key, int] = {}
        for each in keys:
            self.add(each)

    def __len__(self) -> int:
        return len(self.keys)

    def add(self, key: Key) -> int:
        found = self.index[key] = len(self.keys)
        self.keys.append(key)
        return found


class Row(NamedTuple):
    #: End of the interval, in seconds since 1970.
    at: int
    columns: Columns
    values: array[float]

    def value(self, key: Key) -> float:
        """NaN without a value."""
        index = self.columns.index.get(key)
        return nan if index is None or index >= len(self.values) else self.values[index]


class Ring:
    def __init__(self, step_s: int, rows_max: int) -> None:
        self.step_s = step_s
        #: In the order in which they were taken. The clock may have been set back between two.
        self.rows: deque[Row] = deque(maxlen=rows_max)


class Rings:
    """The history of a node."""

    def __init__(self) -> None:
        self.fine = Ring(HISTORY_FINE_S, HISTORY_FINE_ROWS)
        self.coarse = Ring(HISTORY_COARSE_S, HISTORY_COARSE_ROWS)
        #: Of rows that are taken now.
        self.columns = Columns()

    def layouts(self) -> list[Columns]:
        """Every `Columns` of a row, once, the oldest first."""
        rows = (*self.coarse.rows, *self.fine.rows)
        return list({id(row.columns): row.columns for row in rows}.values())

    def series(self) -> set[Key]:
        """Every series that has a column in a row."""
        return {key for each in self.layouts() for key in each.keys} - {UNKNOWN}


#: Columns that are looked at between two pauses.
_COLUMNS_AT_ONCE = 250
#: Values that are looked at between two pauses.
_LOOKS_AT_ONCE = 500


def coarse_row(fine: Iterable[Row], at: int) -> Steps[Row]:
    """A coarse row of the newest columns among these fine rows: means, or maxima where these
    matter, of the values that there are.
    """
    rows = list(fine)
    columns = rows[-1].columns
    rows = [each for each in rows if each.columns is columns]
    width = max(len(each.values) for each in rows)
    values = array("f")
    for begin in range(0, width, _COLUMNS_AT_ONCE):
        end = min(begin + _COLUMNS_AT_ONCE, width)
        parts = [_padded(each.values[begin:end], end - begin) for each in rows]
        for key, column in zip(columns.keys[begin:end], zip(*parts, strict=True), strict=True):
            values.append(combined(key, column))
        yield
    # A copy has no room for more.
    return Row(at, columns, values[:])


def _padded(values: array[float], width: int) -> array[float]:
    if len(values) < width:
        values.extend([nan] * (width - len(values)))
    return values


def combined(key: Key, column: Iterable[float]) -> float:
    """One value for several samples of a series; NaN if all are."""
    known = [each for each in column if each == each]
    if not known:
        return nan
    figure = FIGURES.get(key[0]) if key else None
    if figure is not None and figure.over_time == "max":
        return max(known)
    return sum(known) / len(known)


def live_keys(rings: Rings) -> Steps[list[Key]]:
    """The series of the newest columns that a row has a value of.

    Rates of zero are no values here: a topic that was idle all the time may give its series to
    another one.
    """
    columns = rings.columns
    left = set(columns.keys)
    looked_at = 0
    # The newest rows first: most series are found in the first of them.
    for row in reversed([*rings.coarse.rows, *rings.fine.rows]):
        for some in _pieces(list(left)):
            left -= {key for key in some if _has(row, key)}
            looked_at += len(some)
            if looked_at >= _LOOKS_AT_ONCE:
                looked_at = 0
                yield
        if not left:
            break
    return [key for key in columns.keys if key not in left]


def _pieces(keys: list[Key]) -> Iterator[list[Key]]:
    for first in range(0, len(keys), _LOOKS_AT_ONCE):
        yield keys[first : first + _LOOKS_AT_ONCE]


def _has(row: Row, key: Key) -> bool:
    value = row.value(key)
    figure = FIGURES.get(key[0])
    return value > 0 or (value == 0 and (figure is None or figure.form != "rate"))


def newest(rows: deque[Row], count: int) -> list[Row]:
    """The newest rows, the oldest first."""
    return list(islice(rows, max(0, len(rows) - count), None))
