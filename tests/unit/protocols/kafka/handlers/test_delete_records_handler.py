"""Goal: records below an offset go for good, and nothing else does."""

from __future__ import annotations

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World, fetch_request, only
from worlds.kafka_admin import ends, forbidden

VERSIONS = ends(ApiKey.DELETE_RECORDS)


def delete(
    wire: Wire, offset: int, topic: str = "t", partition: int = 0, version: int = 2
) -> tuple[int, int]:
    """Error and low watermark."""
    part = m.DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
    asked = m.DeleteRecordsRequestTopic(name=topic, partitions=[part])
    request = m.DeleteRecordsRequest(topics=[asked], timeout_ms=1000)
    response = wire.ask(request, version, m.DeleteRecordsResponse)
    (found,) = response.topics
    assert found.name == topic
    (result,) = found.partitions
    assert result.partition_index == partition
    return result.error_code, result.low_watermark


@pytest.fixture
def replica(world: World) -> Replica:
    (replica,) = world.create("t", config={"segment.bytes": "300"})
    for _ in range(10):
        world.write(replica, b"v" * 100)
    return replica


@pytest.mark.parametrize("version", VERSIONS)
def test_log_starts_at_the_offset(wire: Wire, replica: Replica, version: int) -> None:
    assert delete(wire, 4, version=version) == (0, 4)
    assert (replica.log.log_start_offset, replica.log.high_watermark) == (4, 10)
    below = only(wire.ask(fetch_request("t", 3), 11, m.FetchResponse))
    assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 4)
    assert only(wire.ask(fetch_request("t", 4), 11, m.FetchResponse)).records


@pytest.mark.parametrize("version", VERSIONS)
def test_minus_one_is_everything_committed(wire: Wire, replica: Replica, version: int) -> None:
    assert delete(wire, -1, version=version) == (0, 10)
    assert replica.log.log_start_offset == replica.log.log_end_offset == 10
    wire.world.write(replica, b"next")
    assert replica.log.log_end_offset == 11


def test_deleted_records_stay_deleted_over_a_crash(wire: Wire, replica: Replica) -> None:
    assert delete(wire, 7) == (0, 7)
    again = wire.world.reopened(kill=True)
    assert again.broker.partitions.find("t", 0).log.log_start_offset == 7
    assert again.broker.partitions.find("t", 0).log.high_watermark == 10


@pytest.mark.parametrize("offset", [0, 3, 4])
def test_what_is_gone_already_is_no_error(wire: Wire, replica: Replica, offset: int) -> None:
    delete(wire, 4)
    assert delete(wire, offset) == (0, 4)
    assert replica.log.log_start_offset == 4


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offset", [11, 1 << 62, -2, -(1 << 63)])
def test_offsets_that_are_not_there(
    wire: Wire, replica: Replica, offset: int, version: int
) -> None:
    assert delete(wire, offset, version=version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert replica.log.log_start_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("topic", "partition"), [("none", 0), ("t", 1), ("t", -1)])
def test_partitions_that_are_not_there(
    wire: Wire, replica: Replica, topic: str, partition: int, version: int
) -> None:
    code, low = delete(wire, 1, topic, partition, version)
    assert (code, low) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_compacted_topic_keeps_its_records(world: World, wire: Wire) -> None:
    world.create("compact", config={"cleanup.policy": "compact"})
    world.create("both", config={"cleanup.policy": "compact,delete"})
    assert delete(wire, -1, "compact") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(wire, -1, "both") == (0, 0)


def test_internal_topic_keeps_its_records(world: World, wire: Wire) -> None:
    new = NewTopic(name="__inside", is_internal=True, config={"cleanup.policy": "delete"})
    assert world.create_outcome(new) is None
    assert delete(wire, -1, "__inside")[0] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_fetch_waiting_at_the_end_survives_deletion_below_it(
    world: World, wire: Wire, replica: Replica
) -> None:
    """It waits at the end; deleting everything below must not leave it hanging nor break it."""
    reader = Wire(world)
    reader.send(fetch_request("t", 10, max_wait_ms=60_000), 11)
    assert delete(wire, -1) == (0, 10)
    world.write(replica, b"next")
    (reply,) = reader.replies()
    assert isinstance(reply.message, m.FetchResponse)
    assert only(reply.message).error_code == 0
    assert only(reply.message).log_start_offset == 10


def test_waiting_reader_fails_when_its_position_is_deleted(
    world: World, wire: Wire, replica: Replica
) -> None:
    reader = Wire(world)
    request = fetch_request("t", 8, max_wait_ms=60_000, min_bytes=1 << 20)
    reader.send(request, 11)
    world.settle()
    assert reader.replies() == []
    assert delete(wire, -1) == (0, 10)
    (reply,) = reader.replies()
    assert isinstance(reply.message, m.FetchResponse)
    assert only(reply.message).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_authorizer_is_asked() -> None:
    wire = forbidden(Resource.TOPIC, Operation.DELETE)
    wire.world.create("t")
    assert delete(wire, -1)[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
