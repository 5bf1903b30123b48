"""What the history keeps: names, units, and how each figure is made from a metric.

A figure follows one metric of the catalogue (`telemetry/catalogue.py`). Labels that it does not
keep are summed over, or their largest value is taken. A counter becomes a rate per second over the
interval between two samples, because float32 would lose the digits of a large total; a histogram
becomes a rate, a mean and a high quantile of what was added in the interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

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


class Figure(msgspec.Struct, frozen=True):
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


_rate = partial(Figure, form="rate")
_by_protocol = partial(_rate, labels=("protocol",))
#: The largest of the samples and of the nodes.
_largest = partial(Figure, over_time="max", over_nodes="max")
#: Nodes stay apart.
_of_node = partial(Figure, over_nodes=None)
_of_group = partial(Figure, labels=("group",), over_time="max", subject="group", budget="group")
_of_capture = partial(Figure, labels=("capture",), over_time="max", subject="capture")
_of_pipeline = partial(Figure, labels=("pipeline",), subject="pipeline")


def _traffic(direction: Literal["in", "out"], what: Literal["bytes", "records"]) -> list[Figure]:
    """Of all topics together, and by topic."""
    verb = "wrote" if direction == "in" else "read"
    name, unit = f"{what}_{direction}_per_second", f"{what} per second"
    total = _by_protocol(
        name,
        unit,
        f"What clients of a protocol {verb}.",
        f"topic_{what}_total",
        where=("direction", direction),
    )
    by_topic = replace(
        total,
        name=f"topic_{name}",
        help=f"What clients of a protocol {verb}, by topic.",
        labels=("topic", "protocol"),
        subject="topic",
        budget="topic traffic",
    )
    return [total, by_topic]


def _distribution(name: str, metric: str, unit: str, text: str, *labels: str) -> list[Figure]:
    """The mean and a high quantile."""
    mean = _of_node(f"{name}_mean_{unit}", unit, f"{text}, mean.", metric, "mean", labels)
    high = _largest(
        f"{name}_p99_{unit}",
        unit,
        f"{text}, 99th percentile within its bucket.",
        metric,
        "p99",
        labels,
    )
    return [mean, high]


_FIGURES: Final = (
    _by_protocol(
        "requests_per_second",
        "requests per second",
        "Requests that were answered.",
        "requests_total",
    ),
    _by_protocol(
        "request_errors_per_second",
        "errors per second",
        "Errors in answers.",
        "request_errors_total",
    ),
    *_distribution(
        "request", "request_seconds", "seconds", "Time of requests that did not wait", "protocol"
    ),
    *_traffic("in", "bytes"),
    *_traffic("in", "records"),
    *_traffic("out", "bytes"),
    *_traffic("out", "records"),
    Figure(
        "topic_log_bytes",
        "bytes",
        "Size of a topic: of the partitions that the node leads.",
        "topic_log_bytes",
        labels=("topic",),
        subject="topic",
        budget="topic size",
    ),
    _of_group(
        "group_lag_records",
        "records",
        "Records that a group has not committed, of all topics.",
        "group_lag_records",
    ),
    _of_group(
        "group_lag_seconds",
        "seconds",
        "Age of the oldest record that a group has not committed.",
        "group_lag_seconds",
        combined="max",
        over_nodes="max",
    ),
    Figure(
        "connections",
        "connections",
        "Open connections by listener; listeners are named after their protocols.",
        "connections",
        labels=("listener",),
    ),
    _rate(
        "connections_refused_per_second",
        "connections per second",
        "Connections closed because there were too many.",
        "connections_refused_total",
    ),
    *_distribution("loop_lag", "loop_lag_seconds", "seconds", "How late the event loop ran"),
    _rate(
        "journal_syncs_per_second",
        "syncs per second",
        "Durable writes to the journal.",
        "journal_sync_seconds",
    ),
    *_distribution(
        "journal_sync", "journal_sync_seconds", "seconds", "Time of a write to the journal"
    ),
    *_distribution("journal_group", "journal_group_bytes", "bytes", "Bytes of a journal group"),
    _of_node(
        "in_flight_bytes",
        "bytes",
        "Memory of requests and replies in flight.",
        "in_flight_bytes",
        over_time="max",
    ),
    _of_node(
        "memory_budget_bytes",
        "bytes",
        "What requests and replies in flight may hold.",
        "memory_budget_bytes",
    ),
    _of_node(
        "cpu_cores",
        "cores",
        "Processor time per second of the node's process; 1 is a whole core.",
        "process_cpu_seconds_total",
        form="rate",
    ),
    _of_node(
        "resident_memory_bytes",
        "bytes",
        "Resident memory of the node's process.",
        "process_resident_memory_bytes",
    ),
    _of_node(
        "disk_free_bytes",
        "bytes",
        "Free bytes of the data directory's file system.",
        "disk_free_bytes",
    ),
    _of_node("log_bytes", "bytes", "Bytes of all segments.", "log_bytes"),
    Figure(
        "under_replicated_partitions",
        "partitions",
        "Partitions led by the node of which a replica is out of sync.",
        "under_replicated_partitions",
        over_time="max",
    ),
    _largest(
        "offline_partitions",
        "partitions",
        "Partitions of the cluster without a leader.",
        "offline_partitions",
    ),
    _largest(
        "replica_lag_records",
        "records",
        "Records by which a follower is behind a partition, at most.",
        "replica_lag_records",
        labels=("follower",),
        combined="max",
    ),
    _rate(
        "in_sync_changes_per_second",
        "changes per second",
        "Changes of in-sync sets in the cluster.",
        "in_sync_changes_total",
        over_nodes="max",
    ),
    _largest("metadata_term", "term", "Term of the metadata's leader.", "metadata_term"),
    _rate(
        "metadata_leader_changes_per_second",
        "changes per second",
        "Elected leaders of the metadata.",
        "metadata_leader_changes_total",
        over_nodes="max",
    ),
    _of_capture(
        "capture_rows_per_second",
        "rows per second",
        "Rows captured.",
        "capture_rows_total",
        "rate",
        over_time="mean",
    ),
    _of_capture(
        "capture_retained_bytes",
        "bytes",
        "WAL that the database retains.",
        "capture_retained_bytes",
    ),
    _of_capture("capture_lag_bytes", "bytes", "WAL that is not captured yet.", "capture_lag_bytes"),
    _of_capture(
        "capture_lag_seconds", "seconds", "Age of the last captured change.", "capture_lag_seconds"
    ),
    _of_pipeline(
        "pipeline_rows_per_second",
        "rows per second",
        "Rows that a pipeline has processed.",
        "pipeline_rows_total",
        form="rate",
    ),
    _of_pipeline(
        "pipeline_lag_records",
        "records",
        "Records that a pipeline has not read yet.",
        "pipeline_lag_records",
        over_time="max",
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
