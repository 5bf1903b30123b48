"""`PYTHONPATH=tests python -m simulation.raft.survey --seconds 20000 --seed 1 [--mutants]`

Runs quorums through seeded misfortunes and prints what happened and how fast; exit status 1 when a
run failed or a mutant lived.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeAlias

from power_cuts.scenario import quiet_small_world
from simulation.harness.runs import Outcome
from simulation.harness.survey import (
    SEEDS_PER_MUTANT_MAX,
    MutantRow,
    Survey,
    hunt_in,
    main,
    survey_of,
)
from simulation.raft.cluster import Cluster, Machine, Plan
from simulation.raft.disk import DiskMachine
from simulation.raft.memory import MemoryMachine
from simulation.raft.mutants import NEED_FILES, PLANS, Mutant, mutated

_RUN_SECONDS = 30.0
_MUTANT_SECONDS = 60.0

MakeMachine: TypeAlias = Callable[[Random], Machine]


def run(
    seed: int, make_machine: MakeMachine, seconds: float = _RUN_SECONDS, plan: Plan | None = None
) -> Outcome:
    """Raises `Failure`."""
    return Cluster(seed, make_machine, plan=plan).play(seconds)


def survey(seconds: float, first_seed: int, make_machine: MakeMachine = MemoryMachine) -> Survey:
    with quiet_small_world():
        return survey_of(lambda seed: run(seed, make_machine), seconds, first_seed)


def hunt(mutant: Mutant, first_seed: int, seeds_max: int = SEEDS_PER_MUTANT_MAX) -> MutantRow:
    make_machine = DiskMachine if mutant in NEED_FILES else MemoryMachine
    plan = PLANS.get(mutant)
    with quiet_small_world(), mutated(mutant):
        return hunt_in(
            lambda seed: run(seed, make_machine, _MUTANT_SECONDS, plan),
            mutant,
            first_seed,
            seeds_max,
        )


if __name__ == "__main__":
    surveys = {"memory": survey, "disk": partial(survey, make_machine=DiskMachine)}
    sys.exit(main(sys.argv[1:], surveys, hunt, Mutant))
