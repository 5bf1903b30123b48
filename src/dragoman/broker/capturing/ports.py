"""What the core needs of those who run captures: processes, on a real node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from dragoman.broker.errors import CaptureRefused
from dragoman.captures.control import Command, Finding, Report
from dragoman.captures.definition import Definition
from dragoman.errors import DragomanError

TakeReport: TypeAlias = Callable[[Report], None]
#: Takes why it has ended, for people.
TakeEnd: TypeAlias = Callable[[str], None]
TakeFindings: TypeAlias = Callable[[tuple[Finding, ...] | DragomanError], None]


class Wanted(NamedTuple):
    """A capture as it is to run."""

    definition: Definition
    is_paused: bool
    incarnation: str


class RunningCapture(Protocol):
    def send(self, command: Command, /) -> None:
        """One that has ended does not hear it."""
        ...

    def kill(self) -> None: ...


class CaptureRunner(Protocol):
    def objection(self) -> str:
        """Why captures cannot run on this node, with what to do about it; empty: they can."""
        ...

    def run(self, wanted: Wanted, report: TakeReport, ended: TakeEnd, /) -> RunningCapture:
        """Begin. `ended` is called exactly once, and `report` not after it."""
        ...

    def check(self, definition: Definition, done: TakeFindings, /) -> None:
        """Look whether the database is fit to be captured."""
        ...

    def clean_up(self, definition: Definition, done: TakeFindings, /) -> None:
        """Take away what was made in the database; what could not be is a problem."""
        ...


class NoRunner:
    """For a node that runs no processes."""

    def objection(self) -> str:
        return "this node cannot run captures"

    def run(self, _wanted: Wanted, _report: TakeReport, _ended: TakeEnd, /) -> RunningCapture:
        raise CaptureRefused(self.objection())

    def check(self, _definition: Definition, done: TakeFindings, /) -> None:
        done(CaptureRefused(self.objection()))

    clean_up = check
