"""The metrics of a node at one moment, checked against the catalogue and bounded.

A snapshot comes in parts (`Stats`), so that a node with many partitions is not read in one turn of
the loop. Its reader may pause between two families. An empty part stands for work that took a
while: there the reader should pause.

A metric shows at most `METRIC_SERIES_MAX` series of its own. Beyond that, its other series are
combined in one whose labels are all `other`:

    counter, histogram   the first are shown, in the order in which they appeared; the rest summed
    gauge                the largest are shown; the rest summed, or their largest taken, or left
                         out, as `Metric.beyond` says: offsets add up to nothing

A series with a very long label is combined as well. What clients name without bound is counted
under bounded names where it is counted, since a sum of what is left would fall when one of the
shown disappears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple, TypeAlias

from dragoman import limits
from dragoman.telemetry.catalogue import (
    KNOWN,
    METRICS,
    Distribution,
    Metric,
    Number,
    Stats,
    StatsError,
)

#: The label of series that are not shown by themselves.
OTHER = "other"

Series: TypeAlias = Mapping[tuple[str, ...], Number]


class Family(NamedTuple):
    """A metric and its series."""

    metric: Metric
    series: Series


def families(snapshot: Iterable[Stats]) -> Iterator[Family | None]:
    """Every metric of a snapshot, once; None where a reader should pause.

    Raises `StatsError` for what does not fit the catalogue.
    """
    seen: set[str] = set()
    hidden = 0
    for part in snapshot:
        if not part:
            yield None
        for name, entry in part.items():
            metric = KNOWN.get(name)
            if metric is None:
                raise StatsError(f"not in the catalogue of metrics: {name}")
            if name in seen:
                raise StatsError(f"{name} is twice in a snapshot")
            seen.add(name)
            series: Series = entry if isinstance(entry, Mapping) else {(): entry}
            shown = _bounded(metric, series)
            hidden += max(0, len(series) - len(shown))
            _check(metric, shown)
            yield Family(metric, shown)
    yield Family(METRICS["metric_series_left_out"], {(): hidden})


def _bounded(metric: Metric, series: Series) -> Series:
    """A copy of the series that are shown, since the originals may change during a pause."""
    short = {labels: each for labels, each in series.items() if not _is_long(labels)}
    if len(short) == len(series) <= limits.METRIC_SERIES_MAX:
        return short
    other = (OTHER,) * len(metric.labels)
    # A series that clients have named so is counted with those it looks like.
    short.pop(other, None)
    if metric.kind == "gauge":
        shown = dict(nlargest(limits.METRIC_SERIES_MAX, short.items(), key=_by_number))
    else:
        shown = dict(list(short.items())[: limits.METRIC_SERIES_MAX])
    rest = [each for labels, each in series.items() if labels not in shown]
    combined = _combined(metric, rest)
    if combined is not None:
        shown[other] = combined
    return shown


def _is_long(labels: tuple[str, ...]) -> bool:
    return any(len(each) > limits.METRIC_LABEL_CHARS_MAX for each in labels)


def _by_number(item: tuple[tuple[str, ...], Number]) -> float:
    number = item[1]
    return number.total if isinstance(number, Distribution) else number


def _combined(metric: Metric, rest: list[Number]) -> Number | None:
    if not rest or metric.beyond == "omit":
        return None
    distributions = [each for each in rest if isinstance(each, Distribution)]
    if distributions:
        counts = tuple(map(sum, zip(*(each.counts for each in distributions), strict=True)))
        total = sum(each.total for each in distributions)
        return Distribution(distributions[0].bounds, counts, total)
    numbers = [each for each in rest if not isinstance(each, Distribution)]
    return max(numbers) if metric.beyond == "max" else sum(numbers)


def _check(metric: Metric, series: Series) -> None:
    for labels, number in series.items():
        if len(labels) != len(metric.labels):
            raise StatsError(f"{metric.name}: expected labels {metric.labels}, got {labels}")
        is_distribution = isinstance(number, Distribution)
        if is_distribution != (metric.kind == "histogram"):
            raise StatsError(f"{metric.name}: {type(number).__name__} is no {metric.kind}")
        if isinstance(number, Distribution) and len(number.counts) != len(number.bounds) + 1:
            raise StatsError(f"{metric.name}: {len(number.bounds)} bounds need one more count")
