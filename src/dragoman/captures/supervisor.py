"""The supervisor starts, watches, restarts and stops the processes of this node's captures.

A node runs the captures in the metadata whose partition of the topic of positions it leads. At each
change of either, processes are started and stopped until they match. A process that ends is
restarted:

    starting ── reports ──> the reported state ── ends ──> waiting ── after a delay ──> starting …

The delay doubles unless the process made progress. To stop a process, the supervisor sends `Stop`,
so that it finishes its transaction, and kills it if that takes too long.

Processes are behind a port, `CaptureRunner`, which `captures/processes.py` implements on a real
node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import CaptureNotRunning, CaptureRefused, CoordinatorLoading, Overloaded
from dragoman.captures.control import (
    Command,
    DatabaseTable,
    Done,
    Finding,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Status,
    Stop,
)
from dragoman.captures.definition import Definition, secured_definition
from dragoman.captures.positions import Positions
from dragoman.captures.rights import CaptureRights
from dragoman.captures.stored import opened, owner_of
from dragoman.cluster.events import Capture
from dragoman.errors import ConfigError, DragomanError
from dragoman.limits import (
    CAPTURE_COMMAND_TIMEOUT_S,
    CAPTURE_COMMANDS_MAX,
    CAPTURE_RESTART_S_MAX,
    CAPTURE_RESTART_S_MIN,
    CAPTURE_SILENCE_S,
    CAPTURE_STOP_GRACE_S,
)
from dragoman.outcome import Outcome, failed, gather, ignore, pause, start, succeeded
from dragoman.security.secrets import ClusterKeys
from dragoman.world import Handle, Scheduler

TakeReport: TypeAlias = Callable[[Report], None]
#: Receives the reason for the end of a process, as a text for operators.
TakeEnd: TypeAlias = Callable[[str], None]
Findings: TypeAlias = tuple[Finding, ...]
Tables: TypeAlias = tuple[DatabaseTable, ...]


class Assignment(NamedTuple):
    """A capture that a node has to run."""

    definition: Definition
    is_paused: bool
    incarnation: str
    #: What the login of its process depends on: a process with another one is replaced.
    login: tuple[str, ...] = ()


class CaptureProcess(Protocol):
    """A process that captures."""

    def send(self, command: Command, /) -> None:
        """Has no effect once the process has ended."""
        ...

    def kill(self) -> None: ...


class CaptureRunner(Protocol):
    def objection(self) -> str:
        """The reason why this node cannot run captures, with the remedy, or an empty text."""
        ...

    def run(self, assignment: Assignment, report: TakeReport, ended: TakeEnd, /) -> CaptureProcess:
        """Start a process. `ended` is called exactly once, and `report` never after it."""
        ...

    def check(self, definition: Definition, /) -> Outcome[Findings]:
        """Check whether the database can be captured."""
        ...

    def tables(self, definition: Definition, /) -> Outcome[Tables]:
        """All tables of the database, or the first `CAPTURE_TABLES_LISTED_MAX` and one."""
        ...

    def clean_up(self, definition: Definition, /) -> Outcome[Findings]:
        """Drop slot and publication of a capture. A failure is a finding, a problem."""
        ...


class NoRunner:
    """The runner of a node that starts no processes."""

    def objection(self) -> str:
        return "this node cannot run captures"

    def run(
        self, _assignment: Assignment, _report: TakeReport, _ended: TakeEnd, /
    ) -> CaptureProcess:
        raise CaptureRefused(self.objection())

    def check(self, _definition: Definition, /) -> Outcome[Findings]:
        return failed(CaptureRefused(self.objection()))

    clean_up = check

    def tables(self, _definition: Definition, /) -> Outcome[Tables]:
        return failed(CaptureRefused(self.objection()))


log = logging.getLogger("dragoman.captures")
_DOUBLED_MAX = 16


class CaptureState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a capture on the node that runs it."""

    name: str
    #: -1: no node runs the capture.
    node: int
    status: Status
    #: Restarts of the process and captured rows, since the node runs the capture.
    restarts: int = 0
    rows: int = 0


