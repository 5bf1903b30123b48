"""Histograms: a value at a bound is below it, as Prometheus counts."""

from __future__ import annotations

from dragoman.histogram import Histogram


def test_values_are_counted_up_to_their_bound() -> None:
    found = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        found.add(value)
    assert found.counts == [2, 2, 1]
    assert found.total == 24.0
    assert found.count == 5


def test_value_may_be_added_several_times() -> None:
    found = Histogram((1.0,))
    found.add(0.5, 4)
    assert found.counts == [4, 0]
    assert found.total == 2.0
