"""A running node as the HTTP API sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Raw

from dragoman import __version__
from dragoman.api.captures import CaptureOperations
from dragoman.api.cluster import ClusterOperations
from dragoman.api.pipelines import PipelineReports
from dragoman.api.values import (
    CaptureCheck,
    CaptureCommand,
    CaptureDescription,
    ClusterStatus,
    ConfigValue,
    DamagedRange,
    Elected,
    Election,
    Findings,
    GroupAssignment,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupSummary,
    ListenerStatus,
    MlogEvents,
    Moves,
    NewMoves,
    NewNode,
    NewTopic,
    PartitionDescription,
    Told,
    TopicDescription,
    TopicSummary,
    Transfer,
)
from dragoman.broker import topics as broker_topics
from dragoman.broker.broker import Broker
from dragoman.broker.errors import NotAuthorized
from dragoman.captures.definition import Definition
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from dragoman.config.topics import describe_topic_config
from dragoman.errors import DragomanError
from dragoman.limits import DAMAGED_RANGES_SHOWN_MAX
from dragoman.log.damage import lost_ranges
from dragoman.log.partition import PartitionLog
from dragoman.net.future import future_of
from dragoman.telemetry.catalogue import Stats
from dragoman.types import GroupId

if TYPE_CHECKING:
    from dragoman.server import Node


class BrokerView:
    """Answers for the API's `NodeView` port."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._operations = ClusterOperations(node.broker)
        self._captures = CaptureOperations(node.broker.context, node.captures)
        self.pipelines = PipelineReports(node.clock)

    @property
    def _broker(self) -> Broker:
        return self._node.broker

    def is_serving(self) -> bool:
        return self._broker.is_ready and not self._broker.is_stopping

    def objection(self) -> str:
        if self._broker.is_stopping:
            return "the node is stopping"
        if not self._broker.is_ready:
            return "the node is starting"
        if self._broker.store.is_disk_full or not self._broker.cluster.replication.has_room:
            return "the disk is full"
        return ""

    def own_names(self) -> Iterator[str]:
        yield os.uname().nodename
        own = self._node.settings.cluster_nodes.get(self._broker.node_id)
        if own is not None:
            yield own.host
        for each in self._node.listeners:
            yield each.bound.host
            if each.advertised is not None:
                yield each.advertised.host

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        return self._node.settings.http_allowed_hosts

    def degradation(self) -> str:
        damage = self._damage()
        lost = self._broker.store.journal_damage
        parts = []
        if damage:
            first = damage[0]
            parts.append(
                f"{len(damage)} damaged ranges of records, the first in {first.path} at byte "
                f"{first.position} (topic {first.topic}, partition {first.partition}, offset "
                f"{first.first_offset})"
            )
        if lost:
            parts.append(f"acknowledged records were lost: {lost[0]}")
        return "; ".join(parts)

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
            hidden_from=() if topic.is_internal else self._node.hidden_from(name),
        )

    def _partition(self, metadata: PartitionMetadata) -> PartitionDescription:
        try:
            log: PartitionLog | None = self._broker.held(metadata).log
        except DragomanError:
            log = None
        return PartitionDescription(
            partition=metadata.index,
            leader=metadata.leader if metadata.leader != NO_LEADER else None,
            leader_epoch=metadata.leader_epoch,
            replicas=metadata.replicas,
            in_sync=metadata.in_sync,
            log_start_offset=log.log_start_offset if log is not None else None,
            high_watermark=log.high_watermark if log is not None else None,
            log_end_offset=log.log_end_offset if log is not None else None,
            size_bytes=log.size if log is not None else None,
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
        await future_of(self._broker.topics.create(new))
        described = self.describe_topic(topic.name)
        assert described is not None
        return described

    async def delete_topic(self, name: str) -> None:
        topic = self._broker.image.topics.get(name)
        if topic is not None and topic.is_internal:
            raise NotAuthorized(f"topic {name!r} is the broker's own")
        await future_of(self._broker.topics.delete(name))

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
        leader = broker.quorum.leader
        listeners = tuple(
            ListenerStatus(
                name=each.name,
                bound=str(each.bound),
                advertised=str(each.advertised) if each.advertised else None,
            )
            for each in self._node.listeners
        )
        trouble = self._operations.trouble()
        damage = self._damage()
        return ClusterStatus(
            cluster_id=broker.image.cluster_id,
            node_id=broker.node_id,
            controller=leader if leader != NO_LEADER else None,
            version=__version__,
            feature_level=broker.image.feature_level,
            ready=not self.objection(),
            durability=broker.settings.durability,
            uptime_ms=round((self._node.clock.monotonic() - self._node.started_at) * 1000),
            topics=len(broker.image.topics),
            partitions=len(broker.image.partitions),
            groups=len(broker.coordination.groups),
            nodes=self._operations.nodes(listeners),
            leaderless=trouble.leaderless,
            under_replicated=trouble.under_replicated,
            moving=len(broker.image.moving),
            unclean=trouble.unclean,
            attention=trouble.attention,
            copies=trouble.copies,
            few_copies=trouble.few_copies,
            damaged_ranges=len(damage),
            damage=tuple(damage[:DAMAGED_RANGES_SHOWN_MAX]),
            journal_damage=tuple(
                str(each) for each in broker.store.journal_damage[:DAMAGED_RANGES_SHOWN_MAX]
            ),
        )

    def _damage(self) -> list[DamagedRange]:
        return [
            DamagedRange(
                topic=partition.identity.topic,
                partition=partition.identity.partition,
                first_offset=each.first,
                next_offset=each.next_good,
                path=each.path,
                position=each.position,
            )
            for partition in self._broker.store.open_partitions()
            if partition.is_damaged
            for each in lost_ranges(partition)
        ]

    def mlog_events(self) -> MlogEvents:
        return MlogEvents(items=tuple(map(Raw, self._node.mlog_events())))

    async def add_node(self, node: NewNode) -> Told:
        return await self._operations.add_node(node)

    async def remove_node(self, node_id: int) -> Told:
        return await self._operations.remove_node(node_id)

    async def transfer(self, wanted: Transfer) -> Told:
        return await self._operations.transfer(wanted)

    async def move(self, wanted: NewMoves) -> Moves:
        return await self._operations.move(wanted)

    async def elect(self, wanted: Election) -> Elected:
        return await self._operations.elect(wanted)

    # ---- captures

    async def list_captures(self, after: str, limit: int) -> list[CaptureDescription]:
        names = sorted(name for name in self._broker.image.captures if name > after)
        return await self._captures.describe(names[:limit])

    async def describe_capture(self, name: str) -> CaptureDescription:
        return await self._captures.describe_one(name)

    async def add_capture(self, definition: Definition) -> CaptureDescription:
        return await self._captures.add(definition)

    async def remove_capture(self, name: str, *, keeps_slot: bool) -> Told:
        return await self._captures.remove(name, keeps_slot=keeps_slot)

    async def command_capture(self, name: str, wanted: CaptureCommand) -> Told:
        return await self._captures.command(name, wanted)

    async def check_capture(self, wanted: CaptureCheck) -> Findings:
        return await self._captures.check(wanted)

    def stats(self) -> Stats:
        node, broker = self._node, self._broker
        store = broker.store.stats
        labelled = node.channels.items()
        return {
            "build_info": {(__version__, str(broker.node_id)): 1},
            "ready": int(not self.objection()),
            "uptime_seconds": node.clock.monotonic() - node.started_at,
            "topics": len(broker.image.topics),
            "partitions": len(broker.image.partitions),
            "connections": {(name,): len(each.open) for name, each in labelled},
            "connections_total": {(name,): each.accepted for name, each in labelled},
            "connections_refused_total": {(name,): each.refused for name, each in labelled},
            "received_bytes_total": {(name,): each.bytes_in for name, each in labelled},
            "sent_bytes_total": {(name,): each.bytes_out for name, each in labelled},
            "in_flight_bytes": node.budget.used,
            "peer_in_flight_bytes": node.peer_budget.used,
            "appended_bytes_total": store.committed_bytes,
            "log_bytes": sum(each.log.size for each in broker.open_replicas()),
            "log_damaged_ranges": len(self._damage()),
            "log_damage_found_total": store.damage,
            "journal_groups_total": store.groups,
            "journal_bytes_total": store.committed_bytes,
            **self._captures.stats(),
        }