class Supervisor:
    def __init__(
        self,
        context: NodeContext,
        positions: Positions,
        keys: ClusterKeys,
        rights: CaptureRights,
    ) -> None:
        self._context = context
        self._rights = rights
        self._keys = keys
        self._scheduler = context.scheduler
        self._positions = positions
        #: The composition root replaces it on a node that can start processes.
        self.runner: CaptureRunner = NoRunner()
        self._running: dict[str, SupervisedCapture] = {}
        #: The captures that this node should run and cannot, with the reason.
        self._unreadable: dict[str, str] = {}
        #: Captures that are being removed.
        self._withheld: set[str] = set()
        self._is_due = False
        self._is_closed = False

    # ---- which captures run

    def changed(self) -> None:
        """Notifies of changed captures or leaders. Processes are started and stopped later."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._scheduler.call_soon(self._reconcile)

    def _reconcile(self) -> None:
        self._is_due = False
        if self._is_closed or isinstance(self.runner, NoRunner):
            return
        wanted = {
            name: event
            for name, event in self._context.image.captures.items()
            if self._positions.is_led(name) and name not in self._withheld
        }
        self._unreadable = {n: why for n, why in self._unreadable.items() if n in wanted}
        for name, running in self._running.items():
            if name not in wanted and not running.is_stopping:
                start(self._stop(running)).then(ignore)
        for name, event in wanted.items():
            self._reconcile_one(name, event)

    def _reconcile_one(self, name: str, event: Capture) -> None:
        running = self._running.get(name)
        allowed_hosts = self._context.settings.capture_allowed_hosts
        try:
            definition = secured_definition(opened(event, self._keys), allowed_hosts)
            problem = self._rights.objection(definition, owner_of(event))
        except ConfigError as error:
            problem = str(error)
        if problem:
            if self._unreadable.get(name) != problem:
                fields = {"capture": name}
                log.error("capture %s cannot run here: %s", name, problem, extra=fields)
            self._unreadable[name] = problem
            if running is not None and not running.is_stopping:
                start(self._stop(running)).then(ignore)
            return
        self._unreadable.pop(name, None)
        owner = owner_of(event)
        login = (owner.principal, owner.user, self._keys.current)
        assignment = Assignment(definition, event.is_paused, event.incarnation, login)
        if running is None:
            running = SupervisedCapture(name, self._scheduler, self.runner, assignment)
            self._running[name] = running
            running.start()
        elif not running.is_stopping and running.assignment != assignment:
            if running.assignment._replace(is_paused=assignment.is_paused) == assignment:
                running.set_paused(assignment.is_paused)
            else:
                start(self._stop(running)).then(ignore)

    async def _stop(self, running: SupervisedCapture) -> None:
        # In the next loop turn: the caller may be iterating over the captures that run.
        await pause(self._scheduler, 0)
        await running.stop()
        if self._running.get(running.name) is running:
            del self._running[running.name]
        self.changed()

    # ---- captures that are removed

    def is_withheld(self, name: str) -> bool:
        """Whether a capture is being removed."""
        return name in self._withheld

    async def withhold(self, name: str) -> None:
        """Stop a capture, and do not start it again before `release`."""
        self._withheld.add(name)
        running = self._running.get(name)
        if running is not None:
            await self._stop(running)

    def release(self, name: str) -> None:
        """Start a withheld capture again, if it still exists."""
        self._withheld.discard(name)
        self.changed()

    # ---- the end of the node

    async def stop_all(self) -> None:
        """End the processes while the node can still commit their last transactions."""
        self._is_closed = True
        await gather([each.stop() for each in list(self._running.values())])

    def kill_all(self) -> None:
        """End the processes as if the node had been killed."""
        self._is_closed = True
        for each in self._running.values():
            each.abandon()

    # ---- state and commands

    def states(self, names: Iterable[str]) -> tuple[CaptureState, ...]:
        """The states of those named captures that this node runs, or should run."""
        node = self._context.node_id
        found = []
        for name in names:
            running = self._running.get(name)
            if running is not None and name not in self._unreadable:
                found.append(running.state(node))
            elif name in self._unreadable:
                status = Status(state="failed", problem=self._unreadable[name])
                found.append(CaptureState(name=name, node=node, status=status))
        return tuple(found)

    def all_states(self) -> tuple[CaptureState, ...]:
        return self.states(self._running)

    async def command(self, name: str, command: Resume | Rewind | Snapshot) -> None:
        """Returns when the capture has executed the command, or has started to."""
        running = self._running.get(name)
        if running is None:
            if name in self._unreadable:
                raise CaptureRefused(self._unreadable[name])
            raise CoordinatorLoading(f"capture {name} is starting")
        if isinstance(command, Resume):
            running.set_paused(False)
        else:
            await running.command(command)


class SupervisedCapture:
    """A capture that this node runs, in one process after the other."""

    def __init__(
        self, name: str, scheduler: Scheduler, runner: CaptureRunner, assignment: Assignment
    ) -> None:
        self.name = name
        self._scheduler = scheduler
        self._runner = runner
        self.assignment = assignment
        self._status = Status(state="starting")
        self._restarts = 0
        #: The rows of earlier processes on this node.
        self._rows_before = 0
        #: Consecutive processes that ended early without a captured row.
        self._failures = 0
        self._began = 0.0
        self._process: CaptureProcess | None = None
        #: Starts the next process, or kills one that takes too long to stop.
        self._timer: Handle | None = None
        #: Kills a process that reports nothing.
        self._watchdog: Handle | None = None
        self._stops: list[Outcome[None]] = []
        self._commands = 0
        #: By id, the commands that the process has not answered.
        self._pending: dict[str, tuple[Outcome[None], Handle]] = {}

    @property
    def is_stopping(self) -> bool:
        return bool(self._stops)

    def state(self, node: int) -> CaptureState:
        return CaptureState(
            name=self.name,
            node=node,
            status=self._status,
            restarts=self._restarts,
            rows=self._rows_before + self._status.rows,
        )

    # ---- the process

    def start(self) -> None:
        self._timer = None
        self._began = self._scheduler.time()
        objection = self._runner.objection()
        if objection:
            self._ended(objection)
            return
        self._process = self._runner.run(self.assignment, self._reported, self._ended)
        self._watchdog = self._scheduler.call_later(CAPTURE_SILENCE_S, self._silent)

    def _reported(self, report: Report) -> None:
        match report:
            case Status():
                self._restart_watchdog()
                if report.state != self._status.state:
                    fields = {
                        "capture": self.name,
                        "state": report.state,
                        "before": self._status.state,
                    }
                    log.info("capture %s: %s", self.name, report.state, extra=fields)
                # Without a connection the process reports no position: the last one is still valid.
                lsn = report.lsn or self._status.lsn
                self._status = msgspec.structs.replace(report, lsn=lsn)
            case Done():
                problem = CaptureRefused(report.problem) if report.problem else None
                self._answer(report.id, problem)

    def _restart_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = self._scheduler.call_later(CAPTURE_SILENCE_S, self._silent)

    def _silent(self) -> None:
        log.error(
            "capture %s: its process has reported nothing for %.0f s and is killed",
            self.name,
            CAPTURE_SILENCE_S,
            extra={"capture": self.name},
        )
        self._kill()

    def _ended(self, problem: str) -> None:
        self._process = None
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        for number in list(self._pending):
            self._answer(number, CaptureNotRunning(f"the process of the capture ended: {problem}"))
        self._cancel_timer()
        if self._stops:
            stops, self._stops = self._stops, []
            for each in stops:
                each.succeed(None)
            return
        lived_s = self._scheduler.time() - self._began
        made_progress = self._status.rows > 0 or lived_s >= CAPTURE_RESTART_S_MAX
        self._failures = 0 if made_progress else self._failures + 1
        delay_s = CAPTURE_RESTART_S_MIN * 2 ** min(max(self._failures - 1, 0), _DOUBLED_MAX)
        delay_s = min(delay_s, CAPTURE_RESTART_S_MAX)
        self._restarts += 1
        self._rows_before += self._status.rows
        # The problem that the process reported is more specific than its exit status.
        problem = self._status.problem or problem
        self._status = msgspec.structs.replace(
            self._status, state="waiting", problem=problem, rows=0, rows_per_s=0.0
        )
        fields = {"capture": self.name, "restarts": self._restarts}
        text = "capture %s: %s; restarted in %.0f s"
        log.warning(text, self.name, problem, delay_s, extra=fields)
        self._timer = self._scheduler.call_later(delay_s, self._restart)

    def _restart(self) -> None:
        self._status = msgspec.structs.replace(self._status, state="starting", problem="")
        self.start()

    def stop(self) -> Outcome[None]:
        """Settled when the process has ended."""
        if self._process is None:
            self._cancel_timer()
            return succeeded(None)
        stopped: Outcome[None] = Outcome()
        self._stops.append(stopped)
        if len(self._stops) == 1:
            self._cancel_timer()
            self._process.send(Stop())
            # A process may end within `send`.
            if not stopped.is_settled:
                self._timer = self._scheduler.call_later(CAPTURE_STOP_GRACE_S, self._kill)
        return stopped

    def abandon(self) -> None:
        """Kill the process, and do not restart it."""
        self._cancel_timer()
        self._stops.append(Outcome())
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- commands

    def set_paused(self, is_paused: bool) -> None:
        self.assignment = self.assignment._replace(is_paused=is_paused)
        if self._process is not None:
            self._process.send(Pause() if is_paused else Resume())
        elif self._timer is not None and not is_paused:
            # An operator who resumes a capture has probably solved its problem.
            self._failures = 0
            self._cancel_timer()
            self._restart()

    async def command(self, command: Rewind | Snapshot) -> None:
        """Returns when the process has answered."""
        if self._process is None or self.is_stopping:
            why = self._status.problem or "its process is starting or stopping"
            raise CaptureNotRunning(f"capture {self.name} is not running: {why}")
        if len(self._pending) >= CAPTURE_COMMANDS_MAX:
            raise Overloaded(f"{len(self._pending)} commands are pending; try again later")
        self._commands += 1
        number = str(self._commands)
        answered: Outcome[None] = Outcome()
        timer = self._scheduler.call_later(
            CAPTURE_COMMAND_TIMEOUT_S, partial(self._give_up, number)
        )
        self._pending[number] = (answered, timer)
        self._process.send(msgspec.structs.replace(command, id=number))
        await answered

    def _give_up(self, number: str) -> None:
        why = self._status.problem or f"it is {self._status.state}"
        self._answer(
            number,
            CaptureNotRunning(
                f"capture {self.name} has not executed the command yet: {why}; it will do so later,"
                " so do not repeat the command"
            ),
        )

    def _answer(self, number: str, error: DragomanError | None) -> None:
        pending = self._pending.pop(number, None)
        if pending is not None:
            answered, timer = pending
            timer.cancel()
            answered.acknowledge(error)
