"""What the surveys of simulated clusters have in common: seed after seed, and what came of them."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

import msgspec

SEEDS_PER_MUTANT_MAX = 200
#: Of so many runs, one has five nodes.
_FIVE_NODES_EVERY = 5


class Failure(AssertionError):
    """A run broke a promise. Seed, faults and last events are in the text."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        #: How long the run was, until then.
        self.seconds = seconds


class Outcome(Protocol):
    """What a run that kept all promises tells."""

    @property
    def seconds(self) -> float: ...

    @property
    def acks(self) -> int: ...

    @property
    def elections(self) -> int: ...

    @property
    def truncations(self) -> int: ...

    @property
    def copied_anew(self) -> int: ...

    @property
    def faults(self) -> tuple[str, ...]: ...


#: A seed, and how many nodes. Raises `Failure`.
Run = Callable[[int, int], Outcome]


class Survey(msgspec.Struct):
    runs: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    outcomes: list[Outcome] = []
    failures: list[str] = []


class MutantRow(msgspec.Struct, frozen=True):
    mutant: Enum
    #: How many seeds it took; -1 when none showed it.
    seeds: int
    how: str


def node_count(seed: int) -> int:
    return 5 if seed % _FIVE_NODES_EVERY == 0 else 3


def survey_of(run: Run, seconds: float, first_seed: int) -> Survey:
    """Run seeds until so many simulated seconds are over."""
    result = Survey()
    started = time.perf_counter()
    while result.simulated_s < seconds:
        seed = first_seed + result.runs
        result.runs += 1
        try:
            outcome = run(seed, node_count(seed))
        except Failure as failure:
            result.simulated_s += failure.seconds
            result.failures.append("\n".join(str(failure).split("\n")[:2]))
        else:
            result.simulated_s += outcome.seconds
            result.outcomes.append(outcome)
    result.wall_s = time.perf_counter() - started
    return result


def hunt_in(run: Run, mutant: Enum, first_seed: int, seeds_max: int) -> MutantRow:
    """Run seeds until one shows the mutant, which is in force."""
    for number in range(seeds_max):
        seed = first_seed + number
        try:
            run(seed, node_count(seed))
        except Failure as failure:
            return MutantRow(mutant, number + 1, str(failure).split("\n")[0])
    return MutantRow(mutant, -1, "not caught")


def describe(result: Survey) -> str:
    outcomes = result.outcomes
    faults = Counter(fault for each in outcomes for fault in each.faults)
    rate = result.simulated_s / result.wall_s
    return (
        f"{result.runs} runs, {result.simulated_s:.0f} simulated seconds, {rate:.1f} a second: "
        f"{sum(each.acks for each in outcomes)} batches acknowledged, "
        f"{sum(each.elections for each in outcomes)} elections, "
        f"{sum(each.truncations for each in outcomes)} truncations, "
        f"{sum(each.copied_anew for each in outcomes)} copied anew, faults by runs "
        f"{dict(sorted(faults.items()))}, {len(result.failures)} failed"
    )


def main(
    arguments: list[str],
    survey: Callable[[float, int], Survey],
    hunt: Callable[..., MutantRow],
    mutants: Iterable[Enum],
) -> int:
    """Exit status 1 when a run failed or a mutant lived."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args(arguments)
    result = survey(options.seconds, options.seed)
    print("\n".join([describe(result), *result.failures]), flush=True)
    is_good = not result.failures
    for mutant in mutants if options.mutants else ():
        row = hunt(mutant, options.seed)
        is_good = is_good and row.seeds > 0
        print(f"{row.mutant.value:<66} {row.seeds:>4} seeds  {row.how}", flush=True)
    return 0 if is_good else 1
