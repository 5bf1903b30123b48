"""The text of a snapshot, read back by the parsers of Prometheus' own client."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as plain_families

from dragoman import limits
from dragoman.telemetry.catalogue import Distribution, Stats
from dragoman.telemetry.exposition import OPENMETRICS, PLAIN, format_for, pieces

PARSERS = {PLAIN: plain_families, OPENMETRICS: openmetrics_families}


@pytest.fixture(params=[PLAIN, OPENMETRICS], ids=["plain", "openmetrics"])
def form(request: pytest.FixtureRequest):
    return request.param


def samples(stats: Stats, form) -> dict[tuple[str, tuple[str, ...]], float]:
    text = b"".join(pieces([stats], form)).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in PARSERS[form](text)
        for sample in family.samples
    }


def test_numbers_come_out_under_their_prefixed_names(form) -> None:
    shown = samples(
        {
            "topics": 3,
            "uptime_seconds": 1.5,
            "appended_bytes_total": 1 << 53,
            "connections": {("kafka",): 2, ("http",): 1},
            "requests_total": {("kafka", "Produce"): 7},
        },
        form,
    )
    assert shown["dragoman_topics", ()] == 3
    assert shown["dragoman_uptime_seconds", ()] == 1.5
    assert shown["dragoman_appended_bytes_total", ()] == 1 << 53
    assert shown["dragoman_connections", ("kafka",)] == 2
    assert shown["dragoman_connections", ("http",)] == 1
    assert shown["dragoman_requests_total", ("kafka", "Produce")] == 7
    assert all(name.startswith("dragoman_") for name, _ in shown)


def test_histogram_buckets_are_summed_up(form) -> None:
    shown = samples(
        {"journal_sync_seconds": Distribution(bounds=(0.001, 1), counts=(5, 2, 1), total=0.125)},
        form,
    )
    name = "dragoman_journal_sync_seconds"
    assert shown[f"{name}_bucket", ("0.001",)] == 5
    assert shown[f"{name}_bucket", ("1.0",)] == 7
    assert shown[f"{name}_bucket", ("+Inf",)] == 8
    assert shown[f"{name}_count", ()] == 8
    assert shown[f"{name}_sum", ()] == 0.125


@pytest.mark.parametrize("hostile", ['a"} 1\nevil_total 2 \\', "\r\n# EOF", "\u2028", "\\n"])
def test_hostile_label_stays_one_label(hostile: str, form) -> None:
    assert samples({"groups": {(hostile,): 4}}, form)["dragoman_groups", (hostile,)] == 4


def test_half_of_a_surrogate_pair_is_replaced(form) -> None:
    assert samples({"groups": {("a\ud800",): 4}}, form)["dragoman_groups", ("a?",)] == 4


def test_text_is_written_in_pieces_of_bounded_size() -> None:
    series = {(str(n),): n for n in range(limits.METRIC_SERIES_MAX)}
    names = ("connections", "groups", "captures")
    found = list(pieces([dict.fromkeys(names, series)], PLAIN))
    assert len(found) > len(names)
    assert max(each.count(b"\n") for each in found) <= limits.METRIC_SAMPLES_PER_TURN + 2


def test_pieces_end_where_the_snapshot_pauses() -> None:
    found = list(pieces([{"topics": 1}, {}, {"partitions": 1}], PLAIN))
    assert [b"dragoman_topics " in each for each in found] == [True, False]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", PLAIN),
        ("text/plain", PLAIN),
        ("*/*", PLAIN),
        ("nonsense;;q=", PLAIN),
        ("application/openmetrics-text", OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0", PLAIN),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;q=0.9", PLAIN),
        # What Prometheus sends.
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
            "application/openmetrics-text;version=0.0.1;q=0.4,"
            "text/plain;version=0.0.4;escaping=allow-utf-8;q=0.3,*/*;q=0.2",
            OPENMETRICS,
        ),
    ],
)
def test_format_follows_the_accept_header(accept: str, form) -> None:
    assert format_for(accept) == form
