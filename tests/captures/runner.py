"""Captures without processes: they record their commands, and a test makes their reports."""

from __future__ import annotations

from dragoman.captures.control import Command, DatabaseTable, Finding, Report, Stop
from dragoman.captures.definition import Definition
from dragoman.captures.supervisor import Assignment, Findings, Tables, TakeEnd, TakeReport
from dragoman.errors import DragomanError
from dragoman.outcome import Outcome

DSN = "postgresql://app:hunter2@db.example/shop"


def defined(name: str = "shop", **fields: object) -> Definition:
    # Each of its own table, since no two may write to one topic.
    tables = ("public.orders" if name == "shop" else f"public.{name}",)
    return Definition(**{"name": name, "dsn": DSN, "tables": tables, **fields})  # type: ignore[arg-type]


class Ran:
    """One process that was started."""

    def __init__(self, assignment: Assignment, report: TakeReport, ended: TakeEnd) -> None:
        self.assignment = assignment
        self.definition = assignment.definition
        self.is_paused = assignment.is_paused
        self._report = report
        self._ended = ended
        self.told: list[Command] = []
        self.is_over = False
        #: Whether it ends on command.
        self.is_obedient = True
        self.was_killed = False

    def send(self, command: Command, /) -> None:
        self.told.append(command)
        if isinstance(command, Stop) and self.is_obedient:
            self.end("stopped")

    def kill(self) -> None:
        self.was_killed = True
        self.end("killed")

    def say(self, report: Report) -> None:
        assert not self.is_over
        self._report(report)

    def end(self, why: str) -> None:
        if not self.is_over:
            self.is_over = True
            self._ended(why)


class FakeRunner:
    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.refusal = ""
        self.findings: tuple[Finding, ...] | DragomanError = (Finding(level="ok", what="fine"),)
        self.listed: tuple[DatabaseTable, ...] | DragomanError = (
            DatabaseTable(schema="public", name="orders"),
        )
        self.cleaned_up: list[str] = []

    def degradation(self, *, with_files: bool) -> str:
        return ""

    def objection(self) -> str:
        return self.refusal

    def run(self, assignment: Assignment, report: TakeReport, ended: TakeEnd, /) -> Ran:
        ran = Ran(assignment, report, ended)
        self.ran.append(ran)
        return ran

    def check(self, _definition: Definition, /) -> Outcome[Findings]:
        outcome: Outcome[Findings] = Outcome()
        outcome.settle(self.findings)
        return outcome

    def tables(self, _definition: Definition, /) -> Outcome[Tables]:
        outcome: Outcome[Tables] = Outcome()
        outcome.settle(self.listed)
        return outcome

    def clean_up(self, definition: Definition, /) -> Outcome[Findings]:
        self.cleaned_up.append(definition.name)
        return self.check(definition)

    @property
    def alive(self) -> list[str]:
        return [each.definition.name for each in self.ran if not each.is_over]
