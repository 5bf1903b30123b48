"""Goal: the data directory is described with true sizes, and nothing moves to another one."""

from __future__ import annotations

import pytest

from dragoman.limits import LOG_SIZES_PER_SLICE
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden


def described(
    wire: Wire, *topics: tuple[str, list[int]], version: int = 5
) -> m.DescribeLogDirsResponseDir:
    asked = [m.DescribeLogDirsRequestTopic(topic=name, partitions=each) for name, each in topics]
    request = m.DescribeLogDirsRequest(topics=asked if topics else None)
    response = wire.ask(request, version, m.DescribeLogDirsResponse)
    assert response.error_code == 0
    (directory,) = response.results
    return directory


def sizes(directory: m.DescribeLogDirsResponseDir) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in directory.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_all_partitions_with_their_sizes(world: World, wire: Wire, version: int) -> None:
    replica, _ = world.create("t", 2)
    world.write(replica, b"v" * 100)
    directory = described(wire, version=version)
    assert (directory.error_code, directory.log_dir) == (0, "dragoman-data")
    assert sizes(directory) == {("t", 0): replica.log.size, ("t", 1): 0}
    assert replica.log.size > 100
    for topic in directory.topics:
        assert all((p.offset_lag, p.is_future_key) == (0, False) for p in topic.partitions)
    if version >= 4:
        assert directory.usable_bytes == world.disk.free_bytes()


def test_only_those_asked_for_that_exist(world: World, wire: Wire) -> None:
    world.create("t", 3)
    world.create("u")
    found = described(wire, ("t", [2, 0, 7, -1, 2]), ("none", [0]))
    assert list(sizes(found)) == [("t", 2), ("t", 0)]


def test_an_empty_list_asks_for_nothing(world: World, wire: Wire) -> None:
    world.create("t")
    response = wire.ask(m.DescribeLogDirsRequest(topics=[]), 5, m.DescribeLogDirsResponse)
    assert response.results[0].topics == []


def test_many_partitions_are_gathered_over_several_turns(world: World, wire: Wire) -> None:
    world.create("t", LOG_SIZES_PER_SLICE * 3)
    assert len(sizes(described(wire))) == LOG_SIZES_PER_SLICE * 3


def test_sizes_of_partitions_unopened_since_the_start(world: World, wire: Wire) -> None:
    (replica,) = world.create("t")
    world.write(replica, b"v" * 100)
    before = sizes(described(wire))
    wire.lose()
    assert sizes(described(Wire(world.reopened()))) == before


def test_topic_deleted_while_sizes_are_gathered(world: World, wire: Wire) -> None:
    """Its partitions must not come back to life by being asked for their size."""
    topics = [
        m.DescribeLogDirsRequestTopic(topic="a", partitions=list(range(LOG_SIZES_PER_SLICE - 1))),
        m.DescribeLogDirsRequestTopic(topic="b", partitions=[0, 1]),
    ]
    world.create("a", LOG_SIZES_PER_SLICE)
    world.create("b", 2)
    wire.send(m.DescribeLogDirsRequest(topics=topics), 5)
    start(world.broker.topics.delete("b")).then(lambda _: None)
    world.store.settle_all()
    assert "b" not in world.broker.image.topics
    world.settle()
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.DescribeLogDirsResponse)
    found = sizes(reply.message.results[0])
    assert ("b", 0) in found
    assert ("b", 1) not in found


def test_client_that_leaves_meanwhile(world: World, wire: Wire) -> None:
    world.create("a", LOG_SIZES_PER_SLICE * 2)
    wire.send(m.DescribeLogDirsRequest(topics=None), 5)
    wire.lose()
    world.settle()
    assert wire.replies() == []


@pytest.mark.parametrize("version", [1, 3, 5])
def test_describing_asks_the_authorizer(version: int) -> None:
    wire = forbidden(Resource.CLUSTER, Operation.DESCRIBE)
    request = m.DescribeLogDirsRequest(topics=None)
    response = wire.ask(request, version, m.DescribeLogDirsResponse)
    assert response.results == []
    if version >= 3:
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# ---- moving


def move(wire: Wire, path: str, topic: str, partition: int, version: int = 2) -> int:
    asked = m.AlterReplicaLogDirsRequestTopic(name=topic, partitions=[partition])
    directory = m.AlterReplicaLogDirsRequestDir(path=path, topics=[asked])
    request = m.AlterReplicaLogDirsRequest(dirs=[directory])
    response = wire.ask(request, version, m.AlterReplicaLogDirsResponse)
    ((result,),) = [each.partitions for each in response.results]
    assert result.partition_index == partition
    return result.error_code


@pytest.mark.parametrize("version", ends(ApiKey.ALTER_REPLICA_LOG_DIRS))
def test_there_is_one_directory(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    assert move(wire, "dragoman-data", "t", 0, version) == 0
    assert move(wire, "/elsewhere", "t", 0, version) == ErrorCode.LOG_DIR_NOT_FOUND
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(wire, "dragoman-data", "t", 1, version) == unknown
    assert move(wire, "dragoman-data", "none", 0, version) == unknown


def test_moving_asks_the_authorizer() -> None:
    wire = forbidden(Resource.CLUSTER, Operation.ALTER)
    wire.world.create("t")
    assert move(wire, "dragoman-data", "t", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_version_ends_are_those_tested_here() -> None:
    assert ends(ApiKey.DESCRIBE_LOG_DIRS) == [1, 5]
