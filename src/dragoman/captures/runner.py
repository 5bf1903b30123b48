"""How the service has captures run: the port that processes implement on a real node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from dragoman.broker.errors import CaptureRefused
from dragoman.captures.control import Command, Finding, Report
from dragoman.captures.definition import Definition
from dragoman.outcome import Outcome, failed

TakeReport: TypeAlias = Callable[[Report], None]
#: Receives the reason why a process has ended, for operators to read.
TakeEnd: TypeAlias = Callable[[str], None]
Findings: TypeAlias = tuple[Finding, ...]


class Assignment(NamedTuple):
    """A capture as a node is to run it."""

    definition: Definition
    is_paused: bool
    incarnation: str


class CaptureProcess(Protocol):
    """A process that captures."""

    def send(self, command: Command, /) -> None:
        """Has no effect once the process has ended."""
        ...

    def kill(self) -> None: ...


class CaptureRunner(Protocol):
    def objection(self) -> str:
        """Why captures cannot run on this node, with the remedy; empty when they can."""
        ...

    def run(self, assignment: Assignment, report: TakeReport, ended: TakeEnd, /) -> CaptureProcess:
        """Start a process. `ended` is called exactly once, and `report` never after it."""
        ...

    def check(self, definition: Definition, /) -> Outcome[Findings]:
        """Examine whether the database can be captured."""
        ...

    def clean_up(self, definition: Definition, /) -> Outcome[Findings]:
        """Drop what a capture has created in the database. What cannot be dropped is a problem."""
        ...


class NoRunner:
    """For a node that runs no processes."""

    def objection(self) -> str:
        return "this node cannot run captures"

    def run(
        self, _assignment: Assignment, _report: TakeReport, _ended: TakeEnd, /
    ) -> CaptureProcess:
        raise CaptureRefused(self.objection())

    def check(self, _definition: Definition, /) -> Outcome[Findings]:
        return failed(CaptureRefused(self.objection()))

    clean_up = check
