"""Counts of requests: by name, with a bound on what clients can make of them."""

from __future__ import annotations

from dragoman.limits import REQUEST_ERROR_CODES_MAX
from dragoman.net.requests import Requests

NAMES = {1: "one", 2: "two", 11: "one"}


def requests() -> Requests[int]:
    return Requests("test", NAMES.get)


def test_only_requests_that_came_are_counted() -> None:
    counted = requests()
    counted[1].answered(0.5)
    counted[2]
    assert [(each.name, each.count) for each in counted.counters()] == [("one", 1)]


def test_two_keys_may_have_one_name() -> None:
    counted = requests()
    counted[1].answered(0.5)
    counted[11].answered(0.5, 3)
    assert [(each.name, each.count) for each in counted.counters()] == [("one", 4)]


def test_unknown_requests_have_one_counter() -> None:
    counted = requests()
    for key in range(100, 200):
        counted[key].answered(0.5)
    assert [(each.name, each.count) for each in counted.counters()] == [("unknown", 100)]
    assert len(counted) == 0


def test_parked_requests_are_counted_but_not_among_the_times() -> None:
    counter = requests()[1]
    counter.answered(0.5)
    counter.parked.answered(30.0)
    counter.parked.failed(7)
    counter.parked.dropped += 1
    assert counter.count == 3
    assert counter.seconds.total == 0.5
    assert counter.parked.seconds.total == 30.0
    assert counter.errors == {7: 1}


def test_codes_of_errors_are_bounded() -> None:
    counter = requests()[1]
    for code in range(REQUEST_ERROR_CODES_MAX + 10):
        counter.failed(code)
    assert len(counter.errors) == REQUEST_ERROR_CODES_MAX + 1
    assert counter.errors["unknown"] == 10
