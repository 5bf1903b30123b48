"""Goal: groups and transactions survive what happens to their clients and to the broker. Method:
short slices of what `tests/soak` does for a minute each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from torture import groups, judge, transactions


# Runs with the soak tests: ownership is judged by the reports and clocks of stock clients, which on
# a busy machine are late by more than a hand-over takes.
@pytest.mark.soak
@pytest.mark.parametrize("protocol", groups.MIXTURES)
def test_no_partition_has_two_owners_and_no_commit_is_lost(tmp_path: Path, protocol: str) -> None:
    plan = groups.Plan(
        protocol=protocol, seed=1, members=6, partitions=12, seconds=5.0, broker_kills=1
    )
    figures = groups.run(tmp_path, plan)
    assert figures.generations > 1
    assert figures.commits > 10


@pytest.mark.soak
def test_every_input_has_one_effect(tmp_path: Path) -> None:
    plan = transactions.Plan(
        protocol="range", seed=2, workers=3, partitions=4, seconds=3.0, broker_kills=1
    )
    figures = transactions.run(tmp_path, plan)
    assert figures.worker_kills + figures.frozen > 0
    assert figures.open_over_a_kill == 1
    assert figures.committed > 0


def owns(at: float, generation: int, *partitions: int, member_id: str = "id") -> dict[str, object]:
    facts = {"kind": "owns", "generation": generation, "member_id": member_id}
    return {"at": at, "partitions": list(partitions), "is_assigned": bool(partitions), **facts}


def committed(started: float, at: float, offset: int, member_id: str = "id") -> dict[str, object]:
    facts = {"kind": "committed", "started": started, "member_id": member_id}
    return {"at": at, "offsets": {"0": offset}, **facts}


def test_judge_sees_two_owners_in_one_generation() -> None:
    assert judge.check_generations({"a": [owns(1, 1, 0), owns(2, 2)], "b": [owns(2, 2, 0)]}) == 2
    with pytest.raises(AssertionError, match="generation, partition"):
        judge.check_generations({"a": [owns(1, 1, 0)], "b": [owns(2, 1, 0, 1)]})


def test_judge_sees_an_owner_that_came_too_early() -> None:
    judge.check_tenures({"a": [owns(1, 1, 0), owns(2, 2)], "b": [owns(3, 2, 0)]}, {})
    # A member that was removed does not learn of it at once.
    judge.check_tenures({"a": [owns(1, 1, 0), owns(4, -1)], "b": [owns(3, 2, 0)]}, {})
    too_early = {"a": [owns(1, 1, 0), owns(4, 2)], "b": [owns(3, 2, 0)]}
    with pytest.raises(AssertionError, match="in_good_order"):
        judge.check_tenures(too_early, {})
    # Its session expired while it was frozen; it then obeyed an order from before.
    judge.check_tenures(too_early, {"a": [(1.5, 3.9)]})
    for silences in ({"a": [(5.0, 9.0)]}, {"b": [(1.5, 3.9)]}):
        with pytest.raises(AssertionError, match="in_good_order"):
            judge.check_tenures(too_early, silences)


def test_judge_sees_a_lost_commit() -> None:
    has = owns(0, 1, 0)
    resumes = {"at": 5, "kind": "resumes", "started": 4, "offsets": {"0": 7}}
    assert judge.check_commits({"a": [has, committed(1, 2, 7)], "b": [has, resumes]}) == 1
    with pytest.raises(AssertionError, match="8 was acknowledged"):
        judge.check_commits({"a": [has, committed(1, 2, 8)], "b": [has, resumes]})
    # Both commits were in progress at the same time: either may have been first.
    judge.check_commits({"a": [has, committed(1, 3, 8)], "b": [has, committed(2, 4, 7)]})
    with pytest.raises(AssertionError, match="8 was acknowledged"):
        judge.check_commits({"a": [has, committed(1, 2, 8)], "b": [has, committed(3, 4, 7)]})
    # The member was removed and joined again under another id, unnoticed by the client.
    judge.check_commits({"a": [has, committed(1, 2, 8)], "b": [has, committed(3, 4, 7, "new")]})
