"""Goal: ListOffsets finds offsets by time and by the special times, each from its version on."""

from __future__ import annotations

import pytest

from dragoman.log.batch import TRANSACTIONAL
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.replication.replica import Replica
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from worlds.broker import Wire, World, batch_of

VERSIONS = range(1, 12)
SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 99}


def look_up(
    wire: Wire,
    timestamp: int,
    *,
    version: int = 7,
    topic: str = "t",
    partition: int = 0,
    isolation_level: int = 0,
    epoch: int = -1,
) -> m.ListOffsetsResponsePartition:
    part = m.ListOffsetsRequestPartition(partition, epoch, timestamp)
    request = m.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[m.ListOffsetsRequestTopic(topic, [part])],
    )
    response = wire.ask(request, version, m.ListOffsetsResponse)
    ((found,),) = [each.partitions for each in response.topics]
    assert found.partition_index == partition
    return found


@pytest.fixture
def replica(world: World) -> Replica:
    """Records at times 1000, 3000, 2000 and 4000, one batch each."""
    (made,) = world.create("t")
    for time in (1000, 3000, 2000, 4000):
        world.append(made, batch_of(b"v", timestamp=time))
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_ends_in_every_version(replica: Replica, wire: Wire, version: int) -> None:
    latest = look_up(wire, -1, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 4, -1)
    earliest = look_up(wire, -2, version=version)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
    if version >= 4:
        assert latest.leader_epoch == earliest.leader_epoch == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("special", SINCE)
def test_special_times_are_known_from_their_version_on(
    replica: Replica, wire: Wire, version: int, special: int
) -> None:
    found = look_up(wire, special, version=version)
    if version < SINCE[special]:
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (found.offset, found.timestamp) == (-1, -1)
        return
    expected = {-1: 4, -2: 0, -3: 3, -4: 0, -5: -1, -6: -1}[special]
    assert (found.error_code, found.offset) == (0, expected)
    assert found.timestamp == (4000 if special == -3 else -1)


@pytest.mark.parametrize(
    ("time", "offset", "timestamp"),
    [
        (0, 0, 1000),
        (1000, 0, 1000),
        (1001, 1, 3000),
        (2000, 1, 3000),
        (3001, 3, 4000),
        (4000, 3, 4000),
        (4001, -1, -1),
        ((1 << 63) - 1, -1, -1),
    ],
)
def test_first_record_at_or_after_a_time(
    replica: Replica, wire: Wire, time: int, offset: int, timestamp: int
) -> None:
    found = look_up(wire, time)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp)
    assert found.leader_epoch == (0 if offset >= 0 else -1)


def test_empty_partition(world: World, wire: Wire) -> None:
    world.create("t")
    assert [look_up(wire, time).offset for time in (-1, -2, -3, 0)] == [0, 0, -1, -1]


def test_log_start_counts(world: World, replica: Replica, wire: Wire) -> None:
    replica.log.move_log_start(2)
    assert look_up(wire, -2).offset == 2
    assert look_up(wire, 0).offset == 2


def test_latest_of_committed_readers_is_the_last_stable_offset(
    world: World, replica: Replica, wire: Wire
) -> None:
    batch = batch_of(
        b"open",
        timestamp=5000,
        attributes=TRANSACTIONAL,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    world.append(replica, batch)
    assert look_up(wire, -1).offset == 5
    assert look_up(wire, -1, isolation_level=1).offset == 4
    assert look_up(wire, 4500).offset == 4
    assert look_up(wire, 4500, isolation_level=1).offset == -1
    world.end_transaction(replica, 7, commit=True)
    assert look_up(wire, -1, isolation_level=1).offset == 6
    assert look_up(wire, 4500, isolation_level=1).offset == 4


def test_uncommitted_append_is_not_the_latest(world: World, replica: Replica, wire: Wire) -> None:
    world.write(replica, b"staged", settle=False)
    wire.send(
        m.ListOffsetsRequest(
            topics=[m.ListOffsetsRequestTopic("t", [m.ListOffsetsRequestPartition(timestamp=-1)])]
        ),
        7,
    )
    world.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.ListOffsetsResponse)
    assert reply.message.topics[0].partitions[0].offset == 4


def test_a_marker_newer_than_all_records_is_not_the_latest_record(world: World, wire: Wire) -> None:
    (replica,) = world.create("marked")
    world.append(
        replica,
        batch_of(
            b"v",
            attributes=TRANSACTIONAL,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            timestamp=world.clock.wall_ms(),
        ),
    )
    world.advance(60)
    world.end_transaction(replica, 1, commit=True)
    request = m.ListOffsetsRequest(
        topics=[m.ListOffsetsRequestTopic("marked", [m.ListOffsetsRequestPartition(timestamp=-3)])]
    )
    found = wire.ask(request, 7, m.ListOffsetsResponse).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (0, 0)


def test_records_without_a_time_are_at_no_time(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.append(replica, batch_of(b"a", b"b", timestamp=-1))
    assert [look_up(wire, time).offset for time in (-1, -2, -3, 0)] == [2, 0, -1, -1]


def test_unknown_topic_and_partition(world: World, wire: Wire) -> None:
    world.create("t")
    for found in (look_up(wire, -1, topic="nowhere"), look_up(wire, -1, partition=1)):
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found.offset == -1
    assert set(world.broker.image.topics) == {"t"}


def test_leader_epoch_is_checked(replica: Replica, wire: Wire) -> None:
    assert look_up(wire, -1, epoch=0).error_code == 0
    assert look_up(wire, -1, epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


class Blind(AllowAll):
    def is_allowed(
        self, caller: Caller, operation: Operation, resource: Resource, name: str
    ) -> bool:
        return operation is not Operation.DESCRIBE


def test_authorizer_is_asked() -> None:
    world = World(authorizer=Blind())
    world.create("t")
    assert look_up(Wire(world), -1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
