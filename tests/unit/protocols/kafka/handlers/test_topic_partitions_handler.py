"""Goal: topics are described page by page, every partition exactly once, whatever the page size."""

from __future__ import annotations

import pytest

from dragoman.broker.topics import NewTopic
from dragoman.limits import DESCRIBED_PARTITIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from worlds.broker import Wire, World
from worlds.kafka_admin import forbidden


def page(
    wire: Wire, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> m.DescribeTopicPartitionsResponse:
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequestTopic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else m.DescribeTopicPartitionsRequestCursor(*cursor),
    )
    return wire.ask(request, 0, m.DescribeTopicPartitionsResponse)


def shown(response: m.DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [
        (topic.name, each.partition_index) for topic in response.topics for each in topic.partitions
    ]


def test_topic_is_described(world: World, wire: Wire) -> None:
    world.create("t", 2)
    response = page(wire, "t")
    assert response.next_cursor is None
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == world.broker.image.topics["t"].topic_id
    assert topic.topic_authorized_operations > 0
    for index, partition in enumerate(topic.partitions):
        assert (partition.partition_index, partition.leader_id) == (index, 1)
        assert (partition.leader_epoch, partition.error_code) == (0, 0)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        # Null here makes Java's admin client fail.
        assert partition.eligible_leader_replicas == []
        assert partition.last_known_elr == []
        assert partition.offline_replicas == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("by_name", [False, True])
def test_pages_hold_everything_once(world: World, wire: Wire, limit: int, by_name: bool) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        world.create(name, count)
    names = ("c", "a", "b", "a") if by_name else ()
    found: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(10):
        response = page(wire, *names, limit=limit, cursor=cursor)
        assert 1 <= len(shown(response)) <= limit
        found += shown(response)
        if response.next_cursor is None:
            break
        cursor = response.next_cursor.topic_name, response.next_cursor.partition_index
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


@pytest.mark.parametrize("limit", [0, -1, -(1 << 31)])
def test_at_least_one_partition_comes(world: World, wire: Wire, limit: int) -> None:
    world.create("t", 2)
    assert shown(page(wire, "t", limit=limit)) == [("t", 0)]


def test_no_page_is_larger_than_the_bound(world: World, wire: Wire) -> None:
    world.create("t", DESCRIBED_PARTITIONS_MAX + 1)
    response = page(wire, "t", limit=1 << 30)
    assert len(shown(response)) == DESCRIBED_PARTITIONS_MAX
    assert response.next_cursor is not None
    assert response.next_cursor.partition_index == DESCRIBED_PARTITIONS_MAX


def test_names_that_are_not_there(world: World, wire: Wire) -> None:
    world.create("t")
    response = page(wire, "none", "t", "a b", "")
    codes = {topic.name: topic.error_code for topic in response.topics}
    illegal = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == {"": illegal, "a b": illegal, "none": 3, "t": 0}


def test_cursor_of_a_topic_that_has_gone(world: World, wire: Wire) -> None:
    world.create("a")
    world.create("c")
    assert shown(page(wire, cursor=("b", 5))) == [("c", 0)]
    assert shown(page(wire, cursor=("c", 5))) == []


def test_cursor_before_the_first_partition_is_malformed(world: World, wire: Wire) -> None:
    world.create("t")
    cursor = m.DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=-1)
    wire.send(m.DescribeTopicPartitionsRequest(cursor=cursor), 0)
    assert wire.is_closed


def test_hidden_and_internal_topics(world: World, wire: Wire) -> None:
    for name, internal in (("%hidden", False), ("__inside", True)):
        assert world.create_outcome(NewTopic(name=name, is_internal=internal)) is None
    (topic,) = page(wire).topics
    assert (topic.name, topic.is_internal) == ("__inside", True)


def test_authorizer_is_asked() -> None:
    wire = forbidden(Resource.TOPIC, Operation.DESCRIBE)
    wire.world.create("t")
    assert page(wire).topics == []
    (topic,) = page(wire, "t").topics
    assert topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert topic.partitions == []
