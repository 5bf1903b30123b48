"""Rows from snapshots: rates, means and quantiles, and which series have columns of their own.

Method: snapshots as plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from dragoman.telemetry.catalogue import METRICS, Distribution, Stats
from dragoman.telemetry.history import sampler
from dragoman.telemetry.history.figures import BUDGETS, FIGURES, OTHERS
from dragoman.telemetry.history.ring import Columns, Row, Steps
from dragoman.telemetry.history.sampler import Sampler, quantile


def result(steps: Steps[Row]) -> Row:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return cast(Row, stop.value)


class Node:
    """Samples of snapshots that are given."""

    def __init__(self) -> None:
        self.sampler = Sampler()
        self.columns = Columns()
        self.at = 0

    def sample(self, *parts: Stats, interval_s: float = 10.0) -> dict[tuple[str, ...], float]:
        self.at += 15
        row = result(self.sampler.sample(iter(parts), self.at, interval_s, self.columns))
        return {key: row.value(key) for key in row.columns.keys if row.value(key) == row.value(key)}


def traffic(amounts: dict[str, int], protocol: str = "kafka") -> Stats:
    flows = {(topic, "in", protocol): amount for topic, amount in amounts.items()}
    return {"topic_bytes_total": flows, "topic_records_total": dict.fromkeys(flows, 0)}


def test_counters_become_rates() -> None:
    node = Node()
    node.sample({"requests_total": {("kafka", "Fetch"): 100, ("kafka", "Produce"): 50}})
    found = node.sample({"requests_total": {("kafka", "Fetch"): 130, ("kafka", "Produce"): 70}})
    assert found == {("requests_per_second", "kafka"): 5.0}


def test_the_first_interval_begins_with_the_node_whose_counters_were_zero() -> None:
    found = Node().sample({"requests_total": {("kafka", "Fetch"): 100}})
    assert found == {("requests_per_second", "kafka"): 10.0}


def test_a_counter_that_falls_has_begun_anew() -> None:
    node = Node()
    node.sample(traffic({"orders": 1000}))
    found = node.sample(traffic({"orders": 50}))
    assert found["topic_bytes_in_per_second", "orders", "kafka"] == 5.0


def test_a_topic_that_is_deleted_lowers_no_sum() -> None:
    node = Node()
    node.sample(traffic({"orders": 1000, "gone": 9000}))
    found = node.sample(traffic({"orders": 1100}))
    assert found["bytes_in_per_second", "kafka"] == 10.0


def test_gauges_are_summed_or_their_largest_is_taken() -> None:
    found = Node().sample(
        {
            "group_lag_records": {("billing", "a"): 3, ("billing", "b"): 4},
            "group_lag_seconds": {("billing", "a"): 3.0, ("billing", "b"): 4.0},
            "disk_free_bytes": 512,
        }
    )
    assert found == {
        ("group_lag_records", "billing"): 7.0,
        ("group_lag_seconds", "billing"): 4.0,
        ("disk_free_bytes",): 512.0,
    }


def test_histograms_become_a_rate_a_mean_and_a_quantile_of_what_was_added() -> None:
    node = Node()
    bounds = (0.1, 0.2)
    node.sample({"journal_sync_seconds": Distribution(bounds, (0, 0, 7), 99.0)})
    found = node.sample({"journal_sync_seconds": Distribution(bounds, (0, 20, 7), 102.0)})
    assert found["journal_syncs_per_second",] == 2.0
    assert found["journal_sync_mean_seconds",] == pytest.approx(0.15)
    assert found["journal_sync_p99_seconds",] == pytest.approx(0.199)
    idle = node.sample({"journal_sync_seconds": Distribution(bounds, (0, 20, 7), 102.0)})
    assert idle == {("journal_syncs_per_second",): 0.0}


def test_a_quantile_above_all_bounds_is_the_largest_bound() -> None:
    assert quantile(Distribution((1.0, 2.0), (0, 0, 5), 50.0), 0.99) == 2.0


def test_a_topic_without_traffic_takes_no_series() -> None:
    assert Node().sample(traffic({"orders": 0})) == {}


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "BUDGETS", {**BUDGETS, "topic traffic": 4, "group": 4})


def own(found: Iterable[tuple[str, ...]], name: str) -> set[str]:
    return {key[1] for key in found if key[0] == name}


def test_the_busiest_topics_have_series_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    found = Node().sample(traffic({f"t{each}": 10 * each for each in range(1, 8)}))
    name = "topic_bytes_in_per_second"
    assert own(found, name) == {"t4", "t5", "t6", "t7", OTHERS}
    assert found[name, OTHERS, "kafka"] == 1 + 2 + 3
    assert found["bytes_in_per_second", "kafka"] == 1 + 2 + 3 + 4 + 5 + 6 + 7


def test_a_topic_keeps_its_series_when_others_become_busier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small(monkeypatch)
    node = Node()
    node.sample(traffic(dict.fromkeys("abcd", 10)))
    found = node.sample(traffic({**dict.fromkeys("abcd", 20), "e": 10_000}))
    assert own(found, "topic_bytes_in_per_second") == {*"abcd", OTHERS}
    assert node.sampler.left_out["topic traffic"] == 1
    assert node.sampler.left_out["group"] == 0


def test_many_topics_leave_room_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    lag = {(f"g{each}", "t"): each for each in range(5)}
    found = Node().sample(
        traffic({f"t{each}": 10 for each in range(100)}),
        {"group_lag_records": lag, "group_lag_seconds": lag},
    )
    assert own(found, "group_lag_records") == {"g3", "g4", OTHERS}
    assert found["group_lag_records", OTHERS] == 0 + 1 + 2
    assert found["group_lag_seconds", OTHERS] == 2.0


def test_5000_topics_and_300_groups_stay_within_the_budgets() -> None:
    node = Node()
    topics = {f"topic-{each}": each for each in range(5000)}
    groups = {(f"group-{each}", "t"): each for each in range(300)}
    found = node.sample(
        traffic(topics),
        {"topic_log_bytes": {(name,): size for name, size in topics.items()}},
        {"group_lag_records": groups, "group_lag_seconds": groups},
    )
    assert len(found) <= 3400
    assert node.sampler.left_out == {
        "topic traffic": 4999 - BUDGETS["topic traffic"],
        "topic size": 5000 - BUDGETS["topic size"],
        "group": 300 - BUDGETS["group"] // 2,
        "node": 0,
    }
    name = "topic_log_bytes"
    assert sum(value for key, value in found.items() if key[0] == name) == sum(topics.values())


def test_topics_that_are_not_counted_apart_are_among_the_others() -> None:
    found = Node().sample(traffic({"other": 50}), {"topic_log_bytes": {("other",): 7}})
    assert found["topic_bytes_in_per_second", OTHERS, "kafka"] == 5.0
    assert found["topic_log_bytes", "other"] == 7.0


def test_work_pauses_often() -> None:
    steps = Sampler().sample(
        iter([traffic({f"t{each}": 10 for each in range(2000)})]), 15, 1.0, Columns()
    )
    assert sum(1 for _ in steps) > 40


def test_every_figure_follows_a_metric_and_has_a_form_for_its_kind() -> None:
    for each in FIGURES.values():
        metric = METRICS[each.metric]
        assert set(each.labels) <= set(metric.labels), each.name
        if each.where is not None:
            assert each.where[0] in metric.labels, each.name
        forms = {"gauge": {"value"}, "counter": {"rate"}, "histogram": {"rate", "mean", "p99"}}
        assert each.form in forms[metric.kind], each.name
        if each.subject != "cluster":
            assert each.subject in each.labels, each.name
