"""From snapshots of metrics to rows: rates from counters, bounded series.

    snapshot of metrics -> values by series -> which series have a column -> row

The work pauses often, because a snapshot of a large node takes far longer than a loop turn may.

Which series have a column of their own is stable: those that have one keep it, then the busiest of
the new ones get one while their budget lasts. All others are combined in one series each, whose
subject is `(others)`; how many subjects these are is in `left_out`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from math import nan
from typing import Final, NamedTuple, TypeAlias

from dragoman.telemetry.catalogue import METRICS, Distribution, Number, Stats
from dragoman.telemetry.history.figures import (
    BUDGETS,
    FIGURES,
    OTHERS,
    Budget,
    Figure,
    Key,
    by_metric,
)
from dragoman.telemetry.history.ring import Columns, Row, Steps
from dragoman.telemetry.snapshot import OTHER

#: Series that are looked at between two pauses.
_AT_ONCE: Final = 200
_QUANTILE: Final = 0.99
_Series: TypeAlias = Mapping[tuple[str, ...], Number]


class _Way(NamedTuple):
    """How the labels of a metric become the key of a figure."""

    figure: Figure
    kept: tuple[int, ...]
    #: Index and value of a label that must have it.
    where: tuple[int, str] | None

    def key(self, labels: tuple[str, ...]) -> Key | None:
        if self.where is not None and labels[self.where[0]] != self.where[1]:
            return None
        key = (self.figure.name, *(labels[index] for index in self.kept))
        if self.figure.budget == "topic traffic" and key[1] == OTHER:
            # Topics beyond the bound of what is counted (`broker/topic_traffic.py`).
            return self.figure.others(key)
        return key


def _way(figure: Figure) -> _Way:
    labels = METRICS[figure.metric].labels
    where = None if figure.where is None else (labels.index(figure.where[0]), figure.where[1])
    return _Way(figure, tuple(labels.index(each) for each in figure.labels), where)


class _Subject(NamedTuple):
    """What shares the decision whether it has series of its own: a topic, a group and so on."""

    budget: Budget
    name: Key


class Sampler:
    def __init__(self) -> None:
        self._ways = {
            metric: [_way(each) for each in figures] for metric, figures in by_metric().items()
        }
        #: Counters and histograms at the last sample, by metric. All were zero at the start.
        self._before: dict[str, dict[tuple[str, ...], Number]] = {}
        #: Subjects without series of their own at the last sample.
        self.left_out: dict[Budget, int] = dict.fromkeys(BUDGETS, 0)

    def sample(
        self, snapshot: Iterable[Stats], at: int, interval_s: float, columns: Columns
    ) -> Steps[Row]:
        """The row of a snapshot; new series get columns."""
        values = yield from self._values(snapshot, interval_s)
        row = yield from self._placed(values, columns)
        return Row(at, columns, row)

    # ---- values

    def _values(self, snapshot: Iterable[Stats], interval_s: float) -> Steps[dict[Key, float]]:
        values: dict[Key, float] = {}
        for part in snapshot:
            if not part:
                yield
            for metric, entry in part.items():
                ways = self._ways.get(metric)
                if ways is None:
                    continue
                series: _Series = entry if isinstance(entry, Mapping) else {(): entry}
                match METRICS[metric].kind:
                    case "gauge":
                        yield from _gauges(ways, series, values)
                    case "counter":
                        added = yield from self._added(metric, series)
                        yield from _rates(ways, added, interval_s, values)
                    case "histogram":
                        added = yield from self._added(metric, series)
                        _distributions(ways, added, interval_s, values)
            yield
        return values

    def _added(self, metric: str, series: _Series) -> Steps[dict[tuple[str, ...], Number]]:
        """What the series of a counter or a histogram have grown by since the last sample."""
        before, now, added = self._before.get(metric, {}), {}, {}
        for number, (labels, value) in enumerate(series.items(), 1):
            now[labels] = value
            added[labels] = _growth(before.get(labels), value)
            if number % _AT_ONCE == 0:
                yield
        self._before[metric] = now
        return added

    # ---- columns

    def _placed(self, values: dict[Key, float], columns: Columns) -> Steps[array[float]]:
        known: list[tuple[int, float]] = []
        new: dict[_Subject, list[tuple[Key, float]]] = {}
        for number, (key, value) in enumerate(values.items(), 1):
            index = columns.index.get(key)
            if index is not None and OTHERS not in key:
                known.append((index, value))
            elif value or FIGURES[key[0]].form != "rate":
                new.setdefault(_subject(key), []).append((key, value))
            if number % _AT_ONCE == 0:
                yield
        others = yield from self._admitted(new, columns, known)
        yield
        for key, value in others.items():
            index = columns.index.get(key)
            known.append((columns.add(key) if index is None else index, value))
        row = array("f", [nan]) * len(columns)
        for index, value in known:
            row[index] = value
        return row

    def _admitted(
        self,
        new: dict[_Subject, list[tuple[Key, float]]],
        columns: Columns,
        known: list[tuple[int, float]],
    ) -> Steps[dict[Key, float]]:
        """Give columns to series while their budgets last, and combine the rest."""
        others: dict[Key, float] = {}
        left_out: Counter[Budget] = Counter()
        if new:
            used = Counter(FIGURES[key[0]].budget for key in columns.keys if OTHERS not in key)
            yield
            # Sorting keeps the order of those that are equally busy.
            order = sorted(new.items(), key=lambda item: _business(item[1]), reverse=True)
            yield
            for number, (subject, series) in enumerate(order, 1):
                budget = subject.budget
                has_room = used[budget] + len(series) <= BUDGETS[budget]
                if has_room and OTHERS not in subject.name:
                    used[budget] += len(series)
                    known += [(columns.add(key), value) for key, value in series]
                else:
                    left_out[budget] += 1
                    for key, value in series:
                        figure = FIGURES[key[0]]
                        _combine(others, figure.others(key), value, figure)
                if number % _AT_ONCE == 0:
                    yield
        self.left_out = {budget: left_out[budget] for budget in BUDGETS}
        return others


def _growth(before: Number | None, now: Number) -> Number:
    if isinstance(now, Distribution):
        if not isinstance(before, Distribution) or sum(before.counts) > sum(now.counts):
            return now
        counts = tuple(new - old for new, old in zip(now.counts, before.counts, strict=True))
        return Distribution(now.bounds, counts, now.total - before.total)
    if before is None or isinstance(before, Distribution) or now < before:
        # It has begun anew, as that of a topic that was deleted and created again.
        return now
    return now - before


def _gauges(ways: list[_Way], series: _Series, values: dict[Key, float]) -> Steps[None]:
    for number, (labels, value) in enumerate(series.items(), 1):
        assert not isinstance(value, Distribution)
        for way in ways:
            key = way.key(labels)
            if key is not None:
                _combine(values, key, value, way.figure)
        if number % _AT_ONCE == 0:
            yield


def _rates(
    ways: list[_Way],
    added: _Series,
    interval_s: float,
    values: dict[Key, float],
) -> Steps[None]:
    for number, (labels, value) in enumerate(added.items(), 1):
        assert not isinstance(value, Distribution)
        for way in ways:
            key = way.key(labels)
            if key is not None:
                values[key] = values.get(key, 0.0) + value / interval_s
        if number % _AT_ONCE == 0:
            yield


def _combine(values: dict[Key, float], key: Key, value: float, figure: Figure) -> None:
    known = values.get(key)
    if known is None:
        values[key] = value
    else:
        values[key] = max(known, value) if figure.combined == "max" else known + value


def _distributions(
    ways: list[_Way],
    added: _Series,
    interval_s: float,
    values: dict[Key, float],
) -> None:
    merged: dict[Key, Distribution] = {}
    for labels, value in added.items():
        assert isinstance(value, Distribution)
        for way in ways:
            key = way.key(labels)
            if key is not None:
                known = merged.get(key)
                merged[key] = value if known is None else _merged(known, value)
    for key, each in merged.items():
        count, form = sum(each.counts), FIGURES[key[0]].form
        if form == "rate":
            values[key] = count / interval_s
        elif count:
            values[key] = each.total / count if form == "mean" else quantile(each, _QUANTILE)


def _merged(one: Distribution, other: Distribution) -> Distribution:
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Distribution(one.bounds, counts, one.total + other.total)


def quantile(of: Distribution, share: float) -> float:
    """The value below which a share of all values lies, taken as evenly spread in their bucket.
    Values above all bounds count as the largest bound.
    """
    left = share * sum(of.counts)
    low = 0.0
    for bound, count in zip(of.bounds, of.counts, strict=False):
        if count and left <= count:
            return low + (bound - low) * left / count
        left -= count
        low = bound
    return low


def _subject(key: Key) -> _Subject:
    figure = FIGURES[key[0]]
    index = figure.subject_index
    return _Subject(figure.budget, key[index : index + 1] if index else key)


def _business(series: list[tuple[Key, float]]) -> tuple[float, float]:
    """What is moving comes before what is large."""
    rates = sum(value for key, value in series if FIGURES[key[0]].form == "rate")
    return rates, sum(value for _, value in series) - rates
