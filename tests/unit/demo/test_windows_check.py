"""The demo's own check of what Spark made of the readings: it must notice every way to be wrong."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

pytest.importorskip("confluent_kafka")

from demo.readings import Window, closed_windows, record, window_minutes
from demo.spark import check_windows
from demo.story import DemoError

COUNT = 1000


@pytest.mark.parametrize("count", [72, 100, 1000, 14_400])
def test_windows_are_those_of_the_records(count: int) -> None:
    """Counted once more, from what the records say about themselves."""
    size = timedelta(minutes=window_minutes(count))
    found: dict[datetime, list[float]] = {}
    for number in range(count):
        reading = json.loads(record(number)[1])
        at = datetime.fromisoformat(reading["at"])
        midnight = at.replace(hour=0, minute=0, second=0)
        found.setdefault(midnight + (at - midnight) // size * size, []).append(reading["celsius"])
    windows = closed_windows(count)
    # The last window is open, and the one before while its last reading is the newest but ten.
    assert len(found) - 2 <= len(windows) < len(found)
    for begin, window in zip(sorted(found), windows, strict=False):
        values = found[begin]
        assert window.window == begin.strftime("%Y-%m-%d %H:%M")
        assert (window.readings, window.warmest) == (len(values), max(values))
        assert window.mean == pytest.approx(sum(values) / len(values), abs=0.006)


def test_windows_are_few_and_a_day_at_most() -> None:
    assert [window_minutes(count) for count in (1, 480, 481, 10_000, 10_000_000)] == [
        *(1, 1, 5, 30, 1440)
    ]
    assert closed_windows(1) == []


def test_right_windows_are_fine_and_means_may_be_rounded_otherwise() -> None:
    windows = closed_windows(COUNT)
    assert len(windows) == 3
    check_windows(windows, COUNT)
    check_windows([replace(each, mean=each.mean + 0.01) for each in windows], COUNT)


def _changed(**fields: float) -> list[Window]:
    first, *others = closed_windows(COUNT)
    return [replace(first, **fields), *others]


@pytest.mark.parametrize(
    "windows",
    [
        [],
        closed_windows(COUNT)[:-1],
        [closed_windows(COUNT)[0], *closed_windows(COUNT)],
        _changed(readings=299),
        _changed(mean=10.5),
        _changed(warmest=12.3),
    ],
    ids=["none", "one less", "one twice", "readings", "mean", "warmest"],
)
def test_wrong_windows_are_noticed(windows: list[Window]) -> None:
    with pytest.raises(DemoError, match="expected"):
        check_windows(windows, COUNT)
