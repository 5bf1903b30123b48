"""Histograms as a snapshot has them."""

from __future__ import annotations

from dragoman.histogram import Histogram
from dragoman.telemetry.catalogue import Distribution


def distribution(histogram: Histogram) -> Distribution:
    return Distribution(histogram.bounds, tuple(histogram.counts), histogram.total)
