"""Goal: the cluster and its quorum are described truthfully."""

from __future__ import annotations

import pytest

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

CLUSTER = range(3)
QUORUM = range(3)


@pytest.mark.parametrize("version", CLUSTER)
def test_cluster_is_described(world: World, wire: Wire, version: int) -> None:
    found = wire.ask(m.DescribeClusterRequest(), version, m.DescribeClusterResponse)
    assert (found.error_code, found.controller_id) == (0, 1)
    assert found.cluster_id == world.broker.image.cluster_id
    (broker,) = found.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "broker.example", 9092)
    assert (broker.rack, broker.is_fenced) == (None, False)
    assert found.cluster_authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", CLUSTER)
def test_operations_are_shown_when_asked_for(wire: Wire, version: int) -> None:
    request = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
    found = wire.ask(request, version, m.DescribeClusterResponse)
    expected = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    assert found.cluster_authorized_operations == expected


def test_metadata_shows_operations_of_cluster_and_topics(world: World, wire: Wire) -> None:
    world.create("t")
    request = m.MetadataRequest(
        topics=None,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    found = wire.ask(request, 8, m.MetadataResponse)
    assert found.cluster_authorized_operations == sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
    expected = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
    assert [each.topic_authorized_operations for each in found.topics] == [expected]


def test_forbidden_operations_are_left_out() -> None:
    wire = forbidden(Resource.TOPIC, Operation.WRITE, Operation.DELETE)
    wire.world.create("t")
    request = m.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    (topic,) = wire.ask(request, 9, m.MetadataResponse).topics
    assert topic.topic_authorized_operations == sum(1 << bit for bit in (3, 5, 7, 8, 10, 11))


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_other_endpoints_are_not_here(wire: Wire, endpoint: int, code: int, version: int) -> None:
    request = m.DescribeClusterRequest(endpoint_type=endpoint)
    found = wire.ask(request, version, m.DescribeClusterResponse)
    assert (found.error_code, found.endpoint_type, found.brokers) == (code, endpoint, [])
    assert found.error_message


@pytest.mark.parametrize("version", CLUSTER)
def test_nodes_are_shown_to_all_and_operations_to_those_who_may_describe(version: int) -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE)
    request = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
    found = wire.ask(request, version, m.DescribeClusterResponse)
    assert (found.error_code, len(found.brokers)) == (0, 1)
    assert found.cluster_authorized_operations == 0


# ---- quorum


def quorum(wire: Wire, topic: str, partition: int, version: int) -> m.DescribeQuorumResponse:
    part = m.DescribeQuorumRequestPartition(partition_index=partition)
    asked = m.DescribeQuorumRequestTopic(topic_name=topic, partitions=[part])
    request = m.DescribeQuorumRequest(topics=[asked])
    return wire.ask(request, version, m.DescribeQuorumResponse)


@pytest.mark.parametrize("version", QUORUM)
def test_quorum_is_one_voter_that_has_everything(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    found = quorum(wire, "__cluster_metadata", 0, version)
    assert found.error_code == 0
    ((partition,),) = [each.partitions for each in found.topics]
    assert (partition.error_code, partition.leader_id) == (0, 1)
    # The first entry of a term is not counted as a change.
    assert partition.high_watermark == world.broker.quorum.version + 1 > 1
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
    if version >= 1:
        assert voter.last_caught_up_timestamp == world.clock.wall_ms()
    assert partition.observers == []
    if version >= 2:
        (node,) = found.nodes
        assert [(each.host, each.port) for each in node.listeners] == [("broker.example", 9092)]


@pytest.mark.parametrize("version", QUORUM)
@pytest.mark.parametrize(("topic", "partition"), [("t", 0), ("__cluster_metadata", 1)])
def test_other_partitions_have_no_quorum(
    world: World, wire: Wire, topic: str, partition: int, version: int
) -> None:
    world.create("t")
    ((result,),) = [each.partitions for each in quorum(wire, topic, partition, version).topics]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", QUORUM)
def test_quorum_asks_the_authorizer(version: int) -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE)
    found = quorum(wire, "__cluster_metadata", 0, version)
    assert (found.error_code, found.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


def test_version_ends_are_those_tested_here() -> None:
    assert ends(ApiKey.DESCRIBE_CLUSTER) == [0, 2]
    assert ends(ApiKey.DESCRIBE_QUORUM) == [0, 2]
