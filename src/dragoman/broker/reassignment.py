"""Plans of replica assignments, for general requests of operators.

Pure: reads the image and returns the moves. A plan never assigns two replicas of a partition to one
node, spreads replicas over racks where possible, and changes no partition that is as requested
already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dragoman.broker.errors import InvalidReplicaAssignment
from dragoman.cluster.metadata import MetadataImage, PartitionMetadata

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
