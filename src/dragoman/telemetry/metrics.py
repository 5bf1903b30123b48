"""Snapshots as Prometheus text.

Imports prometheus-client, which is slow: import this module at the first scrape, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from dragoman import limits
from dragoman.telemetry.catalogue import (
    METRICS,
    PREFIX,
    Distribution,
    Metric,
    Number,
    Stats,
    StatsError,
)


class Exposition:
    """Renders a node's metrics and those of its process for a scraper."""

    def __init__(self, snapshot: Callable[[], Stats]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StatsCollector(snapshot))
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Text and content type, in the best format for the request's Accept header."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class StatsCollector(Collector):
    """Takes a snapshot at each scrape. Raises `StatsError` for metrics missing in the catalogue."""

    def __init__(self, snapshot: Callable[[], Stats]) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Family]:
        """Nothing: registration must not take a snapshot of a node that is starting."""
        return []

    def collect(self) -> Iterator[Family]:
        stats = self._snapshot()
        unknown = sorted(stats.keys() - METRICS.keys())
        if unknown:
            raise StatsError(f"not in the catalogue of metrics: {', '.join(unknown)}")
        left_out = 0
        for name, entry in stats.items():
            series: Mapping[tuple[str, ...], Number]
            series = entry if isinstance(entry, Mapping) else {(): entry}
            left_out += max(0, len(series) - limits.METRIC_SERIES_MAX)
            yield _family(METRICS[name], series)
        yield GaugeMetricFamily(
            PREFIX + "metric_series_left_out",
            "Series not shown because their metric has too many.",
            value=left_out,
        )


def _family(metric: Metric, series: Mapping[tuple[str, ...], Number]) -> Family:
    family = _EMPTY[metric.kind](metric)
    for labels, number in list(series.items())[: limits.METRIC_SERIES_MAX]:
        if len(labels) != len(metric.labels):
            raise StatsError(f"{metric.name}: expected labels {metric.labels}, got {labels}")
        _add(metric, family, labels, number)
    return family


def _add(metric: Metric, family: Family, labels: tuple[str, ...], number: Number) -> None:
    match family, number:
        case HistogramMetricFamily(), Distribution():
            family.add_metric(labels, _summed_buckets(metric, number), number.total)
        case ((CounterMetricFamily() | GaugeMetricFamily()), int() | float()):
            family.add_metric(labels, number)
        case _:
            raise StatsError(f"{metric.name}: {type(number).__name__} is no {metric.kind}")


def _summed_buckets(metric: Metric, number: Distribution) -> list[tuple[str, float]]:
    """Make buckets cumulative, as Prometheus requires; the last one has no bound."""
    if len(number.counts) != len(number.bounds) + 1:
        raise StatsError(f"{metric.name}: {len(number.bounds)} bounds need one more count")
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*number.bounds, "+Inf"), number.counts, strict=True):
        seen += count
        buckets.append((str(bound), seen))
    return buckets


_EMPTY: dict[str, Callable[[Metric], Family]] = {
    "counter": lambda metric: CounterMetricFamily(
        PREFIX + metric.name, metric.help, labels=metric.labels
    ),
    "gauge": lambda metric: GaugeMetricFamily(
        PREFIX + metric.name, metric.help, labels=metric.labels
    ),
    "histogram": lambda metric: HistogramMetricFamily(
        PREFIX + metric.name, metric.help, labels=metric.labels
    ),
}
