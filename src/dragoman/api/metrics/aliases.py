"""Metrics under the names of other programs, for dashboards that exist already (`metrics.aliases`).

kafka_exporter asks all brokers of a cluster; a node shows the partitions that it leads and the
groups that it coordinates, so the nodes of a cluster together show what the exporter does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dragoman.telemetry.catalogue import Stats

if TYPE_CHECKING:
    from dragoman.api.metrics.lag import GroupLag
    from dragoman.api.metrics.log import LogMetrics
    from dragoman.api.node_ports import NodeBroker, NodeListeners

#: Partitions and committed offsets that are looked at between two pauses.
_AT_ONCE = 500


def kafka_exporter_stats(broker: NodeBroker, log: LogMetrics, lag: GroupLag) -> Iterator[Stats]:
    image = broker.image
    yield {
        "kafka_brokers": len(image.nodes.keys() - image.fenced),
        "kafka_topic_partitions": {
            (name,): len(topic.partitions) for name, topic in image.topics.items()
        },
    }
    yield from _partitions(broker, log)
    yield from _groups(broker, lag)


def _partitions(broker: NodeBroker, log: LogMetrics) -> Iterator[Stats]:
    oldest: dict[tuple[str, ...], int] = {}
    current: dict[tuple[str, ...], int] = {}
    leaders: dict[tuple[str, ...], int] = {}
    preferred: dict[tuple[str, ...], int] = {}
    replicas: dict[tuple[str, ...], int] = {}
    in_sync: dict[tuple[str, ...], int] = {}
    behind: dict[tuple[str, ...], int] = {}
    led = [each for each in broker.image.partitions.values() if each.leader == broker.node_id]
    for number, each in enumerate(led):
        labels = (each.topic.name, str(each.index))
        extent = log.extent(each)
        oldest[labels] = extent.log_start_offset
        opened = broker.partitions.opened(each.partition_id)
        current[labels] = extent.log_end_offset if opened is None else opened.log.high_watermark
        leaders[labels] = each.leader
        preferred[labels] = int(each.leader == each.replicas[0])
        replicas[labels] = len(each.replicas)
        in_sync[labels] = len(each.in_sync)
        behind[labels] = int(len(each.in_sync) < len(each.replicas))
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield {}
    yield {
        "kafka_topic_partition_oldest_offset": oldest,
        "kafka_topic_partition_current_offset": current,
        "kafka_topic_partition_leader": leaders,
        "kafka_topic_partition_leader_is_preferred": preferred,
        "kafka_topic_partition_replicas": replicas,
        "kafka_topic_partition_in_sync_replica": in_sync,
        "kafka_topic_partition_under_replicated_partition": behind,
    }


def _groups(broker: NodeBroker, lag: GroupLag) -> Iterator[Stats]:
    members: dict[tuple[str, ...], int] = {}
    offsets: dict[tuple[str, ...], int] = {}
    offset_sums: Counter[tuple[str, ...]] = Counter()
    lags: dict[tuple[str, ...], int] = {}
    lag_sums: Counter[tuple[str, ...]] = Counter()
    seen = 0
    for group in broker.coordination.groups.table:
        name = group.group_id
        members[(name,)] = 0 if group.membership is None else group.membership.member_count
        for (topic_name, index), committed in list(group.ledger.committed.items()):
            labels = (name, topic_name, str(index))
            offsets[labels] = committed.offset
            offset_sums[name, topic_name] += committed.offset
            topic = broker.image.topics.get(topic_name)
            if topic is None or index >= len(topic.partitions):
                continue
            partition = topic.partitions[index]
            if broker.node_id in partition.replicas:
                lags[labels], _ = lag.behind(partition, committed.offset)
                lag_sums[name, topic_name] += lags[labels]
            seen += 1
            if seen % _AT_ONCE == 0:
                yield {}
    yield {
        "kafka_consumergroup_members": members,
        "kafka_consumergroup_current_offset": offsets,
        "kafka_consumergroup_current_offset_sum": offset_sums,
        "kafka_consumergroup_lag": lags,
        "kafka_consumergroup_lag_sum": lag_sums,
    }


def minibroker_stats(broker: NodeBroker, listeners: NodeListeners) -> Stats:
    counts: Counter[str] = Counter()
    for requests in listeners.requests():
        if requests.protocol == "minibroker":
            for each in requests.counters():
                counts[each.name] += each.count
    stats = broker.store.stats
    return {
        "minibroker_publishes_total": counts["Publish"],
        "minibroker_commits_total": counts["Commit"],
        "minibroker_subscribers_active": listeners.subscriber_count,
        "minibroker_segment_rolls_total": stats.rolls,
        "minibroker_compaction_records_dropped_total": stats.compacted_records,
    }
