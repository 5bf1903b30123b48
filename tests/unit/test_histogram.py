"""Histograms by powers of two: what is shown is exact at the bounds."""

from __future__ import annotations

import random

import pytest

from dragoman.histogram import Histogram, Times


def test_values_are_counted_up_to_their_bound() -> None:
    found = Histogram((1, 3))
    for value in (0, 1, 2, 7, 8, 1000):
        found.add(value)
    assert found.bounds == (1, 7)
    assert found.buckets() == (2, 2, 2)
    assert found.total == 1018
    assert found.count == 6


def test_value_may_be_added_several_times() -> None:
    found = Histogram((3,))
    found.add(5, 4)
    assert found.buckets() == (4, 0)
    assert found.total == 20


def test_times_are_counted_in_microseconds() -> None:
    found = Times()
    for seconds in (0.0, 0.000127, 0.000129, 0.3, 100.0):
        found.add_seconds(seconds)
    assert found.bounds[0] == 0.000128
    assert found.buckets()[:2] == (2, 1)
    assert found.buckets()[-1] == 1
    assert found.total == pytest.approx(100.300256)


def test_buckets_are_those_of_a_search() -> None:
    rng = random.Random(1)
    found = Times()
    values = [10 ** rng.uniform(-6, 2) for _ in range(1000)]
    for each in values:
        found.add_seconds(each)
    below = [sum(each < bound for each in values) for bound in found.bounds]
    shown = found.buckets()
    assert [sum(shown[: number + 1]) for number in range(len(below))] == below


def test_merged_histogram_has_all_values() -> None:
    one, other = Times(), Times()
    one.add_seconds(0.5)
    other.add_seconds(0.25, 2)
    one.merge(other)
    assert one.count == 3
    assert one.total == 1.0
