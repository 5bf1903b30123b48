"""Goal: plans of moves are what was asked for, spread over racks, and leave alone what fits."""

from __future__ import annotations

import pytest

from dragoman.broker.errors import InvalidReplicaAssignment
from dragoman.broker.leadership import Plan, drain, spread, widen
from dragoman.cluster.events import NodeFenced, NodeRegistered, PartitionPlacement, TopicCreated
from dragoman.cluster.metadata import MetadataImage


def image(*replicas: tuple[int, ...], racks: str = "    ") -> MetadataImage:
    made = MetadataImage()
    for node, rack in enumerate(racks, 1):
        made.apply(NodeRegistered(node_id=node, incarnation=1, rack=rack.strip()))
    placements = tuple(PartitionPlacement(n, each) for n, each in enumerate(replicas, 1))
    made.apply(TopicCreated(name="t", topic_id=b"t" * 16, partitions=placements))
    return made


def moved(plan: Plan) -> dict[int, tuple[int, ...]]:
    return {partition.index: replicas for partition, replicas in plan}


def test_partitions_are_spread_so_that_all_lead_alike() -> None:
    made = image((1,), (1,), (1,))
    plan = spread(made, made.partitions.values(), (1, 2, 3), 2)
    assert moved(plan) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}


def test_what_fits_is_left_alone_and_the_number_of_replicas_kept() -> None:
    made = image((1, 2), (1, 2), (1, 2, 3))
    plan = spread(made, made.partitions.values(), (1, 2), None)
    assert moved(plan) == {1: (2, 1), 2: (1, 2)}


def test_neighbours_stand_in_different_racks() -> None:
    made = image((1,), (1,), racks="aabb")
    plan = spread(made, made.partitions.values(), (1, 2, 3, 4), 2)
    assert moved(plan) == {0: (1, 3), 1: (3, 2)}


def test_too_few_or_unknown_nodes_are_refused() -> None:
    made = image((1,))
    with pytest.raises(InvalidReplicaAssignment, match="no node 9"):
        spread(made, made.partitions.values(), (1, 9), 2)
    with pytest.raises(InvalidReplicaAssignment, match="3 replicas need as many nodes"):
        spread(made, made.partitions.values(), (1, 2), 3)
    with pytest.raises(InvalidReplicaAssignment, match="named twice"):
        spread(made, made.partitions.values(), (1, 2) * 100_000, 200_000)


def test_a_drained_node_is_replaced_in_its_place_by_who_holds_least() -> None:
    made = image((1, 2), (2, 3), (3, 2), racks="    ")
    plan = drain(made, made.partitions.values(), 2)
    assert moved(plan) == {0: (1, 4), 1: (1, 3), 2: (3, 4)}


def test_a_drained_node_is_replaced_from_a_free_rack() -> None:
    made = image((1, 2), racks="abac")
    assert moved(drain(made, made.partitions.values(), 2)) == {0: (1, 4)}


def test_drain_does_not_move_replicas_to_fenced_nodes() -> None:
    made = image((1, 2), racks="   ")
    made.apply(NodeFenced(node_id=3, incarnation=1))
    with pytest.raises(InvalidReplicaAssignment, match="no node is left to take t-0 from node 2"):
        drain(made, made.partitions.values(), 2)


def test_replica_without_a_new_home_may_be_left_to_the_others() -> None:
    made = image((1, 2, 3), (3, 2), racks="   ")
    with pytest.raises(InvalidReplicaAssignment, match="no node is left to take t-0"):
        drain(made, made.partitions.values(), 3)
    plan = drain(made, made.partitions.values(), 3, may_shrink=True)
    assert moved(plan) == {0: (1, 2), 1: (1, 2)}
    made = image((3,), racks="   ")
    with pytest.raises(InvalidReplicaAssignment, match="the only replica of t-0 is on node 3"):
        drain(made, made.partitions.values(), 3, may_shrink=True)


def test_more_replicas_come_behind_those_there_are_on_nodes_that_hold_least() -> None:
    made = image((1,), (1, 2), (2, 3, 1), racks="    ")
    assert moved(widen(made, made.partitions.values(), 2)) == {0: (1, 4)}
    plan = moved(widen(made, made.partitions.values(), 3))
    assert plan == {0: (1, 4, 3), 1: (1, 2, 4)}
    made = image((1,), racks="aab")
    assert moved(widen(made, made.partitions.values(), 2)) == {0: (1, 3)}
    assert moved(widen(made, made.partitions.values(), 9)) == {0: (1, 3, 2)}
    made.apply(NodeFenced(node_id=3, incarnation=1))
    assert moved(widen(made, made.partitions.values(), 9)) == {0: (1, 2)}
