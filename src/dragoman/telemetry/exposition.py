"""Snapshots as text for a scraper: Prometheus 0.0.4, or OpenMetrics 1.0 for those who accept it.

    # HELP dragoman_requests_total Requests received.
    # TYPE dragoman_requests_total counter
    dragoman_requests_total{protocol="kafka",request="Produce"} 7

OpenMetrics names a family of counters without `_total`, escapes quotes in help texts, and ends with
`# EOF`; all else is the same. The text is written in pieces: 1.7 ms per 10,000 samples would be a
long turn of the loop, and reading a large node takes longer still.

Specifications: prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isnan
from typing import NamedTuple

from dragoman.limits import METRIC_SAMPLES_PER_TURN
from dragoman.telemetry.catalogue import Distribution, Metric, Number, Stats
from dragoman.telemetry.snapshot import families


class TextFormat(NamedTuple):
    content_type: str
    is_openmetrics: bool


PLAIN = TextFormat("text/plain; version=0.0.4; charset=utf-8", False)
OPENMETRICS = TextFormat("application/openmetrics-text; version=1.0.0; charset=utf-8", True)


def format_for(accept: str) -> TextFormat:
    """The format for a request's Accept header: OpenMetrics if it is liked no less than plain text.

    Other media types are ignored: plain text is served to all who accept neither.
    """
    plain = openmetrics = 0.0
    for element in accept.lower().split(","):
        kind, *parameters = (each.strip() for each in element.split(";"))
        given = dict(each.split("=", 1) for each in parameters if "=" in each)
        weight = _weight(given.get("q", "1"))
        if kind == "application/openmetrics-text" and given.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, weight)
        elif kind in ("text/plain", "text/*", "*/*"):
            plain = max(plain, weight)
    return OPENMETRICS if openmetrics and openmetrics >= plain else PLAIN


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def pieces(snapshot: Iterable[Stats], form: TextFormat) -> Iterator[bytes]:
    """The text of a snapshot, in pieces that each take about a millisecond to make.

    Raises `StatsError` for what does not fit the catalogue.
    """
    lines: list[str] = []
    for family in families(snapshot):
        if family is None:
            yield _joined(lines)
            continue
        metric, series = family
        lines.append(_head(metric, form))
        name = metric.full_name
        for values, number in series.items():
            _add_samples(lines, name, _labels(metric, values), number)
            if len(lines) >= METRIC_SAMPLES_PER_TURN:
                yield _joined(lines)
    if form.is_openmetrics:
        lines.append("# EOF\n")
    yield _joined(lines)


def _joined(lines: list[str]) -> bytes:
    # A name that clients chose may hold half of a surrogate pair, which UTF-8 cannot.
    text = "".join(lines).encode("utf-8", "replace")
    lines.clear()
    return text


def _head(metric: Metric, form: TextFormat) -> str:
    name, text = metric.full_name, metric.help.replace("\\", r"\\").replace("\n", r"\n")
    if form.is_openmetrics:
        name = name.removesuffix("_total")
        text = text.replace('"', r"\"")
    return f"# HELP {name} {text}\n# TYPE {name} {metric.kind}\n"


def _labels(metric: Metric, values: tuple[str, ...]) -> str:
    """`name="value",…`, without braces."""
    return ",".join(
        [f'{name}="{_escaped(value)}"' for name, value in zip(metric.labels, values, strict=True)]
    )


def _escaped(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _add_samples(lines: list[str], name: str, labels: str, number: Number) -> None:
    if isinstance(number, Distribution):
        _add_buckets(lines, name, labels, number)
    elif labels:
        lines.append(f"{name}{{{labels}}} {_number(number)}\n")
    else:
        lines.append(f"{name} {_number(number)}\n")


def _add_buckets(lines: list[str], name: str, labels: str, number: Distribution) -> None:
    """Buckets are cumulative in the text; the last one has no bound."""
    before = f"{labels}," if labels else ""
    braced = f"{{{labels}}}" if labels else ""
    seen = 0
    for bound, count in zip((*number.bounds, inf), number.counts, strict=True):
        seen += count
        lines.append(f'{name}_bucket{{{before}le="{_number(float(bound))}"}} {seen}\n')
    lines.append(f"{name}_count{braced} {seen}\n")
    lines.append(f"{name}_sum{braced} {_number(number.total)}\n")


def _number(number: float) -> str:
    if isinstance(number, int):
        return str(number)
    if isnan(number):
        return "NaN"
    if number in (inf, -inf):
        return "+Inf" if number > 0 else "-Inf"
    return repr(number)
