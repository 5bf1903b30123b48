"""One fault from its beginning to its end, and the table of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from deploy_check.faults import runbook
from deploy_check.faults.machine import Machine, Service
from deploy_check.faults.prometheus import Prometheus

LOOK, REMEDY, OVER = "How to look", "What to do", "When it is over"


class Raised(NamedTuple):
    """What a fault is about: labels of its alert, variables of its runbook, and its nodes."""

    labels: Mapping[str, str]
    variables: Mapping[str, str]
    services: Sequence[Service]
    #: What the commands of the runbook are run by, if not by the shell alone.
    launcher: Sequence[str] = ()


#: Yields when the fault is there, and once more when what was not a command has been done: the
#: load has ended, the database is back.
Cause: TypeAlias = Callable[[], Iterator[Raised]]


class Fault(NamedTuple):
    alert: str
    #: In a few words, for the table.
    what: str
    cause: Cause


class Row(NamedTuple):
    alert: str
    what: str
    firing_s: float
    steps: int
    quiet_s: float


class Stage:
    """Where faults happen."""

    def __init__(self, home: Path, prometheus: Prometheus, machine: Machine) -> None:
        self.home = home
        self.prometheus = prometheus
        self.machine = machine

    def run(self, fault: Fault) -> Row:
        alert, prometheus = fault.alert, self.prometheus
        page = runbook.steps(runbook.RUNBOOKS / f"{alert}.md")
        prometheus.quiet(alert)
        began = time.monotonic()
        course = fault.cause()
        try:
            raised = next(course)
            prometheus.firing(alert, raised.labels)
            firing_s = time.monotonic() - began
            self.machine.services = raised.services
            variables = {"PROMETHEUS": prometheus.url, **raised.variables}
            environment = self.machine.environment(variables)
            follow = partial(runbook.follow, environment=environment, launcher=raised.launcher)
            for step in page[LOOK]:
                follow(step, patiently=True)
            for step in page[REMEDY]:
                follow(step, patiently=False)
            remedied = time.monotonic()
            next(course, None)
            prometheus.quiet(alert)
            quiet_s = time.monotonic() - remedied
            for step in page[OVER]:
                follow(step, patiently=True)
            for _ in course:
                pass
        finally:
            course.close()  # type: ignore[attr-defined]
        steps = sum(len(step.commands.splitlines()) for each in page.values() for step in each)
        print(f"  {alert}: {firing_s:.0f} s, {steps} commands, {quiet_s:.0f} s", flush=True)
        return Row(alert, fault.what, firing_s, steps, quiet_s)


def table(rows: Sequence[Row], held: Mapping[str, str]) -> str:
    """`held`: how long each alert's expression has to hold."""
    lines = [
        "| alert | fault | `for` | fires here after | commands of its runbook | ends here after |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| [{row.alert}](../runbooks/{row.alert}.md) | {row.what} | {held[row.alert]} "
        f"| {row.firing_s:.0f} s | {row.steps} | {row.quiet_s:.0f} s |"
        for row in rows
    ]
    return "\n".join(lines)
