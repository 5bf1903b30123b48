"""The history against a naive model that keeps every value for ever.

Method: random rows of series that come and go, written to files, with restarts at random times;
what is read between two times is compared with a dictionary.
"""

from __future__ import annotations

from array import array
from math import nan
from random import Random
from statistics import fmean

import pytest

from dragoman.telemetry.history.figures import Key
from dragoman.telemetry.history.files import Writer, load
from dragoman.telemetry.history.ranges import points, steps_of
from dragoman.telemetry.history.ring import Columns, Rings, Row
from dragoman.testing.memory import MemoryDisk

KEYS: list[Key] = [("log_bytes",), *(("topic_log_bytes", f"t{each}") for each in range(12))]
MAXIMA: list[Key] = [("group_lag_records", f"g{each}") for each in range(3)]


def result(steps: object) -> object:
    while True:
        try:
            next(steps)  # type: ignore[call-overload]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class History:
    """Fine rows only, in a disk and in memory."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = MemoryDisk()
        self.rings = Rings()
        self.writer = Writer(self.disk, "15s-", 240)
        self.known: dict[tuple[int, Key], float] = {}
        self.times: list[int] = []

    def sample(self, at: int) -> None:
        columns = self.rings.columns
        values = array("f", [nan]) * len(columns)
        for key in self.random.sample(KEYS + MAXIMA, self.random.randrange(9)):
            value = float(self.random.randrange(1 << 20))
            self.known[at, key] = value
            if key in columns.index:
                values[columns.index[key]] = value
            else:
                columns.add(key)
                values.append(value)
        self.times.append(at)
        row = Row(at, columns, values)
        self.rings.fine.rows.append(row)
        result(self.writer.append(row))

    def restart(self) -> None:
        self.writer.close()
        loaded = result(load(self.disk, "15s-", 240))
        self.rings = Rings()
        self.rings.fine.rows.extend(loaded.rows)  # type: ignore[attr-defined]
        self.rings.columns = loaded.columns or Columns()  # type: ignore[attr-defined]
        self.writer = Writer(self.disk, "15s-", 240)
        self.writer.resume(loaded)  # type: ignore[arg-type]

    def forget(self) -> None:
        """Begin columns anew, as when series are gone for a week."""
        kept = self.random.sample(self.rings.columns.keys, len(self.rings.columns) // 2)
        self.rings.columns = Columns(kept)

    def expected(self, key: Key, times: range) -> list[float | None]:
        kept = self.times[-240:]
        found: list[float | None] = []
        for at in times:
            samples = [
                self.known[each, key]
                for each in kept
                if at - times.step < each <= at and (each, key) in self.known
            ]
            mean = max if key in MAXIMA else fmean
            found.append(mean(samples) if samples else None)
        return found


@pytest.mark.parametrize("seed", range(60))
def test_ranges_are_those_of_a_model(seed: int) -> None:
    random = Random(seed)
    history, at = History(random), 1_800_000_000
    for _ in range(random.randrange(1, 400)):
        at += 15 * random.choice((1, 1, 1, 1, 2, 40))
        history.sample(at)
        if random.random() < 0.03:
            history.restart()
        if random.random() < 0.01:
            history.forget()
    for step in (15, 30, 60, 120):
        begin = at - random.randrange(15, 3600)
        if begin < min(row.at for row in history.rings.fine.rows):
            continue
        times = steps_of(begin, at, step)
        if not times:
            continue
        keys = KEYS + MAXIMA
        found = result(points(history.rings, keys, times))
        for key, shown in zip(keys, found, strict=True):  # type: ignore[call-overload]
            expected = history.expected(key, times)
            assert [each is None for each in shown] == [each is None for each in expected]
            assert [each or 0 for each in shown] == pytest.approx(
                [each or 0 for each in expected], rel=1e-6
            )
