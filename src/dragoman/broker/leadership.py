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

`spread`, `drain` and `widen` plan replica assignments for general requests of operators. They are
pure: each reads the image and returns the moves. A plan never assigns two replicas of a partition
to one node, spreads replicas over racks where possible, and changes no partition that is as
requested already.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
)
from dragoman.broker.groups import OFFSETS_TOPIC
from dragoman.cluster.metadata import NO_LEADER, MetadataImage, PartitionMetadata
from dragoman.errors import DragomanError, OutcomeUnknownError
from dragoman.outcome import ignore, start
from dragoman.plural import plural
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
                f"{plural(len(replicas), 'replica')} in place of {len(partition.replicas)}"
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


Plan: TypeAlias = list[tuple[PartitionMetadata, tuple[int, ...]]]


def spread(
    image: MetadataImage,
    partitions: Iterable[PartitionMetadata],
    nodes: Sequence[int],
    factor: int | None,
) -> Plan:
    """Assign the partitions to these nodes, each to `factor` of them; None: as many as now.

    Within a topic, consecutive partitions begin with consecutive nodes, so that all lead equally.
    """
    unknown = [each for each in nodes if each not in image.nodes]
    if unknown:
        raise InvalidReplicaAssignment(f"there is no node {unknown[0]} in the cluster")
    if len(set(nodes)) != len(nodes):
        raise InvalidReplicaAssignment("a node is named twice")
    ordered = _by_rack(image, nodes)
    plan: Plan = []
    for partition in partitions:
        wanted = factor or min(len(_replicas(partition)), len(ordered))
        if wanted > len(ordered):
            raise InvalidReplicaAssignment(f"{wanted} replicas need as many nodes: {nodes}")
        replicas = tuple(ordered[(partition.index + copy) % len(ordered)] for copy in range(wanted))
        if replicas != _replicas(partition):
            plan.append((partition, replicas))
    return plan


def drain(
    image: MetadataImage,
    partitions: Iterable[PartitionMetadata],
    node_id: int,
    *,
    may_shrink: bool = False,
) -> Plan:
    """Move a node's replicas to others: to those with the fewest, in separate racks.

    `may_shrink`: the node is gone for good, so a partition may keep fewer replicas if no other node
    is left.
    """
    load = _load(image)
    plan: Plan = []
    for partition in partitions:
        replicas = _replicas(partition)
        if node_id not in replicas:
            continue
        others = [each for each in replicas if each != node_id]
        if may_shrink and not others:
            raise InvalidReplicaAssignment(
                f"the only replica of {partition.topic.name}-{partition.index} is on node "
                f"{node_id}: start that node again, or delete the topic"
            )
        taker = _taker(image, others, load, without=node_id)
        if taker is None and not may_shrink:
            raise InvalidReplicaAssignment(
                f"no node is left to take {partition.topic.name}-{partition.index} from node "
                f"{node_id}: add one, or keep fewer replicas of it (--topic, --nodes, --factor)"
            )
        if taker is None:
            replaced = tuple(others)
        else:
            replaced = tuple(taker if each == node_id else each for each in replicas)
        plan.append((partition, replaced))
    return plan


def widen(image: MetadataImage, partitions: Iterable[PartitionMetadata], wanted: int) -> Plan:
    """Add replicas to partitions with too few, as far as there are nodes: on those with the fewest,
    in separate racks, after the existing replicas.
    """
    load = _load(image)
    plan: Plan = []
    for partition in partitions:
        replicas = list(_replicas(partition))
        while len(replicas) < wanted:
            taker = _taker(image, replicas, load)
            if taker is None:
                break
            replicas.append(taker)
        if len(replicas) > len(_replicas(partition)):
            plan.append((partition, tuple(replicas)))
    return plan


def _load(image: MetadataImage) -> Counter[int]:
    return Counter(node for each in image.partitions.values() for node in _replicas(each))


def _taker(
    image: MetadataImage, holders: Sequence[int], load: Counter[int], without: int | None = None
) -> int | None:
    """The node for another replica, which is counted; None: there is none."""
    racks = {_rack(image, each) for each in holders}
    able = [
        each
        for each in image.nodes
        if each != without and each not in image.fenced and each not in holders
    ]
    if not able:
        return None
    taker = min(able, key=lambda each: (_rack(image, each) in racks, load[each], each))
    load[taker] += 1
    return taker


def _replicas(partition: PartitionMetadata) -> tuple[int, ...]:
    """The replicas, or those after the move in progress."""
    return partition.target or partition.replicas


def _rack(image: MetadataImage, node_id: int) -> str:
    known = image.registrations.get(node_id)
    # A node without a rack counts as a rack of its own.
    return known.rack if known is not None and known.rack else f"node {node_id}"


def _by_rack(image: MetadataImage, nodes: Sequence[int]) -> list[int]:
    """Order nodes so that consecutive ones are in different racks where possible."""
    place: dict[int, tuple[int, str]] = {}
    counts: Counter[str] = Counter()
    for node in nodes:
        rack = _rack(image, node)
        place[node] = (counts[rack], rack)
        counts[rack] += 1
    is_racked = any(count > 1 for count in counts.values())
    return sorted(place, key=lambda node: place[node]) if is_racked else list(place)
