"""Histograms as a snapshot has them."""

from __future__ import annotations

from dragoman.histogram import Histogram
from dragoman.telemetry.catalogue import Distribution


def distribution(histogram: Histogram, total: float | None = None) -> Distribution:
    """`total` is given where the sum of the values is counted apart."""
    shown = histogram.total if total is None else total
    return Distribution(histogram.bounds, histogram.buckets(), shown)
