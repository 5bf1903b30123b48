"""Operators' control of the leaders and replicas of partitions, and replicas of internal topics.

The controller decides. The first replica of a partition is its preferred leader. A leader always
has every committed record; a replica that may lack some is elected only by `elect_unclean`, which
loses those records for good and is recorded in the metadata.

Internal topics get more replicas when nodes join. A topic is created with at most as many replicas
as there are nodes: a topic for groups or transactions that was created on the first node of a
cluster would keep a single replica. The leader of the metadata therefore adds replicas to internal
topics when they are created and when a node registers for the first time. It does not repeat that
later, so that an operator can remove replicas on the way back to a single node. Topics of users are
not changed; `dragoman cluster status` names those with few replicas.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.broker.reassignment import Plan, widen
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.outcome import ignore, start
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
        """Elect the first replica. Refused when it leads already or is not in sync."""
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded(f"{_where(partition)}: node {preferred} leads already")
        if preferred not in partition.in_sync:
            raise PreferredLeaderNotAvailable(f"{_where(partition)}: {preferred} is not in sync")
        await self._ask(ElectPreferred(partition_id=partition.partition_id))

    def refuse_election(self, partition: PartitionMetadata) -> DragomanError:
        """The refusal of an election without loss: the only possible replica leads already."""
        if partition.leader != NO_LEADER:
            return ElectionNotNeeded(f"{_where(partition)}: node {partition.leader} leads")
        return PreferredLeaderNotAvailable(
            f"{_where(partition)}: no replica with all committed records is there; "
            "`dragoman cluster unclean-elect` gives up the missing ones"
        )

    async def elect_unclean(self, partition: PartitionMetadata, node_id: int) -> None:
        """Elect a replica; committed records that it lacks are lost for good."""
        await self._ask(ElectUnclean(partition_id=partition.partition_id, node_id=node_id))

    # ---- moves

    async def move(
        self, partition: PartitionMetadata, replicas: Sequence[int], *, may_resize: bool
    ) -> None:
        """Move the partition to these nodes; returns when the move has begun."""
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


log = logging.getLogger("dragoman.cluster")


class InternalCopies:
    def __init__(self, context: NodeContext, leadership: Leadership) -> None:
        self._context = context
        self._leadership = leadership
        self._is_due = False

    def look(self) -> None:
        """A node or internal topic is new, and this node leads the metadata."""
        if not self._is_due:
            self._is_due = True
            self._context.scheduler.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_due = False
        image = self._context.image
        plan: Plan = []
        for topic in image.topics.values():
            if topic.is_internal:
                plan += widen(image, topic.partitions, self._wanted(topic.name))
        if plan:
            log.info("%d partitions of internal topics get more copies", len(plan))
            start(self._move(plan)).then(ignore)

    def _wanted(self, topic: str) -> int:
        settings = self._context.settings
        if topic == OFFSETS_TOPIC:
            return settings.offsets_topic_replication_factor
        return settings.transaction_state_log_replication_factor

    async def _move(self, plan: Plan) -> None:
        """Add replicas to one partition after the other: there may be a hundred."""
        try:
            for partition, replicas in reversed(plan):
                await self._leadership.move(partition, replicas, may_resize=True)
        except DragomanError as error:
            log.warning("internal topics keep few copies: %s", error)
