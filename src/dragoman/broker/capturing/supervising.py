"""One capture while this node runs it: its process is kept alive, and asked and told things.

    starting ── reports ──> what the process says ── ends ──> waiting ── later ──> starting …

A process that ends is started again, each time after twice as long unless it got on. `stop` asks it
to finish what it is at and kills it when that takes too long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from dragoman.broker.capturing.ports import CaptureRunner, RunningCapture, Wanted
from dragoman.broker.errors import CaptureNotRunning, CaptureRefused, Overloaded
from dragoman.broker.replica import Acknowledge
from dragoman.captures.control import (
    Done,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Status,
    Stop,
)
from dragoman.errors import DragomanError
from dragoman.limits import (
    CAPTURE_COMMAND_TIMEOUT_S,
    CAPTURE_COMMANDS_MAX,
    CAPTURE_RESTART_S_MAX,
    CAPTURE_RESTART_S_MIN,
    CAPTURE_SILENCE_S,
    CAPTURE_STOP_GRACE_S,
)
from dragoman.world import Handle, Scheduler

log = logging.getLogger("dragoman.captures")
_DOUBLED_MAX = 16


class Supervised:
    def __init__(self, scheduler: Scheduler, runner: CaptureRunner, wanted: Wanted) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self.wanted = wanted
        self.status = Status(state="starting")
        #: Since this node runs it.
        self.restarts = 0
        self._rows_before = 0
        #: Times that it ended soon after it had begun, without a row that it had captured.
        self._failures = 0
        self._began = 0.0
        self._process: RunningCapture | None = None
        self._timer: Handle | None = None
        self._watch: Handle | None = None
        self._on_stopped: list[Callable[[], None]] = []
        self._commands = 0
        self._pending: dict[str, tuple[Acknowledge, Handle]] = {}

    @property
    def rows(self) -> int:
        """Since this node runs it, whatever the number of processes."""
        return self._rows_before + self.status.rows

    @property
    def is_stopping(self) -> bool:
        return bool(self._on_stopped)

    # ---- the process

    def start(self) -> None:
        self._timer = None
        self._began = self._scheduler.time()
        objection = self._runner.objection()
        if objection:
            self._ended(objection)
            return
        self._process = self._runner.run(self.wanted, self._reported, self._ended)
        self._watch = self._scheduler.call_later(CAPTURE_SILENCE_S, self._silent)

    def _reported(self, report: Report) -> None:
        match report:
            case Status():
                self._listen()
                if report.state != self.status.state:
                    log.info("capture %s: %s", self.wanted.definition.name, report.state)
                # Without a connection it does not know, but this is still true.
                lsn = report.lsn or self.status.lsn
                self.status = msgspec.structs.replace(report, lsn=lsn)
            case Done():
                problem = CaptureRefused(report.problem) if report.problem else None
                self._answer(report.id, problem)

    def _listen(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = self._scheduler.call_later(CAPTURE_SILENCE_S, self._silent)

    def _silent(self) -> None:
        log.error(
            "capture %s: its process has said nothing for %.0f s and is ended",
            self.wanted.definition.name,
            CAPTURE_SILENCE_S,
        )
        self.kill()

    def _ended(self, problem: str) -> None:
        self._process = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for number in list(self._pending):
            self._answer(number, CaptureNotRunning(f"the capture ended meanwhile: {problem}"))
        self._cancel_timer()
        if self._on_stopped:
            told, self._on_stopped = self._on_stopped, []
            for each in told:
                each()
            return
        lived_s = self._scheduler.time() - self._began
        got_on = self.status.rows > 0 or lived_s >= CAPTURE_RESTART_S_MAX
        self._failures = 0 if got_on else self._failures + 1
        delay_s = CAPTURE_RESTART_S_MIN * 2 ** min(max(self._failures - 1, 0), _DOUBLED_MAX)
        delay_s = min(delay_s, CAPTURE_RESTART_S_MAX)
        self.restarts += 1
        self._rows_before += self.status.rows
        # What it waited for or failed at says more than that it is gone.
        problem = self.status.problem or problem
        self.status = msgspec.structs.replace(
            self.status, state="waiting", problem=problem, rows=0, rows_per_s=0.0
        )
        log.warning(
            "capture %s: %s; tried again in %.0f s", self.wanted.definition.name, problem, delay_s
        )
        self._timer = self._scheduler.call_later(delay_s, self._again)

    def _again(self) -> None:
        self.status = msgspec.structs.replace(self.status, state="starting", problem="")
        self.start()

    def stop(self, done: Callable[[], None]) -> None:
        """`done` comes when there is no process any more."""
        if self._process is None:
            self._cancel_timer()
            done()
            return
        self._on_stopped.append(done)
        if len(self._on_stopped) == 1:
            self._cancel_timer()
            self._process.send(Stop())
            self._timer = self._scheduler.call_later(CAPTURE_STOP_GRACE_S, self.kill)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def abandon(self) -> None:
        """End it at once and for good."""
        self._cancel_timer()
        self._on_stopped.append(lambda: None)
        self.kill()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- commands

    def set_paused(self, is_paused: bool) -> None:
        self.wanted = self.wanted._replace(is_paused=is_paused)
        if self._process is not None:
            self._process.send(Pause() if is_paused else Resume())
        elif self._timer is not None and not is_paused:
            # Whoever says so has done something about what was wrong.
            self._failures = 0
            self._cancel_timer()
            self._again()

    def tell(self, command: Rewind | Snapshot, done: Acknowledge) -> None:
        """`done` comes when the process has answered."""
        if self._process is None or self.is_stopping:
            why = self.status.problem or "its process starts or stops"
            raise CaptureNotRunning(
                f"capture {self.wanted.definition.name} does not run now: {why}"
            )
        if len(self._pending) >= CAPTURE_COMMANDS_MAX:
            raise Overloaded(f"{len(self._pending)} commands are waiting")
        self._commands += 1
        number = str(self._commands)
        timer = self._scheduler.call_later(CAPTURE_COMMAND_TIMEOUT_S, self._give_up, number)
        self._pending[number] = (done, timer)
        self._process.send(msgspec.structs.replace(command, id=number))

    def _give_up(self, number: str) -> None:
        why = self.status.problem or f"it is {self.status.state}"
        self._answer(
            number,
            CaptureNotRunning(
                f"capture {self.wanted.definition.name} has not done it yet: {why}; it will when "
                "it can, so do not ask again"
            ),
        )

    def _answer(self, number: str, error: DragomanError | None) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            done, timer = pending
            timer.cancel()
            done(error)
