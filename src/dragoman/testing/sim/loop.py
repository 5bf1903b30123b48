"""Many event loops on one virtual time: each node and each client of a simulation has its own.

A `SimLoop` is an asyncio loop without a selector. Its connections are those of the `SimNetwork`;
its time is the world's, at its own speed. `SimWorld` picks the loop of the next turn from the
seeded random source, and lets time jump to the next timer when no loop is ready. Within a loop,
callbacks keep asyncio's order: programs may rely on that. Between loops there is no order, as
between processes.

A paused loop takes no turns while time passes (SIGSTOP, a long stall of the machine). A halted one
(a crash) never takes a turn again: its timers, tasks and connections are dropped, and none of its
code runs any more, clean-ups included.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from random import Random
from typing import Any, NoReturn, TypeVar

from dragoman.limits import SIM_STEPS_MAX
from dragoman.testing.sim.network import SimNetwork

Result = TypeVar("Result")


class _NoSelector:
    """Has no external events: a turn runs the ready callbacks, and never waits."""

    def select(self, _timeout: float | None) -> list[object]:
        return []


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one process on one host."""

    # Attributes of asyncio's own loops that its stubs lack.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int
    _run_once: Callable[[], None]

    def __init__(self, world: SimWorld, host: str, *, speed: float = 1.0) -> None:
        super().__init__()
        self.host = host
        self.is_paused = False
        self.is_halted = False
        self._world = world
        #: The speed of its clock, in its own seconds per second of the world.
        self._speed = speed
        self._selector = _NoSelector()
        #: Failures that were never awaited; a simulation should end with none.
        self.failures: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.failures.append(context))
        self._clock_resolution = 1e-9

    # ---- time

    def time(self) -> float:
        return self._world.now * self._speed

    def next_due(self) -> float | None:
        """The time, on the world's clock, of this loop's next turn; None: never."""
        if self.is_halted or self.is_paused:
            return None
        if self._ready:
            return self._world.now
        while self._scheduled and self._scheduled[0].cancelled():
            # As asyncio does for the handles that it finds itself.
            handle = self._scheduled[0]
            handle._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1
            heappop(self._scheduled)
        return self._scheduled[0].when() / self._speed if self._scheduled else None

    def turn(self) -> None:
        """One round of asyncio: everything that is ready now."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()
        finally:
            asyncio._set_running_loop(None)

    def halt(self) -> None:
        self.is_halted = True
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            assert inspect.iscoroutine(coroutine)
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                # Python would warn that it was never awaited.
                coroutine.close()
        self._ready.clear()
        self._scheduled.clear()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, **more: Any
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, **more)
        if self.is_halted:
            # Something outside still refers to an object of a crashed process.
            self._ready.clear()
        return handle

    def call_soon_threadsafe(self, *_args: Any, **_more: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("there are no threads in a simulation")

    def run_in_executor(self, *_args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("there are no threads in a simulation")

    def _process_events(self, event_list: list[object]) -> None:
        assert not event_list

    def _write_to_self(self) -> None: ...

    def __del__(self) -> None:
        """Releases nothing: loops of crashed processes are left as they are."""

    # ---- connections

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, **_options: Any
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Host names are addresses."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, Any]:
        return await self._world.network.connect(self, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], Any],
        host: str,
        port: int,
        *,
        start_serving: bool = True,
        **_options: Any,
    ) -> Any:
        return self._world.network.listen(
            self, protocol_factory, host, port, start_serving=start_serving
        )


class SimWorld:
    """Time, chance, the network, and the loops that share them."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.loops: list[SimLoop] = []
        self.network = SimNetwork(self)
        #: Scheduled events of the world: deliveries, faults.
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self.turns = 0

    def loop(self, host: str, *, speed: float = 1.0) -> SimLoop:
        made = SimLoop(self, host, speed=speed)
        self.loops.append(made)
        return made

    def crash(self, loop: SimLoop, *, silently: bool = False) -> None:
        """The process is dead; the system resets its connections, unless the machine is dead,
        too.
        """
        loop.halt()
        self.loops.remove(loop)
        self.network.crashed(loop, silently=silently)

    def at(self, when: float, event: Callable[[], None]) -> None:
        self._event_count += 1
        heappush(self._events, (when, self._event_count, event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self.now + seconds, event)

    # ---- running

    def run(self, work: Coroutine[Any, Any, Result], loop: SimLoop, seconds: float) -> Result:
        """The result of the work. Raises `TimeoutError` when it takes too long."""
        task = self.start(work, loop)
        self.run_until(task.done, seconds)
        if not task.done():
            raise TimeoutError(f"not done after {seconds:g} simulated seconds")
        return task.result()

    def start(self, work: Coroutine[Any, Any, Result], loop: SimLoop) -> asyncio.Task[Result]:
        asyncio._set_running_loop(loop)
        try:
            return loop.create_task(work)
        finally:
            asyncio._set_running_loop(None)

    def run_until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Run all loops until the condition holds, or until the time has passed."""
        end = self.now + seconds
        steps = 0
        while not is_done():
            if not self.step(end):
                self.now = max(self.now, end)
                return is_done()
            steps += 1
            if steps > SIM_STEPS_MAX:
                raise RuntimeError(f"still not done after {steps} turns at {self.now} s")
        return True

    def step(self, end: float) -> bool:
        """Run one turn of one loop, or one event of the world; False: there is none before
        `end`.
        """
        soonest = self._events[0][0] if self._events else None
        ready: list[SimLoop] = []
        for loop in self.loops:
            due = loop.next_due()
            if due is None:
                continue
            if due <= self.now:
                ready.append(loop)
            if soonest is None or due < soonest:
                soonest = due
        if soonest is None or soonest > end:
            return False
        self.now = max(self.now, soonest)
        if self._events and self._events[0][0] <= self.now:
            heappop(self._events)[2]()
            return True
        if not ready:
            # Time has jumped; a loop whose clock was rounded down still gets its turn.
            ready = [each for each in self.loops if _is_due(each, self.now)]
        chosen = ready[self.random.randrange(len(ready))] if len(ready) > 1 else ready[0]
        self.turns += 1
        chosen.turn()
        return True


def _is_due(loop: SimLoop, now: float) -> bool:
    due = loop.next_due()
    return due is not None and due <= now + 1e-9
