"""`PYTHONPATH=tests python -m power_cuts.survey --cuts 10000 --seed 1 [--mutants]`

Cuts the power under the log many times and prints what happened; exit status 1 when a run failed or
a mutant lived.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable

import msgspec

from dragoman.errors import DragomanError
from dragoman.log.store import Durability, LogStore
from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.powercut import Plan, PowerCutError, SurveyRow, run, table
from power_cuts.damage import run_damage
from power_cuts.mutants import (
    SHOWN_BY_DAMAGE,
    SHOWN_WITHOUT_JOURNAL,
    Mutant,
    faults_of,
    mutated,
)
from power_cuts.scenario import LogScenario, StoreOptions, quiet_small_world

_PLAN = Plan(cycles=6, operations_max=150, steps_max=60, kill_rate=0.2, restart_operations_max=40)
#: name, durability, faults, share of the cuts.
_SCENARIOS = (
    ("fsync", Durability.FSYNC, DiskFaults(), 5),
    ("fsync, write and sync", Durability.FSYNC, DiskFaults(writes_durably=False), 2),
    ("os", Durability.OS, DiskFaults(), 3),
    ("fsync, syncs fail", Durability.FSYNC, DiskFaults(sync_error_rate=0.02), 1),
    (
        "fsync, write and sync, syncs fail",
        Durability.FSYNC,
        DiskFaults(sync_error_rate=0.02, writes_durably=False),
        1,
    ),
    ("fsync, disk full", Durability.FSYNC, DiskFaults(capacity_bytes=180 << 10), 1),
    ("os, disk full", Durability.OS, DiskFaults(capacity_bytes=40 << 10), 1),
)
_SEEDS_PER_MUTANT_MAX = 500


class MutantRow(msgspec.Struct, frozen=True):
    mutant: Mutant
    #: The first seed that showed it; -1 when none did.
    seed: int
    how: str


def survey_cuts(cuts: int, first_seed: int) -> list[SurveyRow]:
    """Every scenario, until it had its share of the cuts."""
    total = sum(share for *_, share in _SCENARIOS)
    rows = []
    with quiet_small_world():
        for name, durability, faults, share in _SCENARIOS:
            plan = msgspec.structs.replace(_PLAN, faults=faults)
            options = StoreOptions(durability=durability)
            rows.append(_survey(name, options, plan, cuts * share // total, first_seed))
    return rows


def _survey(name: str, options: StoreOptions, plan: Plan, cuts: int, first_seed: int) -> SurveyRow:
    crashes = operations = seeds = 0
    failed: list[int] = []
    first_failure = ""
    while crashes < cuts:
        seed = first_seed + seeds
        seeds += 1
        try:
            outcome = run(seed, LogScenario(options), plan)
        except PowerCutError as failure:
            failed.append(seed)
            crashes += plan.cycles
            first_failure = first_failure or str(failure).partition("\n")[0]
        else:
            crashes += outcome.crashes
            operations += outcome.counters.operations
    return SurveyRow(
        name=name,
        seeds=seeds,
        crashes=crashes,
        operations=operations,
        failed_seeds=tuple(failed),
        first_failure=first_failure,
    )


def survey_damage(runs: int, first_seed: int) -> tuple[Counter[str], list[str]]:
    """How flipped bits ended, and the promises that were broken."""
    results: Counter[str] = Counter()
    broken: list[str] = []
    with quiet_small_world():
        for seed in range(first_seed, first_seed + runs):
            try:
                results[run_damage(seed).result] += 1
            except (AssertionError, OSError, DragomanError) as failure:
                broken.append(f"seed {seed}: {type(failure).__name__}: {failure}")
    return results, broken


def hunt(mutant: Mutant, first_seed: int, seeds_max: int = _SEEDS_PER_MUTANT_MAX) -> MutantRow:
    """Run seeds until one shows the mutant."""
    with quiet_small_world(), mutated(mutant) as make_store:
        for seed in range(first_seed, first_seed + seeds_max):
            how = _shown(mutant, seed, make_store)
            if how:
                return MutantRow(mutant, seed, how)
    return MutantRow(mutant, -1, "not caught")


def _shown(mutant: Mutant, seed: int, make_store: Callable[..., LogStore]) -> str:
    try:
        if mutant in SHOWN_BY_DAMAGE:
            run_damage(seed, make_store)
            return ""
        is_os = mutant in SHOWN_WITHOUT_JOURNAL
        durability = Durability.OS if is_os else Durability.FSYNC
        plan = msgspec.structs.replace(_PLAN, faults=faults_of(mutant))
        run(seed, LogScenario(StoreOptions(durability=durability, make_store=make_store)), plan)
    except (AssertionError, OSError, DragomanError) as failure:
        return str(failure).partition("\n")[0]
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="powercuts")
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args(arguments)
    rows = survey_cuts(options.cuts, options.seed)
    results, broken = survey_damage(options.cuts // 10, options.seed)
    lines = [table(rows), "", f"flipped bits: {dict(results)}", *broken]
    is_good = not broken and not any(row.failed_seeds for row in rows)
    if options.mutants:
        lines.append("")
        for mutant in Mutant:
            row = hunt(mutant, options.seed)
            is_good = is_good and row.seed >= 0
            lines.append(f"{row.mutant.value:<48} seed {row.seed:>4}  {row.how}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
