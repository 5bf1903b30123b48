"""Goal: elections happen where they are needed, and moves of replicas are refused with a reason."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

ELECT = range(3)
PREFERRED, UNCLEAN = 0, 1
Results = dict[tuple[str, int], int]


def elect(
    wire: Wire,
    *partitions: tuple[str, int],
    kind: int = PREFERRED,
    everything: bool = False,
    version: int = 2,
) -> Results:
    asked = [
        m.ElectLeadersRequestTopic(topic=topic, partitions=[index]) for topic, index in partitions
    ]
    request = m.ElectLeadersRequest(
        election_type=kind if version else 0, topic_partitions=None if everything else asked
    )
    response = wire.ask(request, version, m.ElectLeadersResponse)
    assert response.error_code == 0
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def led_by_another(world: World, topic: str = "t", leader: int = 2) -> None:
    """As if the preferred leader had come back after a failure."""
    partition = world.broker.image.topics[topic].partitions[0]
    partition.replicas = partition.in_sync = (1, 2)
    partition.leader = leader


@pytest.mark.parametrize("version", ELECT)
@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
def test_leader_that_leads_needs_no_election(
    world: World, wire: Wire, version: int, kind: int
) -> None:
    world.create("t")
    found = elect(wire, ("t", 0), ("t", 1), ("none", 0), kind=kind, version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): unknown,
        ("none", 0): unknown,
    }


@pytest.mark.parametrize("version", ELECT)
def test_preferred_replica_gets_the_lead(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    led_by_another(world)
    assert elect(wire, ("t", 0), version=version) == {("t", 0): 0}
    partition = world.broker.image.topics["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch) == (1, 1)


def test_preferred_replica_out_of_sync_does_not(world: World, wire: Wire) -> None:
    world.create("t")
    led_by_another(world)
    world.broker.image.topics["t"].partitions[0].in_sync = (2,)
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(wire, ("t", 0)) == {("t", 0): code}
    assert world.broker.image.topics["t"].partitions[0].leader == 2


def test_partition_without_a_leader_is_not_given_one_that_may_lack_records(
    world: World, wire: Wire
) -> None:
    world.create("t")
    led_by_another(world, leader=-1)
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(wire, ("t", 0), kind=UNCLEAN) == {("t", 0): code}
    assert world.broker.image.topics["t"].partitions[0].leader == -1


@pytest.mark.parametrize("version", ELECT)
def test_asking_for_all_tells_of_those_that_changed(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    world.create("u")
    assert elect(wire, everything=True, version=version) == {}
    led_by_another(world, "u")
    assert elect(wire, everything=True, version=version) == {("u", 0): 0}


@pytest.mark.parametrize("version", [1, 2])
def test_kind_of_election_that_there_is_not(wire: Wire, version: int) -> None:
    request = m.ElectLeadersRequest(election_type=7, topic_partitions=None)
    response = wire.ask(request, version, m.ElectLeadersResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_elections_ask_the_authorizer() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.ALTER)
    wire.world.create("t")
    request = m.ElectLeadersRequest(topic_partitions=None)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert wire.ask(request, 2, m.ElectLeadersResponse).error_code == code
    assert elect(wire, ("t", 0), version=0) == {("t", 0): code}


# ---- moves


def reassign(
    wire: Wire,
    topic: str,
    index: int,
    replicas: list[int] | None,
    version: int = 1,
    may_resize: bool = True,
) -> int:
    part = m.AlterPartitionReassignmentsRequestPartition(partition_index=index, replicas=replicas)
    asked = m.AlterPartitionReassignmentsRequestTopic(name=topic, partitions=[part])
    request = m.AlterPartitionReassignmentsRequest(
        topics=[asked], allow_replication_factor_change=may_resize
    )
    response = wire.ask(request, version, m.AlterPartitionReassignmentsResponse)
    assert (response.error_code, response.allow_replication_factor_change) == (0, may_resize)
    ((result,),) = [each.partitions for each in response.responses]
    assert bool(result.error_code) == bool(result.error_message)
    return result.error_code


@pytest.mark.parametrize("version", ends(ApiKey.ALTER_PARTITION_REASSIGNMENTS))
def test_replicas_stay_where_they_are(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(wire, "t", 0, [1], version) == 0
    assert reassign(wire, "t", 0, [2], version) == bad
    assert reassign(wire, "t", 0, [1, 1], version) == bad
    assert reassign(wire, "t", 0, [], version) == bad
    assert reassign(wire, "t", 0, None, version) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(wire, "t", 1, [1], version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(wire, "none", 0, None, version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_other_nodes_and_other_numbers_of_replicas(world: World, wire: Wire) -> None:
    world.create("t")
    world.broker.image.nodes[2] = 1
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(wire, "t", 0, [1, 2], may_resize=False) == code
    assert reassign(wire, "t", 0, [2]) == 0
    request = m.ListPartitionReassignmentsRequest(topics=None)
    (moving,) = wire.ask(request, 0, m.ListPartitionReassignmentsResponse).topics
    (partition,) = moving.partitions
    assert (partition.adding_replicas, partition.removing_replicas) == ([2], [1])
    assert reassign(wire, "t", 0, None) == 0
    assert world.broker.image.topics["t"].partitions[0].replicas == (1,)


def test_no_move_is_under_way(world: World, wire: Wire) -> None:
    world.create("t")
    request = m.ListPartitionReassignmentsRequest(topics=None)
    response = wire.ask(request, 0, m.ListPartitionReassignmentsResponse)
    assert (response.error_code, response.error_message, response.topics) == (0, None, [])


def test_moves_ask_the_authorizer() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.ALTER, Operation.DESCRIBE)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for version in (0, 1):
        request = m.AlterPartitionReassignmentsRequest()
        response = wire.ask(request, version, m.AlterPartitionReassignmentsResponse)
        assert (response.error_code, response.responses) == (code, [])
    listing = wire.ask(
        m.ListPartitionReassignmentsRequest(), 0, m.ListPartitionReassignmentsResponse
    )
    assert listing.error_code == code
