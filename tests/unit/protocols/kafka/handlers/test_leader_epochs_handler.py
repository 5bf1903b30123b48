"""Goal: a consumer learns where each leadership ended, and never a wrong end."""

from __future__ import annotations

import pytest

from dragoman.cluster.events import LeaderChanged
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource
from worlds.broker import Outcome, Wire, World
from worlds.kafka_admin import ends, forbidden

VERSIONS = ends(ApiKey.OFFSET_FOR_LEADER_EPOCH)


def end_of(
    wire: Wire,
    epoch: int,
    *,
    current: int = -1,
    topic: str = "t",
    partition: int = 0,
    version: int = 4,
) -> tuple[int, int, int]:
    """Error, epoch, end offset."""
    part = m.OffsetForLeaderEpochRequestPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    asked = m.OffsetForLeaderEpochRequestTopic(topic=topic, partitions=[part])
    request = m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked])
    response = wire.ask(request, version, m.OffsetForLeaderEpochResponse)
    ((result,),) = [each.partitions for each in response.topics]
    assert result.partition == partition
    return result.error_code, result.leader_epoch, result.end_offset


def lead_again(world: World, replica: Replica, epoch: int) -> None:
    """A new leadership of the same node."""
    metadata, outcome = replica.metadata, Outcome()
    event = LeaderChanged(
        partition_id=metadata.partition_id,
        leader=1,
        leader_epoch=epoch,
        in_sync=(1,),
        partition_epoch=metadata.partition_epoch + 1,
    )
    world.broker.quorum.propose([event]).then(outcome)
    world.settle()
    assert outcome.error is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_present_leadership_ends_at_the_logs_end(
    world: World, wire: Wire, version: int
) -> None:
    (replica,) = world.create("t")
    assert end_of(wire, 0, version=version) == (0, 0, 0)
    world.write(replica, b"a", b"b")
    assert end_of(wire, 0, version=version) == (0, 0, 2)
    assert end_of(wire, 0, current=0, version=version) == (0, 0, 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_earlier_leaderships_end_where_the_next_began(
    world: World, wire: Wire, version: int
) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"a", b"b")
    lead_again(world, replica, 3)
    world.write(replica, b"c")
    lead_again(world, replica, 5)
    answers = {epoch: end_of(wire, epoch, version=version) for epoch in range(7)}
    assert answers[0] == answers[1] == answers[2] == (0, 0, 2)
    assert answers[3] == answers[4] == (0, 3, 3)
    assert answers[5] == (0, 5, 3)
    assert answers[6] == (0, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_of_another_leader_epoch_are_refused(
    world: World, wire: Wire, version: int
) -> None:
    (replica,) = world.create("t")
    lead_again(world, replica, 2)
    older = end_of(wire, 0, current=1, version=version)
    newer = end_of(wire, 0, current=3, version=version)
    assert older == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert newer == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_there(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of(wire, 0, topic="none", version=version) == unknown
    assert end_of(wire, 0, partition=1, version=version) == unknown
    assert end_of(wire, -1, version=version) == (0, -1, -1)


def test_authorizer_is_asked() -> None:
    wire = forbidden(Resource.TOPIC, Operation.DESCRIBE)
    wire.world.create("t")
    assert end_of(wire, 0)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
