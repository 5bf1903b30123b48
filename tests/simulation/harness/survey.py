"""Surveys of simulated runs: seed after seed, what came of them, and which mutants they show."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeAlias

import msgspec

from simulation.harness.runs import Failure, Outcome

SEEDS_PER_MUTANT_MAX = 200
#: Mistakes of a mutant or of the harness, which break no promise.
_MISTAKES = (AttributeError, NameError, TypeError)

#: Takes a seed and raises `Failure`.
Run: TypeAlias = Callable[[int], Outcome]


class Survey(msgspec.Struct):
    runs: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    #: Runs by the faults that they had.
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    failures: list[str] = []


class MutantRow(msgspec.Struct, frozen=True):
    mutant: Enum
    #: How many seeds it took; -1 when none showed it.
    seeds: int
    how: str


def survey_of(run: Run, seconds: float, first_seed: int) -> Survey:
    """Run seeds until so many simulated seconds are over."""
    result = Survey()
    started = time.perf_counter()
    while result.simulated_s < seconds:
        seed = first_seed + result.runs
        result.runs += 1
        try:
            outcome = run(seed)
        except Failure as failure:
            result.simulated_s += failure.seconds
            result.failures.append("\n".join(str(failure).split("\n")[:2]))
        else:
            result.simulated_s += outcome.seconds
            result.counts.update(outcome.counts)
            result.faults.update(outcome.faults)
    result.wall_s = time.perf_counter() - started
    return result


def hunt_in(run: Run, mutant: Enum, first_seed: int, seeds_max: int) -> MutantRow:
    """Run seeds until one shows the mutant, which is in force."""
    for number in range(seeds_max):
        try:
            run(first_seed + number)
        except Failure as failure:
            if isinstance(failure.__cause__, _MISTAKES):
                raise
            return MutantRow(mutant, number + 1, str(failure).split("\n")[0])
    return MutantRow(mutant, -1, "not caught")


def describe(result: Survey) -> str:
    rate = result.simulated_s / result.wall_s
    counts = ", ".join(f"{count} {name}" for name, count in result.counts.items())
    return (
        f"{result.runs} runs, {result.simulated_s:.0f} simulated seconds, {rate:.1f} a second: "
        f"{counts}, faults by runs {dict(sorted(result.faults.items()))}, "
        f"{len(result.failures)} failed"
    )


def main(
    arguments: list[str],
    surveys: Mapping[str, Callable[[float, int], Survey]],
    hunt: Callable[[Enum, int], MutantRow],
    mutants: Iterable[Enum],
) -> int:
    """Exit status 1 when a run failed or a mutant lived."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args(arguments)
    is_good = True
    for name, survey in surveys.items():
        result = survey(options.seconds, options.seed)
        is_good = is_good and not result.failures
        print("\n".join([f"{name}: {describe(result)}", *result.failures]), flush=True)
    for mutant in mutants if options.mutants else ():
        row = hunt(mutant, options.seed)
        is_good = is_good and row.seeds > 0
        print(f"{row.mutant.value:<66} {row.seeds:>4} seeds  {row.how}", flush=True)
    return 0 if is_good else 1
