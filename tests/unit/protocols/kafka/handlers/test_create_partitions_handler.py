"""Goal: topics grow, never shrink, and only when the whole request is valid."""

from __future__ import annotations

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.limits import TOPIC_PARTITIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

VERSIONS = ends(ApiKey.CREATE_PARTITIONS)


def grow(
    wire: Wire,
    *topics: tuple[str, int, list[list[int]] | None],
    version: int = 3,
    validate_only: bool = False,
) -> list[tuple[str, int]]:
    request = m.CreatePartitionsRequest(
        topics=[
            m.CreatePartitionsRequestTopic(
                name=name,
                count=count,
                assignments=None
                if nodes is None
                else [m.CreatePartitionsRequestAssignment(broker_ids=each) for each in nodes],
            )
            for name, count, nodes in topics
        ],
        validate_only=validate_only,
    )
    results = wire.ask(request, version, m.CreatePartitionsResponse).results
    assert all(bool(each.error_code) == bool(each.error_message) for each in results)
    return [(each.name, each.error_code) for each in results]


def count(world: World, name: str = "t") -> int:
    return len(world.broker.image.topics[name].partitions)


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_grows_and_the_new_partitions_work(world: World, wire: Wire, version: int) -> None:
    world.create("t", 2)
    world.write(world.broker.partitions.find("t", 1), b"before")
    assert grow(wire, ("t", 4, None), version=version) == [("t", 0)]
    assert count(world) == 4
    world.write(world.broker.partitions.find("t", 3), b"new")
    assert world.broker.partitions.find("t", 1).log.high_watermark == 1
    wire.lose()
    assert count(world.reopened()) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_may_be_given(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    assert grow(wire, ("t", 3, [[1], [1]]), version=version) == [("t", 0)]
    assert [each.replicas for each in world.broker.image.topics["t"].partitions] == [(1,)] * 3


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("name", "total", "nodes", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", TOPIC_PARTITIONS_MAX + 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("none", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 3, None, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__inside", 3, None, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_bad_growth_is_refused(
    world: World,
    wire: Wire,
    name: str,
    total: int,
    nodes: list[list[int]] | None,
    code: int,
    validate_only: bool,
    version: int,
) -> None:
    world.create("t", 2)
    assert world.create_outcome(NewTopic(name="__inside", is_internal=True)) is None
    ask = {"version": version, "validate_only": validate_only}
    assert grow(wire, (name, total, nodes), **ask) == [(name, code)]
    assert count(world) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_only_to_validate(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    assert grow(wire, ("t", 3, None), version=version, validate_only=True) == [("t", 0)]
    assert count(world) == 1


def test_each_topic_on_its_own_and_none_twice(world: World, wire: Wire) -> None:
    for name in ("a", "b"):
        world.create(name)
    asked = (("a", 2, None), ("b", 2, None), ("none", 2, None), ("b", 3, None))
    assert grow(wire, *asked) == [("a", 0), ("b", 42), ("none", 3), ("b", 42)]
    assert (count(world, "a"), count(world, "b")) == (2, 1)


def test_authorizer_is_asked() -> None:
    wire = forbidden(Resource.TOPIC, Operation.ALTER)
    wire.world.create("t")
    assert grow(wire, ("t", 2, None)) == [("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
