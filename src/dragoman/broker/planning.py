"""Which nodes shall hold which partitions, when somebody asks for it in general terms.

Pure: looks at the image and returns what to move. A plan never names a node twice for a partition,
spreads over racks as far as there are any, and leaves alone what is as wanted already.
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
    """Have the partitions on these nodes, each on `factor` of them; None: on as many as now.

    Of one topic, neighbouring partitions begin with neighbouring nodes, so that all lead alike.
    """
    unknown = [each for each in nodes if each not in image.nodes]
    if unknown:
        raise InvalidReplicaAssignment(f"there is no node {unknown[0]} in the cluster")
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


def drain(image: MetadataImage, partitions: Iterable[PartitionMetadata], node_id: int) -> Plan:
    """Have what a node holds on others instead: on those that hold least, in racks of their own."""
    load = Counter(node for each in image.partitions.values() for node in _replicas(each))
    plan: Plan = []
    for partition in partitions:
        replicas = _replicas(partition)
        if node_id not in replicas:
            continue
        others = [each for each in replicas if each != node_id]
        racks = {_rack(image, each) for each in others}
        able = [
            each
            for each in image.nodes
            if each != node_id and each not in image.fenced and each not in others
        ]
        if not able:
            raise InvalidReplicaAssignment(
                f"no node is left to take {partition.topic.name}-{partition.index} from node "
                f"{node_id}: add one, or keep fewer replicas of it (--topic, --nodes, --factor)"
            )
        taker = min(able, key=lambda each: (_rack(image, each) in racks, load[each], each))
        load[taker] += 1
        replaced = tuple(taker if each == node_id else each for each in replicas)
        plan.append((partition, replaced))
    return plan


def _replicas(partition: PartitionMetadata) -> tuple[int, ...]:
    """As they are, or will be once the move that is under way is over."""
    return partition.target or partition.replicas


def _rack(image: MetadataImage, node_id: int) -> str:
    known = image.registrations.get(node_id)
    # A node without a rack stands for itself.
    return known.rack if known is not None and known.rack else f"node {node_id}"


def _by_rack(image: MetadataImage, nodes: Sequence[int]) -> list[int]:
    """So that neighbours stand in different racks as far as there are any."""
    place: dict[int, tuple[int, str]] = {}
    counts: Counter[str] = Counter()
    for node in nodes:
        rack = _rack(image, node)
        place[node] = (counts[rack], rack)
        counts[rack] += 1
    is_racked = any(count > 1 for count in counts.values())
    return sorted(place, key=lambda node: place[node]) if is_racked else list(place)
