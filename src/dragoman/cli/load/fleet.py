"""The worker processes of a benchmark: started, stopped and added up from the first process."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, NamedTuple

import msgspec

from dragoman.cli.load import worker
from dragoman.cli.load.plan import GRACE_S, Plan
from dragoman.cli.load.tally import Tally, total
from dragoman.cli.status import CommandError

#: Workers that are connected wait this long before they start together.
_LEAD_S: Final = 0.1
#: Preparing batches and connecting.
_READY_S_MAX: Final = 60.0
_STOP_S_MAX: Final = 15.0
#: Called with the seconds since the start and the sum of all workers.
OnProgress = Callable[[float, Tally], None]


class Outcome(NamedTuple):
    tally: Tally
    is_interrupted: bool


def measure(plan: Plan, on_progress: OnProgress) -> Outcome:
    """Run a plan. Ctrl-C ends it early, with what was measured until then.

    Raises `CommandError` if a worker fails.
    """
    fleet = _Fleet(plan)
    try:
        start = fleet.start()
        is_interrupted = False
        try:
            fleet.follow(lambda tally: on_progress(time.monotonic() - start, tally))
        except KeyboardInterrupt:
            is_interrupted = True
            fleet.stop()
        return Outcome(fleet.tally, is_interrupted)
    finally:
        fleet.kill()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Every signal that ends a benchmark does it as Ctrl-C does, so that its topics are deleted."""
    before = {}
    for number in worker.ENDS:
        # What a parent, such as nohup, has ignored stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fill(plan: Plan, records: int) -> None:
    """Write records to the plan's topics, without measuring it. Raises `CommandError`."""
    producing = msgspec.structs.replace(
        plan, mode="produce", acks="all", records=records, duration_s=None, warm_up_s=0.0
    )
    outcome = measure(producing, lambda _seconds, _tally: None)
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    if outcome.tally.records < records:
        errors = ", ".join(outcome.tally.errors)
        raise CommandError(
            f"only {outcome.tally.records} of {records} records could be written: {errors}"
        )


class _Fleet:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Not forked: a client's event loop and the threads of a process cannot be shared.
        context = multiprocessing.get_context("spawn")
        self._processes: list[BaseProcess] = []
        self._controls: list[Connection] = []
        self._tallies: dict[Connection, Tally] = {}
        self._running: set[Connection] = set()
        for number in range(plan.processes):
            here, there = context.Pipe()
            process = context.Process(target=worker.run, args=(there, plan, number), daemon=True)
            process.start()
            # Only the worker's end: it closes when the worker ends.
            there.close()
            self._processes.append(process)
            self._controls.append(here)

    @property
    def tally(self) -> Tally:
        return total(list(self._tallies.values()))

    def start(self) -> float:
        """Start all workers at one time, which is returned."""
        waiting = set(self._controls)
        deadline = time.monotonic() + _READY_S_MAX
        while waiting:
            ready = wait(waiting, timeout=deadline - time.monotonic())
            if not ready:
                raise CommandError(f"the clients were not ready within {_READY_S_MAX:g} s")
            for control in ready:
                assert isinstance(control, Connection)
                self._receive(control)
                waiting.discard(control)
        at = time.monotonic() + _LEAD_S
        for control in self._controls:
            control.send(worker.Start(at))
        self._running = set(self._controls)
        return at

    def follow(self, on_tally: Callable[[Tally], None], seconds_max: float | None = None) -> None:
        """Receive until all workers have ended."""
        if seconds_max is None and self._plan.duration_s is not None:
            seconds_max = self._plan.warm_up_s + self._plan.duration_s + GRACE_S + _STOP_S_MAX
        deadline = None if seconds_max is None else time.monotonic() + seconds_max
        while self._running:
            left = None if deadline is None else deadline - time.monotonic()
            ready = wait(self._running, timeout=left)
            if not ready:
                raise CommandError("a process of the benchmark does not end")
            for control in ready:
                assert isinstance(control, Connection)
                self._receive(control)
            on_tally(self.tally)

    def _receive(self, control: Connection) -> None:
        try:
            message: worker.Message = control.recv()
        except EOFError:
            raise CommandError("a process of the benchmark has ended unexpectedly") from None
        match message:
            case worker.Failed(text):
                raise CommandError(text)
            case worker.Progress(tally, is_last):
                self._tallies[control] = tally
                if is_last:
                    self._running.discard(control)
            case worker.Ready():
                pass

    def stop(self) -> None:
        """End the measurement, and receive the rest."""
        for control in self._running:
            control.send(worker.Stop())
        self.follow(lambda _: None, _STOP_S_MAX)

    def kill(self) -> None:
        for control in self._controls:
            control.close()
        for process in self._processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
