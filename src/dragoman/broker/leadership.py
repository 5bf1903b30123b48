"""Who leads and who holds a partition, as operators want it: asked of the controller.

The first replica of a partition is its preferred leader. A leader always has everything that is
committed; one that may not have it is elected only by `elect_unclean`, which loses records for good
and is kept in the metadata as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dragoman.broker.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.replication.messages import (
    ControlReply,
    Decision,
    ElectPreferred,
    ElectUnclean,
    Move,
    PartitionRequest,
)


class Controller(Protocol):
    async def request(self, request: PartitionRequest) -> ControlReply | None: ...


class Leadership:
    def __init__(self, image: MetadataImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    # ---- elections

    async def elect_preferred(self, partition: PartitionMetadata) -> None:
        """Give the lead to the first replica. Refused when it has it or is not in sync."""
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded(f"{_where(partition)}: node {preferred} leads already")
        if preferred not in partition.in_sync:
            raise PreferredLeaderNotAvailable(f"{_where(partition)}: {preferred} is not in sync")
        await self._ask(ElectPreferred(partition_id=partition.partition_id))

    def refuse_election(self, partition: PartitionMetadata) -> DragomanError:
        """Why no leader is elected without a loss: the replica that could lead does already."""
        if partition.leader != NO_LEADER:
            return ElectionNotNeeded(f"{_where(partition)}: node {partition.leader} leads")
        return PreferredLeaderNotAvailable(
            f"{_where(partition)}: no replica with all committed records is there; "
            "`dragoman cluster unclean-elect` gives up what is missing"
        )

    async def elect_unclean(self, partition: PartitionMetadata, node_id: int) -> None:
        """Committed records that this node lacks are lost for good."""
        await self._ask(ElectUnclean(partition_id=partition.partition_id, node_id=node_id))

    # ---- moves

    async def move(
        self, partition: PartitionMetadata, replicas: Sequence[int], *, may_resize: bool
    ) -> None:
        """Have the partition on these nodes; returns when the move has begun."""
        known = all(node in self._image.nodes for node in replicas)
        if not replicas or len(set(replicas)) != len(replicas) or not known:
            raise InvalidReplicaAssignment(f"{list(replicas)} is not a list of known nodes")
        if not may_resize and len(replicas) != len(partition.target or partition.replicas):
            raise InvalidReplicationFactor(
                f"{len(replicas)} replicas in place of {len(partition.replicas)}"
            )
        await self._ask(Move(partition_id=partition.partition_id, replicas=tuple(replicas)))

    async def cancel_move(self, partition: PartitionMetadata) -> None:
        if not partition.target:
            raise NoReassignmentInProgress(f"no replica of {_where(partition)} is being moved")
        await self._ask(Move(partition_id=partition.partition_id))

    async def _ask(self, request: PartitionRequest) -> None:
        reply = await self._controller.request(request)
        if reply is None:
            raise OutcomeUnknownError("the controller is away; the outcome is unknown")
        if Decision.ACCEPTED not in reply.outcomes:
            raise InvalidReplicaAssignment(reply.text or "refused")


def _where(partition: PartitionMetadata) -> str:
    return f"{partition.topic.name}-{partition.index}"
