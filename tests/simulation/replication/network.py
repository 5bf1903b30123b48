"""Messages between the processes of a simulated cluster, and the processes' schedulers.

A message takes a while and arrives in order, unless its connection failed: then it is lost, or
arrives late, after a newer connection has been used. Directions between two processes can be cut. A
request is answered exactly once, or fails: at once when the other process is seen to be gone, else
after its time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dragoman.testing.sim.faults import PowerCut
from dragoman.testing.sim.scheduler import SimHandle, SimScheduler


class Handle:
    __slots__ = ("_inner", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        self._inner: SimHandle | None = None

    def cancel(self) -> None:
        self.is_cancelled = True


class ProcessScheduler:
    """The scheduler of one process: it can be paused, and it ends with the process."""

    def __init__(self, scheduler: SimScheduler, on_power_cut: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._on_power_cut = on_power_cut
        #: What runs on it.
        self.process: object = None
        self.is_dead = False
        self._is_paused = False
        self._held: list[tuple[Handle, Callable[..., object], tuple[object, ...]]] = []

    def time(self) -> float:
        return self._scheduler.time()

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        handle = Handle()
        self._scheduler.call_soon(self._run, handle, callback, args)
        return handle

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        handle = Handle()
        self._scheduler.call_later(delay, self._run, handle, callback, args)
        return handle

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        held, self._held = self._held, []
        for each in held:
            self._scheduler.call_soon(self._run, *each)

    def _run(
        self, handle: Handle, callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        if self.is_dead or handle.is_cancelled:
            return
        if self._is_paused:
            self._held.append((handle, callback, args))
            return
        try:
            callback(*args)
        except PowerCut:
            self._on_power_cut()


class Network:
    def __init__(self, scheduler: SimScheduler, random: Random) -> None:
        self._scheduler = scheduler
        self._random = random
        self.loss_rate = 0.0
        self.late_rate = 0.0
        #: The same, for messages to one process only.
        self.late_rates: dict[int, float] = {}
        self.slow_s = 0.003
        self._cuts: set[tuple[int, int]] = set()
        self._arrivals: dict[tuple[int, int], float] = {}
        #: Schedulers of the processes that are up, by number.
        self.processes: dict[int, ProcessScheduler] = {}

    def cut(self, source: int, target: int) -> None:
        self._cuts.add((source, target))

    def heal(self) -> None:
        self._cuts.clear()

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def send(self, source: int, target: int, deliver: Callable[[], None]) -> bool:
        """`deliver` runs in the target's process. False: the sender sees that it will not."""
        random = self._random
        process = self.processes.get(target)
        if process is None:
            return False
        if (source, target) in self._cuts or random.random() < self.loss_rate:
            return True
        now = self._scheduler.time()
        way = (source, target)
        if random.random() < self.late_rates.get(target, self.late_rate):
            at = now + random.uniform(0.0, 3.0)
        else:
            at = max(now + random.uniform(0.0002, self.slow_s), self._arrivals.get(way, 0.0))
            self._arrivals[way] = at
        self._scheduler.call_at(at, self._arrive, process, way, deliver)
        return True

    def _arrive(
        self, process: ProcessScheduler, way: tuple[int, int], deliver: Callable[[], None]
    ) -> None:
        if not process.is_dead and way not in self._cuts:
            process.call_soon(deliver)

    def request(
        self,
        source: int,
        target: int,
        handle: Callable[[Callable[[object], None]], None],
        done: Callable[[object | None], None],
        seconds: float,
    ) -> None:
        """`handle` runs at the target and answers; `done` runs at the source, with None at last."""
        process = self.processes[source]
        is_done = False

        def finish(answer: object | None) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                done(answer)

        def answer(reply: object) -> None:
            # The next life of the process did not ask.
            if self.processes.get(source) is process:
                self.send(target, source, lambda: finish(reply))

        if self.send(source, target, lambda: handle(answer)):
            process.call_later(seconds, finish, None)
        else:
            process.call_later(self._random.uniform(0.001, 0.01), finish, None)
