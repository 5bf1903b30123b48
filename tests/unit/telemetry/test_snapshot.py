"""Snapshots: checked against the catalogue, and bounded by combining series."""

from __future__ import annotations

import pytest

from dragoman import limits
from dragoman.telemetry.catalogue import METRICS, Distribution, Number, Stats, StatsError
from dragoman.telemetry.snapshot import families

BOUND = limits.METRIC_SERIES_MAX


def shown(stats: Stats) -> dict[str, dict[tuple[str, ...], Number]]:
    return {each.metric.name: dict(each.series) for each in families([stats]) if each is not None}


def test_numbers_are_shown_as_they_are() -> None:
    found = shown({"topics": 3, "connections": {("kafka",): 2, ("http",): 0}})
    assert found["topics"] == {(): 3}
    assert found["connections"] == {("kafka",): 2, ("http",): 0}
    assert found["metric_series_left_out"] == {(): 0}


def test_empty_part_is_a_pause() -> None:
    assert [each is None for each in families([{}, {"topics": 1}, {}])] == [
        True,
        False,
        True,
        False,
    ]


def test_parts_are_read_one_by_one() -> None:
    read: list[str] = []

    def parts():
        for name in ("topics", "partitions"):
            read.append(name)
            yield {name: 1}

    found = families(parts())
    assert next(found).metric.name == "topics"
    assert read == ["topics"]


def test_series_do_not_change_after_they_were_read() -> None:
    series = {("kafka",): 1}
    (family, _) = families([{"connections": series}])
    series["http",] = 2
    assert family.series == {("kafka",): 1}


def test_counters_beyond_the_bound_are_summed_behind_the_first() -> None:
    found = shown({"capture_rows_total": {(str(n),): n for n in range(BOUND + 5)}})
    series = found["capture_rows_total"]
    assert list(series) == [*((str(n),) for n in range(BOUND)), ("other",)]
    assert series["other",] == sum(range(BOUND, BOUND + 5))
    assert found["metric_series_left_out"] == {(): 4}


def test_gauges_beyond_the_bound_show_the_largest() -> None:
    series = shown({"groups": {(str(n),): n for n in range(BOUND + 5)}})["groups"]
    assert ("0",) not in series
    assert series[str(BOUND + 4),] == BOUND + 4
    assert series["other",] == sum(range(5))
    assert sum(series.values()) == sum(range(BOUND + 5))


def test_ages_beyond_the_bound_show_the_largest_of_the_rest() -> None:
    series = shown({"capture_lag_seconds": {(str(n),): n for n in range(BOUND + 5)}})
    assert series["capture_lag_seconds"]["other",] == 4


def test_times_beyond_the_bound_are_left_out() -> None:
    found = shown({"tls_certificate_expiry_seconds": {(str(n),): n for n in range(BOUND + 5)}})
    assert ("other",) not in found["tls_certificate_expiry_seconds"]
    assert found["metric_series_left_out"] == {(): 5}


def test_series_with_a_long_label_are_combined() -> None:
    long = "x" * (limits.METRIC_LABEL_CHARS_MAX + 1)
    assert shown({"groups": {("a",): 1, (long,): 2, (long + "x",): 3}})["groups"] == {
        ("a",): 1,
        ("other",): 5,
    }


def test_series_that_a_client_named_other_is_counted_with_the_rest() -> None:
    series: dict[tuple[str, ...], int] = {("other",): 100}
    series |= {(str(n),): 1 for n in range(BOUND + 1)}
    found = shown({"capture_rows_total": series})["capture_rows_total"]
    assert found["other",] == 101
    assert sum(found.values()) == BOUND + 101


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ({"topcis": 1}, "not in the catalogue of metrics: topcis"),
        ({"topics": {("a",): 1}}, "topics: expected labels"),
        ({"connections": 1}, "connections: expected labels"),
        ({"topics": Distribution((), (1,), 0.0)}, "topics: Distribution is no gauge"),
        ({"journal_sync_seconds": 3}, "journal_sync_seconds: int is no histogram"),
        ({"journal_sync_seconds": Distribution((0.1,), (1,), 0.0)}, "need one more count"),
    ],
)
def test_snapshot_that_does_not_fit_is_refused(stats: Stats, message: str) -> None:
    with pytest.raises(StatsError, match=message):
        list(families([stats]))


def test_metric_that_comes_twice_is_refused() -> None:
    with pytest.raises(StatsError, match="topics is twice"):
        list(families([{"topics": 1}, {"topics": 2}]))


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_catalogue_follows_prometheus_naming(metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")


def test_families_of_openmetrics_have_names_of_their_own() -> None:
    """OpenMetrics names a family of counters without `_total`."""
    names = [name.removesuffix("_total") for name in METRICS]
    assert len(set(names)) == len(names)
