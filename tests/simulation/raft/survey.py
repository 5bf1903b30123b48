"""`PYTHONPATH=tests python -m simulation.raft.survey --seconds 20000 --seed 1 [--mutants]`

Runs quorums through seeded misfortunes and prints what happened and how fast; exit status 1 when a
run failed or a mutant lived.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from power_cuts.survey import quiet_small_world
from simulation.raft.cluster import Cluster, Machine, RunError, run
from simulation.raft.disk import DiskMachine
from simulation.raft.memory import MemoryMachine
from simulation.raft.mutants import PLANS, Mutant, mutated

_RUN_SECONDS = 30.0
_MUTANT_SECONDS = 60.0
_SEEDS_PER_MUTANT_MAX = 200


class Survey(msgspec.Struct):
    runs: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    answers: Counter[str] = Counter()
    leaders: int = 0
    agreed: int = 0
    messages: int = 0
    failures: list[str] = []


class MutantRow(msgspec.Struct, frozen=True):
    mutant: Mutant
    #: The first seed that showed it, counted from the first one; 0 when none did.
    seeds: int
    how: str


def survey(
    seconds: float, first_seed: int, make_machine: Callable[[Random], Machine] = MemoryMachine
) -> Survey:
    result = Survey()
    started = time.perf_counter()
    with quiet_small_world():
        while result.simulated_s < seconds:
            _add_run(result, first_seed + result.runs, make_machine)
    result.wall_s = time.perf_counter() - started
    return result


def _add_run(result: Survey, seed: int, make_machine: Callable[[Random], Machine]) -> None:
    result.runs += 1
    cluster = Cluster(seed, make_machine)
    try:
        run(seed, cluster, _RUN_SECONDS)
    except RunError as failure:
        result.failures.append(str(failure))
    result.simulated_s += cluster.scheduler.time()
    result.answers.update(cluster.answers)
    result.leaders += len(cluster.checker.leaders)
    result.agreed += len(cluster.checker.agreed)
    result.messages += cluster.network.delivered


def hunt(mutant: Mutant, first_seed: int, seeds_max: int = _SEEDS_PER_MUTANT_MAX) -> MutantRow:
    """Run seeds until one shows the mutant."""
    with quiet_small_world(), mutated(mutant) as (make_machine, make_raft):
        for count in range(1, seeds_max + 1):
            seed = first_seed + count - 1
            cluster = Cluster(seed, make_machine, make_raft=make_raft, plan=PLANS.get(mutant))
            try:
                run(seed, cluster, _MUTANT_SECONDS)
            except RunError as failure:
                return MutantRow(mutant, count, str(failure).partition("\n")[0])
    return MutantRow(mutant, 0, "not caught")


def describe(result: Survey) -> str:
    rate = result.simulated_s / result.wall_s
    return (
        f"{result.runs} runs, {result.simulated_s:.0f} simulated seconds, {rate:.0f} a second: "
        f"{result.leaders} leaders, {result.messages} messages, {result.agreed} entries agreed on, "
        f"answers {dict(result.answers)}, {len(result.failures)} failed"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="raft")
    parser.add_argument("--seconds", type=float, default=2000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", action="store_true")
    options = parser.parse_args(arguments)
    is_good = True
    worlds: dict[str, Callable[[Random], Machine]] = {"memory": MemoryMachine, "disk": DiskMachine}
    for name, make_machine in worlds.items():
        result = survey(options.seconds, options.seed, make_machine)
        sys.stdout.write("\n".join([f"{name}: {describe(result)}", *result.failures[:3], ""]))
        is_good = is_good and not result.failures
    for mutant in Mutant if options.mutants else ():
        row = hunt(mutant, options.seed)
        is_good = is_good and row.seeds > 0
        sys.stdout.write(f"{row.mutant.value:<66} {row.seeds:>4} seeds  {row.how}\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
