"""The power-cut runner: use a disk, cut the power anywhere, start again, check, repeat.

A scenario defines the code under test and what it must keep:

    start ──► step, step, … ──┐ power cut (or kill) inside or between operations
                ▲             ▼
                └── verify_after_crash, which may be cut too, and is then repeated on what it left

`run` does one seed, which decides the operations, the moments of the cuts and what they lose.
`run_everywhere` repeats one short run with the cut at its first operation, its second, and so on to
the last. `survey` and `table` show many seeds of several scenarios, including deliberately broken
ones: a harness that lets those pass proves nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Protocol

import msgspec

from dragoman.testing.sim.disk import SimDisk
from dragoman.testing.sim.faults import DiskCounters, DiskFaults, PowerCut


class Scenario(Protocol):
    """One use of a disk. A new object for each run; every method may raise `PowerCut`."""

    def start(self, disk: SimDisk, random: Random) -> None:
        """Set up on an empty disk.

        After a cut in here, `verify_after_crash` follows, not `start`.
        """
        ...

    def step(self) -> None:
        """Do a little work, and record what was acknowledged. Called until the power fails."""
        ...

    def verify_after_crash(self, disk: SimDisk) -> None:
        """Start again after the crash, check the result, and leave everything ready for `step`.

        Any exception is a failure of the run. After a cut in here, it is called again.
        """
        ...


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a run."""

    #: Crashes in one run.
    cycles: int = 5
    #: The cut comes within this many operations of the disk …
    operations_max: int = 100
    #: … or after this many steps, between two operations.
    steps_max: int = 200
    #: Share of crashes that only kill the process: nothing visible is lost.
    kill_rate: float = 0.1
    #: Share of restarts that are cut as well, and within how many operations.
    restart_cut_rate: float = 0.3
    restart_operations_max: int = 20
    faults: DiskFaults = DiskFaults()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    crashes: int
    steps: int
    counters: DiskCounters


class PowerCutError(AssertionError):
    """A scenario failed.

    The message has everything needed to repeat it; the cause is the scenario's own error.
    """

    def __init__(self, seed: int, crash: int, disk: SimDisk, cause: BaseException) -> None:
        super().__init__(
            f"seed {seed}, after crash {crash}: {type(cause).__name__}: {cause}\n"
            f"last operations:\n{disk.report()}"
        )
        self.seed = seed
        self.crash = crash


def run(seed: int, scenario: Scenario, plan: Plan | None = None) -> Outcome:
    """One seeded run. Raises `PowerCutError`."""
    return _Run(seed, scenario, plan if plan is not None else Plan()).play()


class _Run:
    def __init__(self, seed: int, scenario: Scenario, plan: Plan) -> None:
        self.seed = seed
        self.scenario = scenario
        self.plan = plan
        self.random = Random(seed)
        # The scenario has a random source of its own, so that its choices do not depend on the
        # disk's draws, and a seed stays comparable between a scenario and its mutants.
        self.scenario_random = Random(seed + 1_000_003)
        self.disk = SimDisk(self.random, plan.faults)
        self.crashes = 0
        self.steps = 0

    def play(self) -> Outcome:
        try:
            self._arm(self.plan.operations_max)
            self._until_cut(self._first_life)
            for _ in range(1, self.plan.cycles):
                self._restart()
                self._arm(self.plan.operations_max)
                self._until_cut(self._work)
            self._restart()
        except Exception as error:
            raise PowerCutError(self.seed, self.crashes, self.disk, error) from error
        return Outcome(
            seed=self.seed, crashes=self.crashes, steps=self.steps, counters=self.disk.counters
        )

    def _first_life(self) -> None:
        self.scenario.start(self.disk, self.scenario_random)
        self._work()

    def _work(self) -> None:
        for _ in range(self.plan.steps_max):
            self.steps += 1
            self.scenario.step()

    def _arm(self, operations_max: int) -> None:
        self.disk.crash_at(self.random.randint(1, operations_max))

    def _until_cut(self, life: Callable[[], None]) -> None:
        with contextlib.suppress(PowerCut):
            life()
        self._crash()

    def _crash(self) -> None:
        self.crashes += 1
        killed = self.random.random() < self.plan.kill_rate
        self.disk = self.disk.kill() if killed else self.disk.crash()

    def _restart(self) -> None:
        while self.random.random() < self.plan.restart_cut_rate:
            self._arm(self.plan.restart_operations_max)
            try:
                self.scenario.verify_after_crash(self.disk)
            except PowerCut:
                self._crash()
            else:
                self.disk.crash_at(0)
                return
        self.scenario.verify_after_crash(self.disk)


def run_everywhere(seed: int, make: Callable[[], Scenario], plan: Plan | None = None) -> int:
    """Cut one run of `plan.steps_max` steps at each of its operations in turn.

    Returns the number of operations.
    """
    plan = plan if plan is not None else Plan(steps_max=20)
    operations = 0
    while True:
        operations += 1
        disk = SimDisk(Random(seed * 1_000_003 + operations), plan.faults)
        disk.crash_at(operations)
        scenario = make()
        try:
            was_cut = _live(scenario, disk, Random(seed), plan.steps_max)
            disk = disk.crash()
            scenario.verify_after_crash(disk)
        except Exception as error:
            raise PowerCutError(seed, operations, disk, error) from error
        if not was_cut:
            return operations - 1


def _live(scenario: Scenario, disk: SimDisk, random: Random, steps_max: int) -> bool:
    try:
        scenario.start(disk, random)
        for _ in range(steps_max):
            scenario.step()
    except PowerCut:
        return True
    return False


class SurveyRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    seeds: int
    crashes: int
    operations: int
    failed_seeds: tuple[int, ...]
    #: First line of the first failure; empty without one.
    first_failure: str


def survey(
    scenarios: Mapping[str, Callable[[], Scenario]],
    seeds: Iterable[int],
    plan: Plan | None = None,
) -> list[SurveyRow]:
    """Run every scenario with every seed; failures are collected, not raised."""
    chosen = list(seeds)
    return [_survey_one(name, make, chosen, plan) for name, make in scenarios.items()]


def _survey_one(
    name: str, make: Callable[[], Scenario], seeds: list[int], plan: Plan | None
) -> SurveyRow:
    crashes = operations = 0
    failed: list[int] = []
    first_failure = ""
    for seed in seeds:
        try:
            outcome = run(seed, make(), plan)
        except PowerCutError as failure:
            failed.append(seed)
            first_failure = first_failure or str(failure).partition("\n")[0]
        else:
            crashes += outcome.crashes
            operations += outcome.counters.operations
    return SurveyRow(
        name=name,
        seeds=len(seeds),
        crashes=crashes,
        operations=operations,
        failed_seeds=tuple(failed),
        first_failure=first_failure,
    )


def table(rows: Iterable[SurveyRow]) -> str:
    """The survey as a table: one line per scenario, with the first failing seed."""
    heading = ("scenario", "seeds", "crashes", "operations", "failed", "first failure")
    cells = [heading, *(_cells(row) for row in rows)]
    return "\n".join(
        f"{c[0]:<32} {c[1]:>7} {c[2]:>8} {c[3]:>11} {c[4]:>7}  {c[5]}".rstrip() for c in cells
    )


def _cells(row: SurveyRow) -> tuple[str, ...]:
    numbers = (row.seeds, row.crashes, row.operations, len(row.failed_seeds))
    return (row.name, *map(str, numbers), row.first_failure)
