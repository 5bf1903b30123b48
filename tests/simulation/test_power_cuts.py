"""Goal: no power cut, kill, failed sync, full disk or flipped bit breaks a promise of the log.

Method: a slice of what `make sim` runs, with fixed seeds; and every mutant of the log must be
caught, or the slice proves nothing.
"""

from __future__ import annotations

import pytest

from dragoman.testing.sim.faults import DiskFaults
from dragoman.testing.sim.powercut import Plan, run_everywhere
from power_cuts.mutants import Mutant
from power_cuts.scenario import LogScenario, quiet_small_world
from power_cuts.survey import hunt, survey_cuts, survey_damage


def test_power_cuts_lose_nothing_that_was_acknowledged():
    rows = survey_cuts(cuts=500, first_seed=100)
    assert [(row.name, row.first_failure) for row in rows if row.failed_seeds] == []
    assert sum(row.crashes for row in rows) >= 500


def test_a_cut_at_every_single_operation_of_a_short_run():
    with quiet_small_world():
        assert run_everywhere(3, LogScenario, Plan(steps_max=40)) > 50


def test_a_cut_at_every_operation_where_a_durable_write_is_a_write_and_a_sync():
    plan = Plan(steps_max=40, faults=DiskFaults(writes_durably=False))
    with quiet_small_world():
        whole = run_everywhere(3, LogScenario, Plan(steps_max=40))
        assert run_everywhere(3, LogScenario, plan) > whole


def test_flipped_bits_are_never_served():
    results, broken = survey_damage(runs=80, first_seed=300)
    assert broken == []
    assert results["refused some"] > 0
    assert results["served all"] > 0


@pytest.mark.parametrize("mutant", list(Mutant), ids=lambda mutant: mutant.name.lower())
def test_mutants_die(mutant: Mutant):
    row = hunt(mutant, first_seed=120, seeds_max=300)
    assert row.seed >= 0, row.how
