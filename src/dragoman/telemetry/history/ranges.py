"""What was between two times: points of several series, at equal steps.

A point at time T with step S is of the samples that ended after T - S and up to T. Within the last
hour these are the samples of 15 s; before, and for steps of 5 min and more, those of 5 min, and of
15 s where no 5 min have passed yet. A point without a sample is None: the node was down, or the
series did not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from dragoman.limits import HISTORY_COARSE_S, HISTORY_FINE_S
from dragoman.telemetry.history.figures import Key
from dragoman.telemetry.history.ring import Rings, Row, Steps, combined

#: Values that are looked at between two pauses.
_AT_ONCE = 1000


def steps_of(begin: int, end: int, step_s: int) -> range:
    """The times of the points: multiples of the step, after `begin` and up to `end`."""
    return range((begin // step_s + 1) * step_s, end // step_s * step_s + 1, step_s)


def rows_of(rings: Rings, times: range) -> list[Row]:
    """The rows that points at these times are of."""
    first, last = times.start - times.step, times[-1]
    fine = [row for row in rings.fine.rows if first < row.at <= last]
    begins = min((row.at for row in rings.fine.rows), default=last + 1)
    if times.step < HISTORY_COARSE_S and first >= begins - HISTORY_FINE_S:
        return fine
    coarse = [row for row in rings.coarse.rows if first < row.at <= last]
    covered = max((row.at for row in coarse), default=first)
    return coarse + [row for row in fine if row.at > covered]


def points(rings: Rings, keys: Sequence[Key], times: range) -> Steps[list[list[float | None]]]:
    """The values of each series at these times."""
    rows = rows_of(rings, times)
    places = [-(-(row.at - times.start) // times.step) for row in rows]
    found: list[list[float | None]] = []
    looked_at = 0
    for key in keys:
        samples: list[list[float]] = [[] for _ in times]
        for place, row in zip(places, rows, strict=True):
            samples[place].append(row.value(key))
        found.append([_shown(combined(key, each)) for each in samples])
        looked_at += len(rows) + len(times)
        if looked_at >= _AT_ONCE:
            looked_at = 0
            yield
    return found


def _shown(value: float) -> float | None:
    """With the digits that float32 has."""
    if not isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.7g}")
