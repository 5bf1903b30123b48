"""The metadata image: what all applied events add up to. In memory, the same on every node."""

from __future__ import annotations

from typing import TypeAlias, assert_never

from dragoman.cluster.events import (
    ClientQuotaChanged,
    ClusterCreated,
    Event,
    FeatureLevelChanged,
    GroupConfigChanged,
    LeaderChanged,
    NodeConfigChanged,
    NodeRegistered,
    PartitionPlacement,
    PartitionsAdded,
    ProducerIdsReserved,
    TermBegan,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    VotersChanged,
)

#: The metadata log itself; ordinary partitions are numbered from 1.
METADATA_PARTITION_ID = 0
#: Stands for all nodes where a node's number is expected.
EVERY_NODE = -1
#: Whom a quota is for: kinds and names, sorted by kind.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


class PartitionMetadata:
    __slots__ = (
        "in_sync",
        "index",
        "leader",
        "leader_epoch",
        "partition_epoch",
        "partition_id",
        "replicas",
        "topic",
    )

    def __init__(self, topic: TopicMetadata, index: int, placement: PartitionPlacement) -> None:
        self.topic = topic
        self.index = index
        self.partition_id = placement.partition_id
        self.replicas = placement.replicas
        #: The first replica leads until an event says otherwise.
        self.leader = placement.replicas[0]
        self.leader_epoch = 0
        self.in_sync = placement.replicas
        self.partition_epoch = 0


class TopicMetadata:
    __slots__ = ("config", "created_ms", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, event: TopicCreated) -> None:
        self.name = event.name
        self.topic_id = event.topic_id
        self.config = event.config
        self.is_internal = event.is_internal
        self.created_ms = event.created_ms
        self.partitions: list[PartitionMetadata] = []


class MetadataImage:
    def __init__(self) -> None:
        self.cluster_id = ""
        self.topics: dict[str, TopicMetadata] = {}
        self.topics_by_id: dict[bytes, TopicMetadata] = {}
        self.partitions: dict[int, PartitionMetadata] = {}
        self.nodes: dict[int, int] = {}
        self.next_partition_id = METADATA_PARTITION_ID + 1
        self.next_producer_id = 0
        #: Settings changed at run time, by node; those for every node under `EVERY_NODE`.
        self.node_configs: dict[int, dict[str, str]] = {}
        #: Groups that have a configuration of their own.
        self.group_configs: dict[str, dict[str, str]] = {}
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        #: Levels that were changed; a feature not named here has the level of this release.
        self.features: dict[str, int] = {}
        #: The metadata quorum as last agreed; empty while it is what the nodes were started with.
        self.voters: tuple[int, ...] = ()
        self.learners: tuple[int, ...] = ()
        #: Changes whenever a topic is made, deleted or grows.
        self.topics_revision = 0

    def apply(self, event: Event) -> TopicMetadata | None:
        """Returns the topic that the event removed, if it did."""
        match event:
            case ClusterCreated():
                self.cluster_id = event.cluster_id
            case TopicCreated():
                topic = TopicMetadata(event)
                self.topics[topic.name] = topic
                self.topics_by_id[topic.topic_id] = topic
                self._add_partitions(topic, event.partitions)
            case TopicDeleted():
                self.topics_revision += 1
                topic = self.topics_by_id.pop(event.topic_id)
                del self.topics[topic.name]
                for partition in topic.partitions:
                    del self.partitions[partition.partition_id]
                return topic
            case PartitionsAdded():
                self._add_partitions(self.topics_by_id[event.topic_id], event.partitions)
            case TopicConfigChanged():
                self.topics_by_id[event.topic_id].config = event.config
            case LeaderChanged():
                self._change_leader(event)
            case ProducerIdsReserved():
                self.next_producer_id = max(self.next_producer_id, event.next_id)
            case NodeRegistered():
                self.nodes[event.node_id] = event.incarnation
            case NodeConfigChanged():
                self.node_configs[event.node_id] = event.config
            case GroupConfigChanged():
                if event.config:
                    self.group_configs[event.group_id] = event.config
                else:
                    self.group_configs.pop(event.group_id, None)
            case ClientQuotaChanged():
                self._change_quota(event)
            case FeatureLevelChanged():
                self.features[event.feature] = event.level
            case VotersChanged():
                self.voters, self.learners = event.voters, event.learners
            case TermBegan():
                pass
            case _:
                assert_never(event)
        return None

    def _change_quota(self, event: ClientQuotaChanged) -> None:
        if event.quotas:
            self.client_quotas[event.entity] = event.quotas
        else:
            self.client_quotas.pop(event.entity, None)

    def _add_partitions(
        self, topic: TopicMetadata, placements: tuple[PartitionPlacement, ...]
    ) -> None:
        self.topics_revision += 1
        for placement in placements:
            partition = PartitionMetadata(topic, len(topic.partitions), placement)
            topic.partitions.append(partition)
            self.partitions[placement.partition_id] = partition
            # Ids are never reused, not even those of deleted partitions.
            self.next_partition_id = max(self.next_partition_id, placement.partition_id + 1)

    def _change_leader(self, event: LeaderChanged) -> None:
        partition = self.partitions.get(event.partition_id)
        if partition is None:
            return
        assert event.partition_epoch > partition.partition_epoch
        assert event.leader_epoch >= partition.leader_epoch
        partition.leader = event.leader
        partition.leader_epoch = event.leader_epoch
        partition.in_sync = event.in_sync
        partition.partition_epoch = event.partition_epoch
