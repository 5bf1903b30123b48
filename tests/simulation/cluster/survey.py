"""`PYTHONPATH=tests python -m simulation.cluster.survey --seconds 2000 --seed 1 [--mutants]`

Runs whole clusters of three and five nodes under faults, and prints what happened and how fast;
exit status 1 when a run failed or a mutant lived.
"""

from __future__ import annotations

import sys

from simulation.cluster.cluster import Cluster
from simulation.cluster.faults import Faults
from simulation.cluster.mutants import Mutant, mutated
from simulation.cluster.observers import watched
from simulation.harness.runs import Outcome
from simulation.harness.survey import (
    SEEDS_PER_MUTANT_MAX,
    MutantRow,
    Survey,
    hunt_in,
    main,
    survey_of,
)


def run(seed: int) -> Outcome:
    """One run, inside `watched`. Raises `Failure`."""
    cluster = Cluster(seed)
    return cluster.play(Faults(cluster))


def survey(seconds: float, first_seed: int) -> Survey:
    with watched():
        return survey_of(run, seconds, first_seed)


def hunt(mutant: Mutant, first_seed: int, seeds_max: int = SEEDS_PER_MUTANT_MAX) -> MutantRow:
    with mutated(mutant), watched():
        return hunt_in(run, mutant, first_seed, seeds_max)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], {"cluster": survey}, hunt, Mutant))
