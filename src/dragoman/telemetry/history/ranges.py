"""What was between two times: points of several series, at equal steps.

A point at time T with step S is of the samples that ended after T - S and up to T. For steps of
5 min and more these are the samples of 5 min, and of 15 s where no 5 min have passed yet. For
shorter steps they are those of 15 s; older points are of the sample of 5 min that they are within,
unless the node began in these 5 min.
A point without a sample is None: the node was down, or the series did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from dragoman.limits import HISTORY_COARSE_S
from dragoman.telemetry.history.figures import Key
from dragoman.telemetry.history.ring import Ring, Rings, Row, Steps, combined

#: Values that are looked at between two pauses.
_AT_ONCE = 1000


def steps_of(begin: int, end: int, step_s: int) -> range:
    """The times of the points: multiples of the step, after `begin` and up to `end`."""
    return range((begin // step_s + 1) * step_s, end // step_s * step_s + 1, step_s)


def points(rings: Rings, keys: Sequence[Key], times: range) -> Steps[list[list[float | None]]]:
    """The values of each series at these times."""
    placed = _placed(rings, times)
    found: list[list[float | None]] = []
    looked_at = 0
    for key in keys:
        samples: list[list[float]] = [[] for _ in times]
        for place, row in placed:
            samples[place].append(row.value(key))
        found.append([_shown(combined(key, each)) for each in samples])
        looked_at += len(placed) + len(times)
        if looked_at >= _AT_ONCE:
            looked_at = 0
            yield
    return found


def _placed(rings: Rings, times: range) -> list[tuple[int, Row]]:
    """The rows that points at these times are of, each with the index of its point."""
    first, last = times.start - times.step, times[-1]
    fine = [(_place(row.at, times), row) for row in rings.fine.rows if first < row.at <= last]
    coarse = [row for row in rings.coarse.rows if first < row.at <= last]
    if times.step >= HISTORY_COARSE_S:
        covered = max((row.at for row in coarse), default=first)
        return [(_place(row.at, times), row) for row in coarse] + [
            each for each in fine if each[1].at > covered
        ]
    # Only times of the range: a clock that was wrong for a moment may have left others.
    begins = min((place for place, _ in fine), default=len(times))
    known = [row for row in coarse if not _is_of_the_beginning(row, rings.fine)]
    older = [(place, row) for row in known for place in _within(row.at, times) if place < begins]
    return older + fine


def _is_of_the_beginning(coarse: Row, fine: Ring) -> bool:
    """Whether it is of the first fine samples ever: it says nothing about times before these."""
    is_whole = len(fine.rows) < (fine.rows.maxlen or 0)
    return is_whole and bool(fine.rows) and 0 <= coarse.at - fine.rows[0].at < HISTORY_COARSE_S


def _place(at: int, times: range) -> int:
    return -(-(at - times.start) // times.step)


def _within(at: int, times: range) -> range:
    """The points of a coarse sample whose step is longer than theirs."""
    first = (at - HISTORY_COARSE_S - times.start) // times.step + 1
    return range(max(first, 0), _place(at, times) + 1)


def _shown(value: float) -> float | None:
    """With the digits that float32 has."""
    if not isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.7g}")
