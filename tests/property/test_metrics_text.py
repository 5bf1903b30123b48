"""Random snapshots as text, read back by the parsers of Prometheus' own client: both formats give
the numbers of the snapshot, under the same names and labels.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as plain_families

from dragoman.telemetry.catalogue import METRICS, PREFIX, Distribution, Metric, Stats
from dragoman.telemetry.exposition import OPENMETRICS, PLAIN, TextFormat, pieces

labels = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 1 << 50)
gauges = st.one_of(
    st.integers(-(1 << 50), 1 << 50), st.floats(allow_nan=False, allow_infinity=True)
)
bounds = st.lists(
    st.floats(1e-7, 1e9), min_size=1, max_size=5, unique_by=lambda bound: repr(bound)
).map(lambda found: tuple(sorted(found)))
distributions = bounds.flatmap(
    lambda found: st.builds(
        Distribution,
        bounds=st.just(found),
        counts=st.tuples(*(counts for _ in range(len(found) + 1))),
        total=st.floats(0, 1e12),
    )
)
NUMBERS = {"counter": counts, "gauge": gauges, "histogram": distributions}


def entries(metric: Metric) -> st.SearchStrategy:
    numbers = NUMBERS[metric.kind]
    if not metric.labels:
        return numbers
    return st.dictionaries(st.tuples(*(labels for _ in metric.labels)), numbers, max_size=4)


snapshots = st.fixed_dictionaries(
    {},
    optional={
        name: entries(metric)
        for name, metric in METRICS.items()
        if name != "metric_series_left_out"
    },
)


def expected(stats: Stats) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {(f"{PREFIX}metric_series_left_out", ()): 0.0}
    for name, entry in stats.items():
        metric = METRICS[name]
        for values, number in (entry if isinstance(entry, dict) else {(): entry}).items():
            given_labels = tuple(zip(metric.labels, values, strict=True))
            if not isinstance(number, Distribution):
                found[PREFIX + name, given_labels] = number
                continue
            ends = (*(repr(bound) for bound in number.bounds), "+Inf")
            for end, count in zip(ends, accumulate(number.counts), strict=True):
                found[f"{PREFIX}{name}_bucket", (*given_labels, ("le", end))] = count
            found[f"{PREFIX}{name}_count", given_labels] = sum(number.counts)
            found[f"{PREFIX}{name}_sum", given_labels] = number.total
    return found


@pytest.mark.parametrize(
    ("form", "parse"),
    [(PLAIN, plain_families), (OPENMETRICS, openmetrics_families)],
    ids=["plain", "openmetrics"],
)
@given(stats=snapshots)
def test_parser_finds_the_numbers_of_the_snapshot(form: TextFormat, parse, stats: Stats) -> None:
    text = b"".join(pieces([stats], form)).decode()
    found = {
        (sample.name, tuple(sample.labels.items())): sample.value
        for family in parse(text)
        for sample in family.samples
    }
    assert found == expected(stats)
