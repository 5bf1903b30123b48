"""Long work of many requests on one loop, a slice at a time.

A request that names tens of thousands of things takes a tenth of a second, in which no other client
is answered and other nodes may take this one for gone. So such work is written as *steps*: a
generator that yields, after each thing done, how many items that was worth, and returns its result.
An item is a few microseconds.

What all requests of a node do in one loop turn is bounded, however many there are: steps run at
once while the turn has items left, and otherwise wait for the next turn. Those that wait take
turns, a quantum each, so that short work is done soon behind long work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

from dragoman.errors import DragomanError
from dragoman.limits import WORK_ITEMS_PER_QUANTUM, WORK_ITEMS_PER_TURN
from dragoman.outcome import Outcome
from dragoman.world import Scheduler

Result = TypeVar("Result")
#: Yields what was done since it yielded last, in items; returns the result.
Steps: TypeAlias = Generator[int, None, Result]


class _Work(Generic[Result]):
    __slots__ = ("is_wanted", "outcome", "steps")

    def __init__(self, steps: Steps[Result], is_wanted: Callable[[], bool]) -> None:
        self.steps = steps
        self.is_wanted = is_wanted
        self.outcome: Outcome[Result] = Outcome()

    def run(self, items_max: int) -> tuple[bool, int]:
        """Work until it is over or so many items are done: whether it is over, and how many."""
        items = 0
        if not self.is_wanted():
            self.steps.close()
            return True, items
        try:
            while items < items_max:
                items += next(self.steps)
        except StopIteration as stop:
            self.outcome.succeed(stop.value)
        except DragomanError as error:
            self.outcome.fail(error)
        else:
            return False, items
        return True, items


class WorkQueue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[_Work[object]] = deque()
        #: What may still be done in this loop turn.
        self._left = WORK_ITEMS_PER_TURN
        self._is_turn_counted = False

    def __len__(self) -> int:
        return len(self._waiting)

    def run(
        self, steps: Steps[Result], is_wanted: Callable[[], bool] = lambda: True
    ) -> Outcome[Result]:
        """The result, or the `DragomanError` that a step raised. Settled at once if there is room
        for all of the work in this turn; never if the work is no longer wanted, so that only
        callbacks may wait for it.
        """
        work = _Work(steps, is_wanted)
        if self._left > 0 and not self._waiting:
            self._count_turn()
            is_over, items = work.run(self._left)
            self._left -= items
            if is_over:
                return work.outcome
        self._waiting.append(work)  # type: ignore[arg-type]
        self._count_turn()
        return work.outcome

    def _count_turn(self) -> None:
        if not self._is_turn_counted:
            self._is_turn_counted = True
            self._scheduler.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_turn_counted = False
        self._left = WORK_ITEMS_PER_TURN
        waiting = self._waiting
        try:
            while waiting and self._left > 0:
                work = waiting.popleft()
                is_over, items = work.run(min(WORK_ITEMS_PER_QUANTUM, self._left))
                # Work that is over, or does nothing, has cost something, too.
                self._left -= max(items, 1)
                if not is_over:
                    waiting.append(work)
        finally:
            # Also when one piece of work broke: the others would wait for the next request.
            if waiting or self._left < WORK_ITEMS_PER_TURN:
                self._count_turn()
