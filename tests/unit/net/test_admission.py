"""Goal: the budget counts right, and all who wait for room are called once when there is some. The
connections of one kind never have more descriptors than their share, and one.
"""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from dragoman.net.admission import DescriptorShare, MemoryBudget


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


# ---- descriptors


class Process:
    """Descriptors as a system assigns them, and connections that are closed a turn later."""

    def __init__(self, *, highest: int, has_idle: bool = True) -> None:
        self.share = DescriptorShare(lambda: self.highest, self._give_way)
        self.highest = highest
        self.has_idle = has_idle
        self.open: dict[int, Accepted] = {}

    def accept(self) -> Accepted:
        number = next(each for each in range(1000) if each not in self.open)
        made = self.open[number] = Accepted(number)
        if not self.share.admits(cast(asyncio.BaseTransport, made)):
            made.is_closed = True
        return made

    def _give_way(self) -> bool:
        """Close the oldest connection, as the listener of HTTP does."""
        oldest = next((each for each in self.open.values() if not each.is_closed), None)
        if oldest is None or not self.has_idle:
            return False
        oldest.is_closed = True
        return True

    def turn(self) -> None:
        self.open = {number: each for number, each in self.open.items() if not each.is_closed}


class Accepted:
    def __init__(self, number: int) -> None:
        self._number = number
        self.is_closed = False

    def get_extra_info(self, name: str) -> Accepted:
        assert name == "socket"
        return self

    def fileno(self) -> int:
        return self._number

    def is_closing(self) -> bool:
        return self.is_closed


def test_connections_that_replace_others_do_not_grow_in_number() -> None:
    process = Process(highest=9)
    for _ in range(100):
        assert not process.accept().is_closed
        process.turn()
        assert len(process.open) <= 10


def test_the_last_of_a_burst_do_not_grow_in_number_afterwards() -> None:
    process = Process(highest=9)
    for _ in range(50):
        process.accept()
    process.turn()
    for _ in range(100):
        process.accept()
        process.turn()
        assert len(process.open) <= 10


def test_a_larger_share_has_room_again() -> None:
    process = Process(highest=9)
    for _ in range(20):
        process.accept()
        process.turn()
    process.highest = 19
    for _ in range(30):
        process.accept()
        process.turn()
    assert len(process.open) == 20


def test_a_connection_within_the_share_stays_although_none_gives_way() -> None:
    process = Process(highest=9)
    for _ in range(11):
        process.accept()
    process.turn()
    process.has_idle = False
    # The number of the one that gave way is free.
    assert not process.accept().is_closed
    assert process.accept().is_closed
