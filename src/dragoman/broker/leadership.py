"""Who leads a partition: elections that operators ask for, and moves of replicas.

The first replica of a partition is its preferred leader. A new leader always comes from the in-sync
set, so nothing acknowledged is lost; an election outside of it is not offered. Replicas cannot be
moved yet: a partition stays on the nodes it was created on.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.broker.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.cluster.events import LeaderChanged
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.cluster.quorum import Done, MetadataQuorum
from dragoman.errors import BrokerError

_NO_LEADER = -1


class Leadership:
    def __init__(self, image: MetadataImage, quorum: MetadataQuorum) -> None:
        self._image = image
        self._quorum = quorum

    def elect_preferred(self, partition: PartitionMetadata, done: Done) -> None:
        """Give the lead to the first replica. Refused when it has it or is not in sync."""
        preferred = partition.replicas[0]
        where = f"{partition.topic.name}-{partition.index}"
        if partition.leader == preferred:
            done(ElectionNotNeeded(f"{where}: node {preferred} leads already"))
        elif preferred not in partition.in_sync:
            done(PreferredLeaderNotAvailable(f"{where}: node {preferred} is not in sync"))
        else:
            self._elect(partition, preferred, done)

    def elect_any(self, partition: PartitionMetadata, done: Done) -> None:
        """Give a partition without a leader one of its in-sync replicas."""
        where = f"{partition.topic.name}-{partition.index}"
        if partition.leader != _NO_LEADER:
            done(ElectionNotNeeded(f"{where}: node {partition.leader} leads"))
            return
        live = [node for node in partition.replicas if node in partition.in_sync]
        if live:
            self._elect(partition, live[0], done)
        else:
            done(PreferredLeaderNotAvailable(f"{where}: no replica is in sync"))

    def _elect(self, partition: PartitionMetadata, leader: int, done: Done) -> None:
        event = LeaderChanged(
            partition_id=partition.partition_id,
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            in_sync=partition.in_sync,
            partition_epoch=partition.partition_epoch + 1,
        )
        self._quorum.propose([event], done)

    def check_move(
        self, partition: PartitionMetadata, replicas: Sequence[int], *, may_resize: bool
    ) -> BrokerError | None:
        """Why a partition cannot have these replicas, or None when it has them already."""
        known = all(node in self._image.nodes for node in replicas)
        if not replicas or len(set(replicas)) != len(replicas) or not known:
            return InvalidReplicaAssignment(f"{list(replicas)} is not a list of live nodes")
        if not may_resize and len(replicas) != len(partition.replicas):
            return InvalidReplicationFactor(
                f"{len(replicas)} replicas in place of {len(partition.replicas)}"
            )
        if tuple(replicas) != partition.replicas:
            return InvalidReplicaAssignment("replicas cannot be moved in this release")
        return None

    def cancel_move(self, partition: PartitionMetadata) -> BrokerError:
        where = f"{partition.topic.name}-{partition.index}"
        return NoReassignmentInProgress(f"no replica of {where} is being moved")
