"""Long work of many requests on one loop, a slice at a time.

A request with tens of thousands of items takes a tenth of a second, during which no other client is
answered and other nodes may consider this one dead. Such work is therefore written as *steps*: a
generator that yields the number of items done since its last yield, and returns its result. An item
takes a few microseconds.

The work of all requests in one loop turn is bounded: steps run at once while the turn has items
left, and otherwise wait for the next turn. Waiting work is scheduled round-robin, a quantum each,
so that short work is not delayed by long work.
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
#: Yields the number of items since the last yield; returns the result.
Steps: TypeAlias = Generator[int, None, Result]


class _Work(Generic[Result]):
    __slots__ = ("is_wanted", "outcome", "steps")

    def __init__(self, steps: Steps[Result], is_wanted: Callable[[], bool]) -> None:
        self.steps = steps
        self.is_wanted = is_wanted
        self.outcome: Outcome[Result] = Outcome()

    def run(self, items_max: int) -> tuple[bool, int]:
        """Work until the end or this many items: (whether it has ended, number of items)."""
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
        #: Items left in this loop turn.
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
                # Work that has ended, or does nothing, has a cost, too.
                self._left -= max(items, 1)
                if not is_over:
                    waiting.append(work)
        finally:
            # Even when one piece of work failed: the others would otherwise wait for the next
            # request.
            if waiting or self._left < WORK_ITEMS_PER_TURN:
                self._count_turn()
