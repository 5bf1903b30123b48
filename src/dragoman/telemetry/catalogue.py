"""The metrics of a node: names, kinds, labels and meanings.

A part of a snapshot (`Stats`) is a plain mapping, made on request; in between, counters are plain
integers where the work is done. Names here lack the prefix `dragoman_` that every metric has in the
exposition. `snapshot.py` checks and bounds snapshots, `exposition.py` turns them into text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from dragoman.errors import DragomanError

PREFIX = "dragoman_"


class Distribution(msgspec.Struct, frozen=True):
    """A histogram: a count per bucket (not cumulative), with one more bucket than bounds, and the
    sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


Number: TypeAlias = int | float | Distribution
#: By metric name: one number, or one per tuple of label values in the catalogue's order of labels.
Stats: TypeAlias = Mapping[str, Number | Mapping[tuple[str, ...], Number]]


class Metric(msgspec.Struct, frozen=True):
    """A row of the catalogue. The name of a counter ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    #: What becomes of a gauge's series beyond the bound (`snapshot.py`).
    beyond: Literal["sum", "max", "omit"] = "sum"


class StatsError(DragomanError):
    """A snapshot does not fit the catalogue."""


_METRICS = (
    Metric("build_info", "gauge", "1, with the release and node as labels.", ("version", "node")),
    Metric("ready", "gauge", "1 when the node serves clients, else 0."),
    Metric("uptime_seconds", "gauge", "Time since the node started."),
    Metric("topics", "gauge", "Topics, internal ones included."),
    Metric("partitions", "gauge", "Partitions of all topics."),
    Metric("groups", "gauge", "Groups by state.", ("state",)),
    Metric("connections", "gauge", "Open connections.", ("listener",)),
    Metric("connections_accepted_total", "counter", "Connections accepted.", ("listener",)),
    Metric(
        "connections_refused_total",
        "counter",
        "Connections closed at once because there were too many.",
        ("listener",),
    ),
    Metric("tls_handshakes", "gauge", "TLS handshakes in progress."),
    Metric(
        "tls_handshakes_ended_total",
        "counter",
        "TLS handshakes that have ended: completed, failed, or displaced by others.",
        ("result",),
    ),
    Metric(
        "tls_certificate_expiry_seconds",
        "gauge",
        "Unix time at which the certificate of a listener expires.",
        ("listener",),
        beyond="omit",
    ),
    Metric(
        "requests_total",
        "counter",
        "Requests that were answered, or whose client left before the answer.",
        ("protocol", "request"),
    ),
    Metric(
        "request_errors_total",
        "counter",
        "Errors in answers; an answer for many partitions may have many.",
        ("protocol", "request", "code"),
    ),
    Metric(
        "request_seconds",
        "histogram",
        "Time from the read of a request to its answer, without those that were parked.",
        ("protocol", "request"),
    ),
    Metric(
        "parked_request_seconds",
        "histogram",
        "The same for requests that waited for records or for members of a group.",
        ("protocol", "request"),
    ),
    Metric("received_bytes_total", "counter", "Bytes received from clients.", ("listener",)),
    Metric("sent_bytes_total", "counter", "Bytes sent to clients.", ("listener",)),
    Metric("in_flight_bytes", "gauge", "Memory of requests and replies in flight."),
    Metric("peer_in_flight_bytes", "gauge", "Memory of requests and replies between nodes."),
    Metric("appended_batches_total", "counter", "Record batches appended to the log."),
    Metric("appended_bytes_total", "counter", "Bytes of record batches appended to the log."),
    Metric("fetched_bytes_total", "counter", "Bytes of record batches handed to readers."),
    Metric("log_bytes", "gauge", "Bytes of all segments."),
    Metric("log_damaged_ranges", "gauge", "Ranges of offsets that damage makes unreadable."),
    Metric("log_damage_found_total", "counter", "Findings of damage in the data directory."),
    Metric("journal_groups_total", "counter", "Groups written to the journal."),
    Metric("journal_bytes_total", "counter", "Bytes written to the journal."),
    Metric("journal_sync_seconds", "histogram", "Time of a durable write to the journal."),
    Metric("captures", "gauge", "Captures of databases that the node runs, by state.", ("state",)),
    Metric("capture_rows_total", "counter", "Rows captured.", ("capture",)),
    Metric("capture_transactions_total", "counter", "Transactions captured.", ("capture",)),
    Metric("capture_rows_per_second", "gauge", "Rows captured lately.", ("capture",)),
    Metric("capture_lag_bytes", "gauge", "WAL that is not captured yet.", ("capture",)),
    Metric(
        "capture_lag_seconds",
        "gauge",
        "Age of the last captured change.",
        ("capture",),
        beyond="max",
    ),
    Metric("capture_retained_bytes", "gauge", "WAL that the database retains.", ("capture",)),
    Metric("capture_restarts_total", "counter", "Restarts of capture processes.", ("capture",)),
    Metric("process_cpu_seconds_total", "counter", "Processor time of the node's process."),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of the node's process."),
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory of the node's process."),
    Metric("process_start_time_seconds", "gauge", "Unix time at which the process started."),
    Metric("process_open_fds", "gauge", "Open descriptors of the process."),
    Metric("process_max_fds", "gauge", "How many descriptors the process may open."),
    Metric(
        "metric_series_left_out",
        "gauge",
        "Series that are not shown by themselves because their metric has too many.",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
