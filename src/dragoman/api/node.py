"""A running node as the HTTP API sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman import __version__
from dragoman.api.values import (
    ClusterStatus,
    ConfigValue,
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupSummary,
    ListenerStatus,
    NewTopic,
    NodeStatus,
    PartitionDescription,
    TopicDescription,
    TopicSummary,
)
from dragoman.broker import topics as broker_topics
from dragoman.broker.broker import Broker
from dragoman.broker.replica import Acknowledge
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.config.topics import describe_topic_config
from dragoman.errors import DragomanError
from dragoman.telemetry.catalogue import Stats
from dragoman.types import GroupId

if TYPE_CHECKING:
    from dragoman.server import Node


class BrokerView:
    """Answers for the API's `NodeView` port."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def _broker(self) -> Broker:
        return self._node.broker

    def is_ready(self) -> bool:
        return self._broker.is_ready and not self._broker.is_stopping

    # ---- topics

    def list_topics(self, after: str, limit: int) -> list[TopicSummary]:
        names = sorted(name for name in self._broker.image.topics if name > after)
        return [self._summary(self._broker.image.topics[name]) for name in names[:limit]]

    def _summary(self, topic: TopicMetadata) -> TopicSummary:
        return TopicSummary(
            name=topic.name,
            partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            internal=topic.is_internal,
        )

    def describe_topic(self, name: str) -> TopicDescription | None:
        topic = self._broker.image.topics.get(name)
        if topic is None:
            return None
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id.hex(),
            internal=topic.is_internal,
            partitions=tuple(self._partition(each) for each in topic.partitions),
            config=tuple(
                ConfigValue(
                    name=entry.key.name,
                    value=entry.text,
                    source=entry.source.value,
                    effective=getattr(entry.key, "effective", True),
                )
                for entry in describe_topic_config(self._broker.settings, topic.config)
            ),
        )

    def _partition(self, metadata: PartitionMetadata) -> PartitionDescription:
        log = self._broker.replica(metadata).log
        return PartitionDescription(
            partition=metadata.index,
            leader=metadata.leader,
            leader_epoch=metadata.leader_epoch,
            replicas=metadata.replicas,
            in_sync=metadata.in_sync,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size,
        )

    async def create_topic(self, topic: NewTopic) -> TopicDescription:
        default = broker_topics.DEFAULT
        new = broker_topics.NewTopic(
            name=topic.name,
            partition_count=topic.partitions if topic.partitions is not None else default,
            replication_factor=topic.replication_factor
            if topic.replication_factor is not None
            else default,
            config=topic.config,
        )
        await _called_back(lambda done: self._broker.topics.create(new, done))
        described = self.describe_topic(topic.name)
        assert described is not None
        return described

    async def delete_topic(self, name: str) -> None:
        await _called_back(lambda done: self._broker.topics.delete(name, done))

    # ---- groups

    def list_groups(self, after: str, limit: int) -> list[GroupSummary]:
        groups = self._broker.coordination.groups
        listed = sorted(
            (each for each in groups.listings() if each.group_id > after),
            key=lambda each: each.group_id,
        )
        return [
            GroupSummary(
                group=each.group_id,
                protocol=each.owner or "",
                state=each.state.value,
                members=len(groups.describe(each.group_id).members),
            )
            for each in listed[:limit]
        ]

    def describe_group(self, group: str) -> GroupDescription | None:
        coordination = self._broker.coordination
        group_id = GroupId(group)
        if coordination.groups.get(group_id) is None:
            return None
        described = coordination.groups.describe(group_id)
        assigned = coordination.groups.assignments(group_id)
        return GroupDescription(
            group=group,
            protocol=described.owner or "",
            state=described.state.value,
            generation=described.generation,
            coordinator=self._broker.node_id,
            members=tuple(
                GroupMember(
                    member_id=each.member_id,
                    client_id=each.client_id,
                    host=each.client_host,
                    assignment=tuple(
                        GroupAssignment(topic=topic, partitions=tuple(partitions))
                        for topic, partitions in assigned.get(each.member_id, ())
                    ),
                )
                for each in described.members
            ),
            offsets=tuple(
                self._offset(topic, partition, committed.offset)
                for (topic, partition), committed in sorted(
                    coordination.offsets.all_committed(group_id).items()
                )
            ),
        )

    def _offset(self, topic: str, partition: int, committed: int) -> GroupOffset:
        try:
            end: int | None = self._broker.find(topic, partition).log.high_watermark
        except DragomanError:
            end = None
        return GroupOffset(
            topic=topic,
            partition=partition,
            committed_offset=committed,
            log_end_offset=end,
            lag_records=None if end is None else max(0, end - committed),
        )

    # ---- the node

    def cluster_status(self) -> ClusterStatus:
        broker = self._broker
        return ClusterStatus(
            cluster_id=broker.image.cluster_id,
            node_id=broker.node_id,
            controller=broker.quorum.leader,
            version=__version__,
            ready=self.is_ready(),
            durability=broker.settings.durability,
            uptime_ms=round((self._node.clock.monotonic() - self._node.started_at) * 1000),
            topics=len(broker.image.topics),
            partitions=len(broker.image.partitions),
            groups=len(broker.coordination.groups),
            nodes=(
                NodeStatus(
                    node_id=broker.node_id,
                    alive=True,
                    listeners=tuple(
                        ListenerStatus(
                            name=each.name,
                            bound=str(each.bound),
                            advertised=str(each.advertised) if each.advertised else None,
                        )
                        for each in self._node.listeners
                    ),
                ),
            ),
        )

    def stats(self) -> Stats:
        node, broker = self._node, self._broker
        store = broker.store.stats
        labelled = node.channels.items()
        return {
            "build_info": {(__version__, str(broker.node_id)): 1},
            "ready": int(self.is_ready()),
            "uptime_seconds": node.clock.monotonic() - node.started_at,
            "topics": len(broker.image.topics),
            "partitions": len(broker.image.partitions),
            "connections": {(name,): len(each.open) for name, each in labelled},
            "connections_total": {(name,): each.accepted for name, each in labelled},
            "received_bytes_total": {(name,): each.bytes_in for name, each in labelled},
            "sent_bytes_total": {(name,): each.bytes_out for name, each in labelled},
            "in_flight_bytes": node.budget.used,
            "appended_bytes_total": store.committed_bytes,
            "log_bytes": sum(each.log.size for each in broker.open_replicas()),
            "journal_groups_total": store.groups,
            "journal_bytes_total": store.committed_bytes,
        }


async def _called_back(begin: Callable[[Acknowledge], None]) -> None:
    """Wait for an operation of the core that answers through a callback."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: DragomanError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    begin(done)
    await future
