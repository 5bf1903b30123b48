"""What the history keeps: names, units, and how each figure is made from a metric.

A figure follows one metric of the catalogue (`telemetry/catalogue.py`). Labels that it does not
keep are summed over, or their largest value is taken. A counter becomes a rate per second over the
interval between two samples, because float32 would lose the digits of a large total; a histogram
becomes a rate, a mean and a high quantile of what was added in the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.limits import (
    HISTORY_GROUP_SERIES_MAX,
    HISTORY_NODE_SERIES_MAX,
    HISTORY_TOPIC_SIZE_SERIES_MAX,
    HISTORY_TOPIC_TRAFFIC_SERIES_MAX,
)
from dragoman.telemetry.catalogue import METRICS

#: Name of a figure and the values of its labels.
Key: TypeAlias = tuple[str, ...]
#: Stands for all topics, groups and so on without series of their own.
OTHERS: Final = "(others)"
#: What a figure is about, which decides who may see it.
Subject: TypeAlias = Literal["cluster", "topic", "group", "capture", "pipeline"]
Form: TypeAlias = Literal["value", "rate", "mean", "p99"]
Reduction: TypeAlias = Literal["sum", "max", "mean"]
#: Series are bounded by budget, so that many topics leave room for groups.
Budget: TypeAlias = Literal["topic traffic", "topic size", "group", "node"]

BUDGETS: Final[dict[Budget, int]] = {
    "topic traffic": HISTORY_TOPIC_TRAFFIC_SERIES_MAX,
    "topic size": HISTORY_TOPIC_SIZE_SERIES_MAX,
    "group": HISTORY_GROUP_SERIES_MAX,
    "node": HISTORY_NODE_SERIES_MAX,
}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    unit: str
    help: str
    #: The metric, and how its series become a value.
    metric: str
    form: Form = "value"
    #: Labels that are kept, and the value that another label must have.
    labels: tuple[str, ...] = ()
    where: tuple[str, str] | None = None
    #: How series of the metric with the same kept labels are combined.
    combined: Literal["sum", "max"] = "sum"
    #: How samples of a longer interval are combined.
    over_time: Literal["mean", "max"] = "mean"
    #: How the values of several nodes are combined; None: they stay apart.
    over_nodes: Literal["sum", "max"] | None = "sum"
    subject: Subject = "cluster"
    budget: Budget = "node"

    @property
    def subject_index(self) -> int:
        """Index, in a key, of the name of the subject; 0: the figure has none."""
        return self.labels.index(self.subject) + 1 if self.subject in self.labels else 0

    def others(self, key: Key) -> Key:
        """The series that stands for a key without one of its own."""
        index = self.subject_index
        if index:
            return (*key[:index], OTHERS, *key[index + 1 :])
        return (key[0], *(OTHERS for _ in key[1:]))


_Direction: TypeAlias = Literal["in", "out"]
_Amount: TypeAlias = Literal["bytes", "records"]
_DIRECTIONS: Final[tuple[_Direction, ...]] = ("in", "out")
_AMOUNTS: Final[tuple[_Amount, ...]] = ("bytes", "records")


def _traffic(direction: _Direction, what: _Amount) -> tuple[Figure, ...]:
    verb = "wrote" if direction == "in" else "read"
    metric, unit = f"topic_{what}_total", f"{what} per second"
    name = f"{what}_{direction}_per_second"
    where = ("direction", direction)
    return (
        Figure(
            name=name,
            unit=unit,
            help=f"What clients of a protocol {verb}.",
            metric=metric,
            form="rate",
            labels=("protocol",),
            where=where,
        ),
        Figure(
            name=f"topic_{name}",
            unit=unit,
            help=f"What clients of a protocol {verb}, by topic.",
            metric=metric,
            form="rate",
            labels=("topic", "protocol"),
            where=where,
            subject="topic",
            budget="topic traffic",
        ),
    )


def _distribution(name: str, metric: str, unit: str, text: str, *labels: str) -> tuple[Figure, ...]:
    """The mean and a high quantile."""
    return (
        Figure(
            name=f"{name}_mean_{unit}",
            unit=unit,
            help=f"{text}, mean.",
            metric=metric,
            form="mean",
            labels=labels,
            over_nodes=None,
        ),
        Figure(
            name=f"{name}_p99_{unit}",
            unit=unit,
            help=f"{text}, 99th percentile within its bucket.",
            metric=metric,
            form="p99",
            labels=labels,
            over_time="max",
            over_nodes="max",
        ),
    )


def _gauge(
    name: str,
    unit: str,
    text: str,
    *,
    over_time: Literal["mean", "max"] = "mean",
    over_nodes: Literal["sum", "max"] | None = "sum",
    metric: str = "",
) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        help=text,
        metric=metric or name,
        over_time=over_time,
        over_nodes=over_nodes,
    )


def _of_capture(
    name: str,
    unit: str,
    text: str,
    *,
    form: Form = "value",
    over_time: Literal["mean", "max"] = "max",
    metric: str = "",
) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        help=text,
        metric=metric or name,
        form=form,
        labels=("capture",),
        over_time=over_time,
        subject="capture",
    )


_FIGURES: Final = (
    Figure(
        name="requests_per_second",
        unit="requests per second",
        help="Requests that were answered.",
        metric="requests_total",
        form="rate",
        labels=("protocol",),
    ),
    Figure(
        name="request_errors_per_second",
        unit="errors per second",
        help="Errors in answers.",
        metric="request_errors_total",
        form="rate",
        labels=("protocol",),
    ),
    *_distribution(
        "request", "request_seconds", "seconds", "Time of requests that did not wait", "protocol"
    ),
    *(
        figure
        for direction in _DIRECTIONS
        for what in _AMOUNTS
        for figure in _traffic(direction, what)
    ),
    Figure(
        name="topic_log_bytes",
        unit="bytes",
        help="Size of a topic: of the partitions that the node leads.",
        metric="topic_log_bytes",
        labels=("topic",),
        subject="topic",
        budget="topic size",
    ),
    Figure(
        name="group_lag_records",
        unit="records",
        help="Records that a group has not committed, of all topics.",
        metric="group_lag_records",
        labels=("group",),
        over_time="max",
        subject="group",
        budget="group",
    ),
    Figure(
        name="group_lag_seconds",
        unit="seconds",
        help="Age of the oldest record that a group has not committed.",
        metric="group_lag_seconds",
        labels=("group",),
        combined="max",
        over_time="max",
        over_nodes="max",
        subject="group",
        budget="group",
    ),
    Figure(
        name="connections",
        unit="connections",
        help="Open connections by listener; listeners are named after their protocols.",
        metric="connections",
        labels=("listener",),
    ),
    Figure(
        name="connections_refused_per_second",
        unit="connections per second",
        help="Connections closed because there were too many.",
        metric="connections_refused_total",
        form="rate",
    ),
    *_distribution("loop_lag", "loop_lag_seconds", "seconds", "How late the event loop ran"),
    Figure(
        name="journal_syncs_per_second",
        unit="syncs per second",
        help="Durable writes to the journal.",
        metric="journal_sync_seconds",
        form="rate",
    ),
    *_distribution(
        "journal_sync", "journal_sync_seconds", "seconds", "Time of a write to the journal"
    ),
    *_distribution("journal_group", "journal_group_bytes", "bytes", "Bytes of a journal group"),
    _gauge(
        "in_flight_bytes",
        "bytes",
        "Memory of requests and replies in flight.",
        over_time="max",
        over_nodes=None,
    ),
    _gauge(
        "memory_budget_bytes",
        "bytes",
        "What requests and replies in flight may hold.",
        over_nodes=None,
    ),
    Figure(
        name="cpu_cores",
        unit="cores",
        help="Processor time per second of the node's process; 1 is a whole core.",
        metric="process_cpu_seconds_total",
        form="rate",
        over_nodes=None,
    ),
    _gauge(
        "resident_memory_bytes",
        "bytes",
        "Resident memory of the node's process.",
        metric="process_resident_memory_bytes",
        over_nodes=None,
    ),
    _gauge(
        "disk_free_bytes",
        "bytes",
        "Free bytes of the data directory's file system.",
        over_nodes=None,
    ),
    _gauge("log_bytes", "bytes", "Bytes of all segments.", over_nodes=None),
    _gauge(
        "under_replicated_partitions",
        "partitions",
        "Partitions led by the node of which a replica is out of sync.",
        over_time="max",
    ),
    _gauge(
        "offline_partitions",
        "partitions",
        "Partitions of the cluster without a leader.",
        over_time="max",
        over_nodes="max",
    ),
    Figure(
        name="replica_lag_records",
        unit="records",
        help="Records by which a follower is behind a partition, at most.",
        metric="replica_lag_records",
        labels=("follower",),
        combined="max",
        over_time="max",
        over_nodes="max",
    ),
    Figure(
        name="in_sync_changes_per_second",
        unit="changes per second",
        help="Changes of in-sync sets in the cluster.",
        metric="in_sync_changes_total",
        form="rate",
        over_nodes="max",
    ),
    _gauge(
        "metadata_term",
        "term",
        "Term of the metadata's leader.",
        over_time="max",
        over_nodes="max",
    ),
    Figure(
        name="metadata_leader_changes_per_second",
        unit="changes per second",
        help="Elected leaders of the metadata.",
        metric="metadata_leader_changes_total",
        form="rate",
        over_nodes="max",
    ),
    _of_capture(
        "capture_rows_per_second",
        "rows per second",
        "Rows captured.",
        form="rate",
        over_time="mean",
        metric="capture_rows_total",
    ),
    _of_capture("capture_retained_bytes", "bytes", "WAL that the database retains."),
    _of_capture("capture_lag_bytes", "bytes", "WAL that is not captured yet."),
    _of_capture("capture_lag_seconds", "seconds", "Age of the last captured change."),
    Figure(
        name="pipeline_rows_per_second",
        unit="rows per second",
        help="Rows that a pipeline has processed.",
        metric="pipeline_rows_total",
        form="rate",
        labels=("pipeline",),
        subject="pipeline",
    ),
    Figure(
        name="pipeline_lag_records",
        unit="records",
        help="Records that a pipeline has not read yet.",
        metric="pipeline_lag_records",
        labels=("pipeline",),
        over_time="max",
        subject="pipeline",
    ),
)

FIGURES: Final[dict[str, Figure]] = {each.name: each for each in _FIGURES}


def is_known(key: Key) -> bool:
    """False for a series of another release, and for one that was lost with damage of a file."""
    figure = FIGURES.get(key[0]) if key else None
    return figure is not None and len(key) == 1 + len(figure.labels)


def by_metric(figures: Iterable[Figure] = _FIGURES) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for each in figures:
        assert each.metric in METRICS, each.metric
        found.setdefault(each.metric, []).append(each)
    return found
