"""Snapshots as Prometheus text: parsed back with the client's own parser, and refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman import limits
from dragoman.telemetry.catalogue import METRICS, Distribution, Stats, StatsError
from dragoman.telemetry.metrics import Exposition

SOURCE = Path(__file__).parents[3] / "src"


def samples(stats: Stats) -> dict[tuple[str, tuple[str, ...]], float]:
    text, _ = Exposition(lambda: stats).render("")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_numbers_come_out_under_their_prefixed_names() -> None:
    shown = samples(
        {
            "topics": 3,
            "uptime_seconds": 1.5,
            "appended_bytes_total": 1 << 53,
            "connections": {("kafka",): 2, ("http",): 1},
            "requests_total": {("kafka", "Produce"): 7},
        }
    )
    assert shown["dragoman_topics", ()] == 3
    assert shown["dragoman_uptime_seconds", ()] == 1.5
    assert shown["dragoman_appended_bytes_total", ()] == 1 << 53
    assert shown["dragoman_connections", ("kafka",)] == 2
    assert shown["dragoman_connections", ("http",)] == 1
    assert shown["dragoman_requests_total", ("kafka", "Produce")] == 7


def test_all_names_begin_with_the_prefix() -> None:
    assert all(name.startswith("dragoman_") for name, _ in samples({"topics": 1}))


def test_metrics_of_the_process_are_there() -> None:
    assert samples({})["dragoman_process_resident_memory_bytes", ()] > 1_000_000


def test_snapshot_is_taken_at_each_scrape_and_not_before() -> None:
    taken: list[int] = []

    def snapshot() -> Stats:
        taken.append(1)
        return {"topics": len(taken)}

    exposition = Exposition(snapshot)
    assert taken == []
    assert b"dragoman_topics 1.0" in exposition.render("")[0]
    assert b"dragoman_topics 2.0" in exposition.render("")[0]


def test_histogram_buckets_are_summed_up() -> None:
    shown = samples(
        {"journal_sync_seconds": Distribution(bounds=(0.001, 0.01), counts=(5, 2, 1), total=0.125)}
    )
    buckets = {
        labels: value
        for (name, labels), value in shown.items()
        if name == "dragoman_journal_sync_seconds_bucket"
    }
    assert buckets == {("0.001",): 5, ("0.01",): 7, ("+Inf",): 8}
    assert shown["dragoman_journal_sync_seconds_count", ()] == 8
    assert shown["dragoman_journal_sync_seconds_sum", ()] == 0.125


def test_hostile_label_stays_one_label() -> None:
    hostile = 'a"} 1\nevil_total 2 \\'
    assert samples({"groups": {(hostile,): 4}})["dragoman_groups", (hostile,)] == 4


def test_series_are_bounded_and_the_rest_counted() -> None:
    bound = limits.METRIC_SERIES_MAX
    shown = samples({"groups": {(str(n),): n for n in range(bound + 5)}})
    assert len([name for name, _ in shown if name == "dragoman_groups"]) == bound
    assert shown["dragoman_metric_series_left_out", ()] == 5


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
        Exposition(lambda: stats).render("")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/plain", "text/plain"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("nonsense;;q=", "text/plain"),
    ],
)
def test_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    assert Exposition(dict).render(accept)[1].startswith(content_type)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_catalogue_follows_prometheus_naming(metric) -> None:
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")


def test_catalogue_does_not_import_the_client() -> None:
    heavy = "'prometheus_client' in sys.modules"
    script = f"import sys, dragoman.telemetry.catalogue; sys.exit({heavy})"
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(SOURCE)})
