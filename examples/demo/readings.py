"""What the demo writes, and what comes of it by hand.

The records are a function of their number, so that what comes back can be compared byte by byte
without keeping what was sent. There is one reading a second; its time is in the record.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import msgspec

TOPIC = "readings"
PARTITIONS = 3
#: Readings that come so late, by their own time, still count in their window.
LATE_SECONDS_MAX = 10

_SENSORS = 100
_BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
_DAY_SECONDS = 86_400
#: The first of these that makes for no more windows than this is taken, else the last.
_WINDOW_MINUTES = (1, 5, 30, 180, 1440)
_WINDOWS_WANTED = 8


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value of a record."""
    sensor = number % _SENSORS
    reading = {
        "number": number,
        "sensor": sensor,
        "at": _time(number).isoformat(),
        "celsius": _celsius(number),
    }
    return f"sensor-{sensor:02d}".encode(), json.dumps(reading).encode()


def _time(number: int) -> datetime:
    return _BEGIN + timedelta(seconds=number)


def _celsius(number: int) -> float:
    """Coldest at midnight, warmest at noon, and no two sensors agree."""
    of_day = 2 * math.pi * number / _DAY_SECONDS
    return round(20 - 10 * math.cos(of_day) + number * 7 % _SENSORS / 50, 1)


# ---- windows


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What the readings of some minutes amount to."""

    #: Where it begins, as `2026-06-01 00:30`.
    window: str
    readings: int
    mean: float
    warmest: float


def window_minutes(count: int) -> int:
    """How long a window is, for so many readings."""
    fitting = (each for each in _WINDOW_MINUTES if each * 60 * _WINDOWS_WANTED >= count)
    return next(fitting, _WINDOW_MINUTES[-1])


def closed_windows(count: int) -> list[Window]:
    """Windows that no reading can be added to any more, since later ones have been seen."""
    size = window_minutes(count) * 60
    seen = count - 1 - LATE_SECONDS_MAX
    return [_window(first, size) for first in range(0, count, size) if first + size <= seen]


def _window(first: int, size: int) -> Window:
    readings = [_celsius(number) for number in range(first, first + size)]
    return Window(
        window=f"{_time(first):%Y-%m-%d %H:%M}",
        readings=size,
        mean=round(math.fsum(readings) / size, 2),
        warmest=max(readings),
    )
