"""Virtual time: `SimScheduler` runs callbacks one after the other, `SimClock` is its clock port.

Time stands still while callbacks run and jumps to the next timer when none is ready. Callbacks that
are ready at the same moment run in the order they were scheduled, or, with a random source, in an
order drawn from it: code must not depend on more than the loop promises. The methods are those of
an asyncio loop.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from dragoman.limits import SIM_STEPS_MAX

#: 2024-01-01 00:00:00 UTC, so far from 0 that a forgotten conversion shows.
_START_WALL_MS = 1_704_067_200_000


class SimHandle:
    __slots__ = ("_args", "_callback", "_cancelled", "_when")

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        """The time of the callback, on the scheduler's clock."""
        return self._when

    def _run(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)


class SimScheduler:
    def __init__(self, random: Random | None = None) -> None:
        self._random = random
        self._now = 0.0
        self._scheduled = 0
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: object) -> SimHandle:
        handle = SimHandle(self._now, callback, args)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> SimHandle:
        return self.call_at(self._now + max(0.0, delay), callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> SimHandle:
        handle = SimHandle(when, callback, args)
        self._scheduled += 1
        heapq.heappush(self._timers, (when, self._scheduled, handle))
        return handle

    def run_ready(self, steps_max: int = SIM_STEPS_MAX) -> int:
        """Run what is ready now, and what becomes ready by that, without moving time.

        Returns the number of callbacks.
        """
        return self._run(self._now, steps_max)

    def advance(self, seconds: float, steps_max: int = SIM_STEPS_MAX) -> int:
        """Let time pass and run callbacks, each at its time.

        Returns the number of callbacks.
        """
        end = self._now + seconds
        steps = self._run(end, steps_max)
        self._now = end
        return steps

    def run_until_idle(self, steps_max: int = SIM_STEPS_MAX) -> int:
        """Run until nothing is ready and no timer is set, however far away. Returns how many ran.

        A timer that sets itself again never ends; the bound on steps raises `RuntimeError` then.
        """
        return self._run(float("inf"), steps_max)

    def _run(self, until: float, steps_max: int) -> int:
        steps = 0
        while True:
            self._collect_due()
            if not self._ready:
                if not self._timers or self._timers[0][0] > until:
                    return steps
                self._now = max(self._now, self._timers[0][0])
                continue
            if steps >= steps_max:
                raise RuntimeError(f"still not idle after {steps} callbacks at {self._now} s")
            handle = self._next_ready()
            if not handle.cancelled():
                steps += 1
                handle._run()

    def _collect_due(self) -> None:
        timers = self._timers
        while timers and (timers[0][0] <= self._now or timers[0][2].cancelled()):
            self._ready.append(heapq.heappop(timers)[2])

    def _next_ready(self) -> SimHandle:
        ready = self._ready
        if self._random is not None and len(ready) > 1:
            chosen = self._random.randrange(len(ready))
            ready.rotate(-chosen)
            handle = ready.popleft()
            ready.rotate(chosen)
            return handle
        return ready.popleft()


class HasTime(Protocol):
    def time(self) -> float: ...


class SimClock:
    """Reads a scheduler's time. The wall clock can be moved by hand, the monotonic one cannot."""

    def __init__(self, scheduler: HasTime, start_wall_ms: int = _START_WALL_MS) -> None:
        self._scheduler = scheduler
        self._wall_ms_at_zero = start_wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms_at_zero + int(self._scheduler.time() * 1000)

    def monotonic(self) -> float:
        return self._scheduler.time()

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forwards or back."""
        self._wall_ms_at_zero += milliseconds
