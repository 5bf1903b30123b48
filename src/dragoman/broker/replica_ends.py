"""How far the replicas of partitions are, asked of those who know: their leaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dragoman.broker.neighbours import Answer, FindReplicaEnds, Neighbours, ReplicaEnds
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata
from dragoman.errors import DragomanError

#: By partition id and node: the end of what the node has on stable storage.
Ends = dict[int, dict[int, int]]


class Replication(Protocol):
    def follower_ends(self, partition_id: int) -> dict[int, int]:
        """By node: how far the followers of a partition that this node leads are."""
        ...


class Clustering(Protocol):
    @property
    def replication(self) -> Replication: ...


class ReplicaSource(Protocol):
    """The node that asks, and is asked."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def neighbours(self) -> Neighbours: ...

    @property
    def clustering(self) -> Clustering: ...

    def held(self, metadata: PartitionMetadata, /) -> Replica:
        """The node's own replica of a partition."""
        ...


def replica_ends(broker: ReplicaSource, partition_ids: Sequence[int]) -> Ends:
    """Of the partitions among these that this node leads."""
    found: Ends = {}
    for partition_id in partition_ids:
        partition = broker.image.partitions.get(partition_id)
        if partition is not None and partition.leader == broker.node_id:
            replica = broker.held(partition)
            ends = broker.clustering.replication.follower_ends(partition_id)
            found[partition_id] = {broker.node_id: replica.log.log_end_offset, **ends}
    return found


def find_replica_ends(
    broker: ReplicaSource, partitions: Sequence[PartitionMetadata], done: Callable[[Ends], None]
) -> None:
    """`done` is given what could be found out; a leader that is away knows nothing."""
    by_leader: dict[int, list[int]] = {}
    for each in partitions:
        by_leader.setdefault(each.leader, []).append(each.partition_id)
    found = replica_ends(broker, by_leader.pop(broker.node_id, []))
    by_leader.pop(-1, None)
    waiting = len(by_leader)
    if not waiting:
        done(found)
        return

    def answered(answer: Answer | DragomanError) -> None:
        nonlocal waiting
        waiting -= 1
        if isinstance(answer, Answer) and isinstance(answer.reply, ReplicaEnds):
            found.update(answer.reply.ends)
        if not waiting:
            done(found)

    for leader, partition_ids in by_leader.items():
        request = FindReplicaEnds(partition_ids=tuple(partition_ids))
        broker.neighbours.ask(leader, request, (), answered)
