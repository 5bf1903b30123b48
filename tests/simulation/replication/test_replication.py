"""Goal: replicated partitions keep what they acknowledged, whatever happens to nodes and network.

Method: a slice of what `make sim` runs, with fixed seeds. Hunting a mutant may take minutes; here
are seeds that are known to show each of them, so that a check which has gone blind is noticed.
"""

from __future__ import annotations

import pytest

from simulation.replication.mutants import Mutant
from simulation.replication.observers import watched
from simulation.replication.survey import hunt, run, survey


def test_no_promise_is_broken_under_faults() -> None:
    result = survey(seconds=400, first_seed=2000)
    assert result.failures == []
    assert result.counts["batches acknowledged"] > 1000
    assert result.counts["elections"] > 100
    assert result.counts["truncations"] > 0


def test_the_same_seed_is_the_same_run() -> None:
    with watched():
        assert run(7) == run(7)


#: Seeds that show the mutants, or one of the four behind each does.
_FIRST_SEEDS = {
    **dict.fromkeys(Mutant, 1),
    Mutant.NO_SYNC_BEFORE_ACK: 5,
    Mutant.NO_COMPARE_AND_SET: 2,
    Mutant.STALE_INCARNATION: 2,
    Mutant.TORN_IS_VALID: 7,
    Mutant.DAMAGE_IS_TORN: 42,
    Mutant.RETRY_AFTER_FAILED_SYNC: 21,
    Mutant.EPOCH_NOT_PERSISTED: 2,
    Mutant.PROPOSED_SET: 12,
}


@pytest.mark.parametrize("mutant", list(Mutant), ids=lambda mutant: mutant.name.lower())
def test_mutants_die(mutant: Mutant) -> None:
    row = hunt(mutant, _FIRST_SEEDS[mutant], seeds_max=5)
    assert row.seeds > 0, row.how
