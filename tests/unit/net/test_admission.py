"""Goal: the budget counts right, and all who wait for room are called once when there is some."""

from __future__ import annotations

import pytest

from dragoman.net.admission import MemoryBudget


class Waiter:
    def __init__(self) -> None:
        self.resumed = 0

    def resume(self) -> None:
        self.resumed += 1


def test_budget_is_exhausted_at_its_bound() -> None:
    budget = MemoryBudget(100)
    budget.take(99)
    assert not budget.is_exhausted
    assert budget.room == 1
    budget.take(51)
    assert budget.is_exhausted
    assert budget.room == 0
    budget.give_back(150)
    assert (budget.used, budget.room) == (0, 100)


def test_change_takes_and_gives_back() -> None:
    budget = MemoryBudget(100)
    budget.change(30)
    budget.change(-10)
    budget.change(0)
    assert budget.used == 20


def test_waiters_are_resumed_once_a_fifth_is_free() -> None:
    budget = MemoryBudget(100)
    budget.take(120)
    first, second = Waiter(), Waiter()
    budget.wait(first, budget.working)
    budget.wait(second, budget.working)
    budget.give_back(40)
    assert first.resumed == 0
    budget.give_back(1)
    assert (first.resumed, second.resumed) == (1, 1)
    budget.give_back(10)
    assert first.resumed == 1


def test_what_is_missing_until_waiters_may_go_on() -> None:
    budget = MemoryBudget(100)
    budget.take(99)
    assert budget.missing == 0, "nobody waits"
    budget.take(1)
    assert budget.missing == 21
    waiter = Waiter()
    budget.wait(waiter, budget.working)
    budget.give_back(15)
    assert budget.missing == 6
    budget.give_back(5)
    assert waiter.resumed == 0
    budget.give_back(budget.missing)
    assert waiter.resumed == 1
    assert budget.missing == 0


def test_waiter_that_left_is_not_resumed() -> None:
    budget = MemoryBudget(100)
    budget.take(100)
    waiter = Waiter()
    budget.wait(waiter, budget.working)
    budget.forget(waiter)
    budget.forget(waiter)
    budget.give_back(100)
    assert waiter.resumed == 0


def test_giving_back_more_than_was_taken_is_a_bug_that_shows() -> None:
    budget = MemoryBudget(100)
    budget.take(1)
    with pytest.raises(AssertionError):
        budget.give_back(2)


def test_each_kind_of_connection_has_its_ceiling() -> None:
    budget = MemoryBudget(100)
    ceilings = (budget.new, budget.working, budget.finishing)
    assert [each.bytes_max for each in ceilings] == [75, 100, 125]
    waiters = [Waiter() for _ in ceilings]
    budget.take(130)
    for waiter, ceiling in zip(waiters, ceilings, strict=True):
        budget.wait(waiter, ceiling)
    assert budget.missing == 71
    resumed = []
    for _ in range(7):
        budget.give_back(10)
        resumed.append([waiter.resumed for waiter in waiters])
    assert resumed[2:] == [[0, 0, 0], [0, 0, 1], [0, 0, 1], [0, 1, 1], [0, 1, 1]]
    budget.give_back(1)
    assert [waiter.resumed for waiter in waiters] == [1, 1, 1]
    assert budget.missing == 0


def test_where_those_that_work_must_go_on_only_the_others_have_a_ceiling() -> None:
    budget = MemoryBudget(100, bounds_working=False)
    assert budget.new.bytes_max == 75
    assert min(budget.working.bytes_max, budget.finishing.bytes_max) > 1 << 60
