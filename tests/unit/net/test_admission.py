"""Goal: the budget counts right, and all who wait for room are told once when there is some."""

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
    budget.wait(first)
    budget.wait(second)
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
    budget.wait(waiter)
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
    budget.wait(waiter)
    budget.forget(waiter)
    budget.forget(waiter)
    budget.give_back(100)
    assert waiter.resumed == 0


def test_giving_back_more_than_was_taken_is_a_bug_that_shows() -> None:
    budget = MemoryBudget(100)
    budget.take(1)
    with pytest.raises(AssertionError):
        budget.give_back(2)
