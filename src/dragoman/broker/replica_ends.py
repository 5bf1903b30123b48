"""The progress of the replicas of partitions, as their leaders know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dragoman.broker.context import NodeContext
from dragoman.broker.partitions import Partitions
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.outcome import attempt, gather, start
from dragoman.rpc import Answer, Call, Node, Registry, Request, Rpc

#: By partition id and node: the end of the node's stable storage.
Ends: TypeAlias = dict[int, dict[int, int]]


class ReplicaEnds(Answer, frozen=True, kw_only=True, tag="ReplicaEnds"):
    """By partition id and node."""

    ends: dict[int, dict[int, int]] = {}


class FindReplicaEnds(Request[ReplicaEnds], frozen=True, kw_only=True, tag="FindReplicaEnds"):
    """Answered for the partitions that the node leads."""

    partition_ids: tuple[int, ...]


class ReplicaEndFinder:
    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        follower_ends: Callable[[int], dict[int, int]],
        rpc: Rpc,
    ) -> None:
        """`follower_ends`: by node, for a partition that this node leads."""
        self._context = context
        self._partitions = partitions
        self._follower_ends = follower_ends
        self._rpc = rpc

    def serve(self, registry: Registry) -> None:
        registry.serve(FindReplicaEnds, self._answer)

    async def _answer(self, call: Call[FindReplicaEnds]) -> ReplicaEnds:
        return ReplicaEnds(ends=self._led(call.request.partition_ids))

    def _led(self, partition_ids: Sequence[int]) -> Ends:
        """The ends of those partitions that this node leads."""
        found: Ends = {}
        for partition_id in partition_ids:
            partition = self._context.image.partitions.get(partition_id)
            if partition is not None and partition.leader == self._context.node_id:
                replica = self._partitions.held(partition)
                ends = self._follower_ends(partition_id)
                own = {self._context.node_id: replica.log.log_end_offset}
                found[partition_id] = {**own, **ends}
        return found

    async def find(self, partitions: Sequence[PartitionMetadata]) -> Ends:
        """The known ends; partitions whose leader does not answer are missing."""
        by_leader: dict[int, list[int]] = {}
        for each in partitions:
            by_leader.setdefault(each.leader, []).append(each.partition_id)
        found = self._led(by_leader.pop(self._context.node_id, []))
        by_leader.pop(-1, None)
        answers = await gather(
            [
                start(
                    attempt(self._rpc.call(FindReplicaEnds(partition_ids=tuple(ids)), Node(leader)))
                )
                for leader, ids in by_leader.items()
            ]
        )
        for answer in answers:
            if not isinstance(answer, DragomanError):
                found.update(answer.ends)
        return found
