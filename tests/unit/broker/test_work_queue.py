"""Goal: what a node's requests do in one loop turn is bounded, and short work is not behind long.

Method: steps that count themselves, on a scheduler whose turns the test makes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import WORK_ITEMS_PER_QUANTUM, WORK_ITEMS_PER_TURN
from dragoman.world import Handle


class Turns:
    """A scheduler that runs one turn at a time."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], object]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        self._ready.append(lambda: callback(*args))
        return _Handle()

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        raise NotImplementedError

    def turn(self) -> None:
        ready, self._ready = self._ready, []
        for each in ready:
            each()

    @property
    def is_idle(self) -> bool:
        return not self._ready


class _Handle:
    def cancel(self) -> None:
        raise NotImplementedError


class Counted:
    """Work of so many items, and what became of it."""

    def __init__(self, items: int, error: DragomanError | None = None, each: int = 1) -> None:
        self.done_items = 0
        self.results: list[object] = []
        self.is_wanted = True
        self._items = items
        self._error = error
        self._each = each

    def steps(self) -> Steps[str]:
        while self.done_items < self._items:
            self.done_items += self._each
            yield self._each
        if self._error is not None:
            raise self._error
        return "result"

    def run(self, queue: WorkQueue) -> Counted:
        queue.run(self.steps(), lambda: self.is_wanted).then(self.results.append)
        return self


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def queue(turns: Turns) -> WorkQueue:
    return WorkQueue(turns)


def test_short_work_is_done_at_once(queue: WorkQueue, turns: Turns) -> None:
    work = Counted(WORK_ITEMS_PER_TURN - 1).run(queue)
    assert work.results == ["result"]
    turns.turn()
    turns.turn()
    assert turns.is_idle


def test_long_work_takes_as_many_turns_as_it_needs(queue: WorkQueue, turns: Turns) -> None:
    work = Counted(10 * WORK_ITEMS_PER_TURN).run(queue)
    done = [work.done_items]
    while not work.results:
        turns.turn()
        done.append(work.done_items)
    grown = [after - before for before, after in pairwise(done)]
    assert done[0] == WORK_ITEMS_PER_TURN
    assert max(grown) == WORK_ITEMS_PER_TURN
    assert work.results == ["result"]
    assert len(queue) == 0


def test_all_work_together_is_bounded_in_a_turn(queue: WorkQueue, turns: Turns) -> None:
    works = [Counted(5 * WORK_ITEMS_PER_TURN).run(queue) for _ in range(20)]
    before = sum(work.done_items for work in works)
    assert before == WORK_ITEMS_PER_TURN
    for _ in range(5):
        turns.turn()
        after = sum(work.done_items for work in works)
        assert after - before == WORK_ITEMS_PER_TURN
        before = after


def test_short_work_behind_long_work_waits_one_round_only(queue: WorkQueue, turns: Turns) -> None:
    long = Counted(1000 * WORK_ITEMS_PER_TURN).run(queue)
    short = Counted(1).run(queue)
    assert short.results == []
    turns.turn()
    assert short.results == ["result"]
    assert long.done_items <= 2 * WORK_ITEMS_PER_TURN


def test_works_take_turns_by_quanta(queue: WorkQueue, turns: Turns) -> None:
    first, second = (Counted(100 * WORK_ITEMS_PER_TURN).run(queue) for _ in range(2))
    done = first.done_items
    turns.turn()
    assert first.done_items - done == second.done_items == WORK_ITEMS_PER_TURN // 2
    assert WORK_ITEMS_PER_TURN % (2 * WORK_ITEMS_PER_QUANTUM) == 0


def test_error_of_a_step_is_the_result(queue: WorkQueue, turns: Turns) -> None:
    error = DecodeError("no")
    soon = Counted(1, error).run(queue)
    late = Counted(2 * WORK_ITEMS_PER_TURN, error).run(queue)
    assert soon.results == [error]
    while not late.results:
        turns.turn()
    assert late.results == [error]


def test_unwanted_work_ends_without_a_callback(queue: WorkQueue, turns: Turns) -> None:
    work = Counted(10 * WORK_ITEMS_PER_TURN).run(queue)
    work.is_wanted = False
    done = work.done_items
    turns.turn()
    assert (work.done_items, work.results, len(queue)) == (done, [], 0)


def test_one_step_that_is_worth_many_turns_ends_the_turn(queue: WorkQueue, turns: Turns) -> None:
    large = Counted(6 * WORK_ITEMS_PER_TURN, each=3 * WORK_ITEMS_PER_TURN).run(queue)
    assert large.done_items == 3 * WORK_ITEMS_PER_TURN
    turns.turn()
    assert large.done_items == 6 * WORK_ITEMS_PER_TURN
    turns.turn()
    assert large.results == ["result"]


def test_work_that_breaks_leaves_the_rest_to_be_done() -> None:
    """A fault in one request is reported by the loop; the others still get their answers."""
    turns = Turns()
    queue = WorkQueue(turns)

    def long() -> Steps[None]:
        for _ in range(3 * WORK_ITEMS_PER_TURN):
            yield 1

    def broken() -> Steps[None]:
        raise ZeroDivisionError
        yield 1

    done: list[object] = []
    queue.run(long()).then(done.append)
    queue.run(broken()).then(done.append)
    queue.run(long()).then(done.append)
    with pytest.raises(ZeroDivisionError):
        turns.turn()
    while not turns.is_idle:
        turns.turn()
    assert (done, len(queue)) == ([None, None], 0)
