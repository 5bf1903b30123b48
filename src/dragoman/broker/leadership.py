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
from dragoman.broker.replication.messages import (
    ControlReply,
    ControlRequest,
    Decision,
    ElectPreferred,
    ElectUnclean,
    Move,
)
from dragoman.broker.replication.ports import Controlled
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.cluster.quorum import Done
from dragoman.errors import OutcomeUnknownError


class Controller(Protocol):
    def ask(self, request: ControlRequest, done: Controlled) -> None: ...


class Leadership:
    def __init__(self, image: MetadataImage, controller: Controller) -> None:
        self._image = image
        self._controller = controller

    # ---- elections

    def elect_preferred(self, partition: PartitionMetadata, done: Done) -> None:
        """Give the lead to the first replica. Refused when it has it or is not in sync."""
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            done(ElectionNotNeeded(f"{_where(partition)}: node {preferred} leads already"))
        elif preferred not in partition.in_sync:
            done(PreferredLeaderNotAvailable(f"{_where(partition)}: {preferred} is not in sync"))
        else:
            self._ask(ElectPreferred(partition_id=partition.partition_id), done)

    def elect_any(self, partition: PartitionMetadata, done: Done) -> None:
        """Whoever may lead without a loss does already: there is nothing left to elect."""
        if partition.leader != NO_LEADER:
            done(ElectionNotNeeded(f"{_where(partition)}: node {partition.leader} leads"))
        else:
            done(
                PreferredLeaderNotAvailable(
                    f"{_where(partition)}: no replica with all committed records is there; "
                    "`dragoman cluster unclean-elect` gives up what is missing"
                )
            )

    def elect_unclean(self, partition: PartitionMetadata, node_id: int, done: Done) -> None:
        """Committed records that this node lacks are lost for good."""
        self._ask(ElectUnclean(partition_id=partition.partition_id, node_id=node_id), done)

    # ---- moves

    def move(
        self, partition: PartitionMetadata, replicas: Sequence[int], *, may_resize: bool, done: Done
    ) -> None:
        """Have the partition on these nodes; `done` comes when the move has begun."""
        known = all(node in self._image.nodes for node in replicas)
        if not replicas or len(set(replicas)) != len(replicas) or not known:
            done(InvalidReplicaAssignment(f"{list(replicas)} is not a list of known nodes"))
        elif not may_resize and len(replicas) != len(partition.target or partition.replicas):
            done(
                InvalidReplicationFactor(
                    f"{len(replicas)} replicas in place of {len(partition.replicas)}"
                )
            )
        else:
            request = Move(partition_id=partition.partition_id, replicas=tuple(replicas))
            self._ask(request, done)

    def cancel_move(self, partition: PartitionMetadata, done: Done) -> None:
        if not partition.target:
            done(NoReassignmentInProgress(f"no replica of {_where(partition)} is being moved"))
        else:
            self._ask(Move(partition_id=partition.partition_id), done)

    def _ask(self, request: ControlRequest, done: Done) -> None:
        def answered(reply: ControlReply | None) -> None:
            if reply is None:
                done(OutcomeUnknownError("the controller is away; the outcome is unknown"))
            elif Decision.ACCEPTED in reply.outcomes:
                done(None)
            else:
                done(InvalidReplicaAssignment(reply.text or "refused"))

        self._controller.ask(request, answered)


def _where(partition: PartitionMetadata) -> str:
    return f"{partition.topic.name}-{partition.index}"
