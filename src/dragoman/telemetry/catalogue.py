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
    #: Whether the name is another program's, and has no prefix.
    is_alias: bool = False
    #: The first release that has it.
    since: str = "0.1.0"

    @property
    def full_name(self) -> str:
        return self.name if self.is_alias else PREFIX + self.name


class StatsError(DragomanError):
    """A snapshot does not fit the catalogue."""


_METRICS = (
    Metric("build_info", "gauge", "1, with the release and node as labels.", ("version", "node")),
    Metric("ready", "gauge", "1 when the node serves clients, else 0."),
    Metric("uptime_seconds", "gauge", "Time since the node started."),
    Metric("topics", "gauge", "Topics, internal ones included."),
    Metric("partitions", "gauge", "Partitions of all topics."),
    Metric("groups", "gauge", "Groups that this node coordinates, by state.", ("state",)),
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
    Metric("memory_budget_bytes", "gauge", "What requests and replies in flight may hold."),
    Metric("peer_in_flight_bytes", "gauge", "Memory of requests and replies between nodes."),
    Metric(
        "loop_lag_seconds",
        "histogram",
        "How late the event loop ran what was due, by a timer twice a second while clients send.",
    ),
    Metric("appended_batches_total", "counter", "Record batches appended to the log."),
    Metric("appended_bytes_total", "counter", "Bytes of record batches appended to the log."),
    Metric("fetched_bytes_total", "counter", "Bytes of record batches read for readers."),
    Metric(
        "log_bytes",
        "gauge",
        "Bytes of all segments; of partitions that are not open, of those that manifests list.",
    ),
    Metric(
        "topic_bytes_total",
        "counter",
        "Bytes that clients wrote to a topic (in) and read from it (out): record batches with "
        "Kafka, else keys and values, or encoded messages.",
        ("topic", "direction", "protocol"),
    ),
    Metric(
        "topic_records_total",
        "counter",
        "Records that clients wrote to a topic and read from it.",
        ("topic", "direction", "protocol"),
    ),
    Metric("topic_log_bytes", "gauge", "Bytes of the partitions led by this node.", ("topic",)),
    Metric(
        "topic_log_records",
        "gauge",
        "Offsets between start and end of the partitions led by this node.",
        ("topic",),
    ),
    Metric(
        "partition_bytes",
        "gauge",
        "Bytes of a partition led by this node; not shown if it leads more than 2000.",
        ("topic", "partition"),
    ),
    Metric(
        "partition_log_start_offset",
        "gauge",
        "First offset of such a partition.",
        ("topic", "partition"),
        beyond="omit",
    ),
    Metric(
        "partition_log_end_offset",
        "gauge",
        "Offset after the last record of such a partition.",
        ("topic", "partition"),
        beyond="omit",
    ),
    Metric("segment_rolls_total", "counter", "Segments that were closed."),
    Metric("compaction_dropped_records_total", "counter", "Records that compaction removed."),
    Metric("log_dirty_bytes", "gauge", "Bytes in the journal and not yet in segments."),
    Metric("log_quarantined_bytes", "gauge", "Bytes of damaged files that are kept aside."),
    Metric("disk_free_bytes", "gauge", "Free bytes of the data directory's file system."),
    Metric("disk_size_bytes", "gauge", "Size of that file system."),
    Metric("log_damaged_ranges", "gauge", "Ranges of offsets that damage makes unreadable."),
    Metric("topic_damaged_ranges", "gauge", "The same by topic; only of damaged ones.", ("topic",)),
    Metric("log_damage_found_total", "counter", "Findings of damage in the data directory."),
    Metric("journal_groups_total", "counter", "Groups written to the journal."),
    Metric("journal_bytes_total", "counter", "Bytes written to the journal."),
    Metric("journal_sync_seconds", "histogram", "Time of a durable write to the journal."),
    Metric("journal_group_bytes", "histogram", "Bytes of the groups of appends."),
    Metric("journal_group_batches", "histogram", "Record batches of the groups of appends."),
    Metric("checkpoint_seconds", "histogram", "Time of a checkpoint, most of it in background."),
    Metric("replicas", "gauge", "Partitions of which this node has a replica."),
    Metric("leader_partitions", "gauge", "Partitions that this node leads."),
    Metric(
        "under_replicated_partitions",
        "gauge",
        "Partitions led by this node of which a replica is out of sync.",
    ),
    Metric(
        "under_min_insync_partitions",
        "gauge",
        "Partitions led by this node with fewer replicas in sync than `min.insync.replicas`.",
    ),
    Metric("offline_partitions", "gauge", "Partitions of the cluster without a leader."),
    Metric("moving_partitions", "gauge", "Partitions of the cluster whose replicas are moving."),
    Metric("fenced_nodes", "gauge", "Nodes of the cluster without a session."),
    Metric(
        "replica_lag_records",
        "gauge",
        "Records by which a follower is behind a partition led by this node, at most.",
        ("follower",),
        beyond="max",
    ),
    Metric(
        "partition_leader_changes_total",
        "counter",
        "Changes of the leaders of partitions in the cluster, seen since this node started.",
    ),
    Metric(
        "in_sync_changes_total",
        "counter",
        "Changes of in-sync sets in the cluster, seen since this node started.",
    ),
    Metric("is_controller", "gauge", "1 if this node leads the metadata, else 0."),
    Metric(
        "metadata_has_leader",
        "gauge",
        "1 if the leader of the metadata is this node, or has answered it within ten seconds.",
    ),
    Metric("metadata_term", "gauge", "Term of the metadata's leader: Raft's, or etcd's revision."),
    Metric("metadata_version", "gauge", "Changes of the metadata that this node has applied."),
    Metric(
        "metadata_committed_offset",
        "gauge",
        "End of the metadata log that is known to be committed; not with etcd.",
    ),
    Metric(
        "metadata_leader_changes_total",
        "counter",
        "Leaders of the metadata that this node has seen elected.",
    ),
    Metric(
        "group_lag_records",
        "gauge",
        "Records of a topic that a group has not committed, of partitions with a replica here.",
        ("group", "topic"),
    ),
    Metric(
        "group_lag_max_records",
        "gauge",
        "The same of the partition that is furthest behind.",
        ("group", "topic"),
        beyond="max",
    ),
    Metric(
        "group_lag_seconds",
        "gauge",
        "Age of the oldest record that a group has not committed, by the record's timestamp.",
        ("group", "topic"),
        beyond="max",
    ),
    Metric("group_members", "gauge", "Members of the groups that this node coordinates."),
    Metric("transactions_open", "gauge", "Transactions in progress that this node coordinates."),
    Metric("transactional_ids", "gauge", "Transactional ids that this node coordinates."),
    Metric("delayed_records", "gauge", "Delayed and held records that this node stores."),
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
    Metric(
        "capture_snapshot_tables",
        "gauge",
        "Tables whose snapshots are done, and those left.",
        ("capture", "state"),
    ),
    Metric("capture_snapshot_rows", "gauge", "Rows that snapshots have copied.", ("capture",)),
    Metric("capture_restarts_total", "counter", "Restarts of capture processes.", ("capture",)),
    Metric("pipelines", "gauge", "Pipelines that report to this node, by state.", ("state",)),
    Metric(
        "pipeline_rows_total",
        "counter",
        "Rows that a sink or job of a pipeline has processed.",
        ("pipeline", "part"),
    ),
    Metric(
        "pipeline_lag_records",
        "gauge",
        "Records that a sink or job of a pipeline has not read yet.",
        ("pipeline", "part"),
    ),
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


def _alias(kind: Literal["counter", "gauge"], name: str, text: str, *labels: str) -> Metric:
    is_sum = "offset" not in name and "leader" not in name
    return Metric(name, kind, text, labels, "sum" if is_sum else "omit", is_alias=True)


_OF_PARTITION = ("topic", "partition")
_OF_GROUP = ("consumergroup", "topic", "partition")
#: By value of `metrics.aliases`: metrics under the names of another program.
_ALIASES: dict[str, tuple[Metric, ...]] = {
    "kafka_exporter": (
        _alias("gauge", "kafka_brokers", "Nodes with a session."),
        _alias("gauge", "kafka_topic_partitions", "Partitions of a topic.", "topic"),
        _alias(
            "gauge",
            "kafka_topic_partition_current_offset",
            "Offset after the last committed record.",
            *_OF_PARTITION,
        ),
        _alias("gauge", "kafka_topic_partition_oldest_offset", "First offset.", *_OF_PARTITION),
        _alias("gauge", "kafka_topic_partition_leader", "Number of the leader.", *_OF_PARTITION),
        _alias(
            "gauge",
            "kafka_topic_partition_leader_is_preferred",
            "1 if the first replica leads.",
            *_OF_PARTITION,
        ),
        _alias("gauge", "kafka_topic_partition_replicas", "Replicas.", *_OF_PARTITION),
        _alias(
            "gauge", "kafka_topic_partition_in_sync_replica", "Replicas in sync.", *_OF_PARTITION
        ),
        _alias(
            "gauge",
            "kafka_topic_partition_under_replicated_partition",
            "1 if a replica is out of sync.",
            *_OF_PARTITION,
        ),
        _alias("gauge", "kafka_consumergroup_members", "Members of a group.", "consumergroup"),
        _alias("gauge", "kafka_consumergroup_current_offset", "Committed offset.", *_OF_GROUP),
        _alias(
            "gauge",
            "kafka_consumergroup_current_offset_sum",
            "Sum of the committed offsets.",
            "consumergroup",
            "topic",
        ),
        _alias("gauge", "kafka_consumergroup_lag", "Records not committed.", *_OF_GROUP),
        _alias(
            "gauge",
            "kafka_consumergroup_lag_sum",
            "Records not committed.",
            "consumergroup",
            "topic",
        ),
    ),
    "minibroker": (
        _alias("counter", "minibroker_publishes_total", "PUB requests."),
        _alias("counter", "minibroker_commits_total", "COMMIT requests."),
        _alias("gauge", "minibroker_subscribers_active", "Subscriptions."),
        _alias("counter", "minibroker_segment_rolls_total", "Segments that were closed."),
        _alias(
            "counter",
            "minibroker_compaction_records_dropped_total",
            "Records that compaction removed.",
        ),
    ),
}

ALIASES: dict[str, dict[str, Metric]] = {
    program: {metric.name: metric for metric in metrics} for program, metrics in _ALIASES.items()
}
#: Every metric that a snapshot may have.
KNOWN: dict[str, Metric] = METRICS | {
    name: metric for metrics in ALIASES.values() for name, metric in metrics.items()
}
