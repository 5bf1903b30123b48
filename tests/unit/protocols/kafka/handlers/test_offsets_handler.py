"""Goal: offsets are committed and found by name and by id, and never for the wrong topic."""

from __future__ import annotations

import pytest

from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, Partition, TopicName
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden

COMMIT = range(2, 11)
FETCH = range(1, 11)
IDS_SINCE = 10


def topic_id(world: World, name: str) -> bytes:
    topic = world.broker.image.topics.get(name)
    return m.NO_ID if topic is None else topic.topic_id


def commit(
    wire: Wire,
    version: int,
    *offsets: tuple[str, int, int],
    ids: dict[str, bytes] | None = None,
    metadata: str = "",
) -> list[int]:
    topics = [
        m.OffsetCommitRequestTopic(
            name=name if version < IDS_SINCE else "",
            topic_id=(ids or {}).get(name, topic_id(wire.world, name))
            if version >= IDS_SINCE
            else m.NO_ID,
            partitions=[
                m.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for name, index, offset in offsets
    ]
    request = m.OffsetCommitRequest(group_id="g", topics=topics)
    response = wire.ask(request, version, m.OffsetCommitResponse)
    for asked, answered in zip(topics, response.topics, strict=True):
        assert (answered.name, answered.topic_id) == (asked.name, asked.topic_id)
    return [each.error_code for topic in response.topics for each in topic.partitions]


Found = dict[tuple[str | bytes, int], tuple[int, int]]


def fetch(
    wire: Wire, version: int, *partitions: tuple[str, int], group: str = "g", ids: bytes = b""
) -> Found:
    """Offset and error by name, or id, and partition; without partitions, everything."""
    if version < 8:
        old = [
            m.OffsetFetchRequestTopic(name=name, partition_indexes=[index])
            for name, index in partitions
        ]
        request = m.OffsetFetchRequest(group_id=group, topics=old or None)
        response = wire.ask(request, version, m.OffsetFetchResponse)
        assert response.error_code == 0
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
    new = [
        m.OffsetFetchRequestGroupTopic(
            name=name if version < IDS_SINCE else "",
            topic_id=(ids or topic_id(wire.world, name)) if version >= IDS_SINCE else m.NO_ID,
            partition_indexes=[index],
        )
        for name, index in partitions
    ]
    asked = m.OffsetFetchRequestGroup(group_id=group, topics=new or None)
    response = wire.ask(m.OffsetFetchRequest(groups=[asked]), version, m.OffsetFetchResponse)
    (found,) = response.groups
    assert (found.group_id, found.error_code) == (group, 0)
    return {
        (topic.name if version < IDS_SINCE else topic.topic_id, each.partition_index): (
            each.committed_offset,
            each.error_code,
        )
        for topic in found.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", COMMIT)
def test_what_was_committed_is_found_in_every_version(
    world: World, wire: Wire, version: int
) -> None:
    world.create("t", 2)
    assert commit(wire, version, ("t", 0, 5), ("t", 1, 6)) == [0, 0]
    for other in FETCH:
        key = "t" if other < IDS_SINCE else topic_id(world, "t")
        assert fetch(wire, other, ("t", 0)) == {(key, 0): (5, 0)}
        if other >= 2:
            assert fetch(wire, other) == {(key, 0): (5, 0), (key, 1): (6, 0)}


@pytest.mark.parametrize("version", FETCH)
def test_nothing_committed_is_minus_one_without_an_error(
    world: World, wire: Wire, version: int
) -> None:
    world.create("t")
    ((offset, code),) = fetch(wire, version, ("t", 0), group="never").values()
    assert (offset, code) == (-1, 0)


@pytest.mark.parametrize("version", COMMIT)
def test_unknown_topics_and_partitions_do_not_spoil_the_others(
    world: World, wire: Wire, version: int
) -> None:
    world.create("t")
    ids = {"none": b"\x05" * 16, "other": b"\x06" * 16}
    asked = (("none", 0, 1), ("t", 0, 5), ("t", 7, 1), ("t", -1, 1), ("other", 0, 1))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= IDS_SINCE else 3
    assert commit(wire, version, *asked, ids=ids) == [unknown, 0, 3, 3, unknown]
    assert list(fetch(wire, 9).values()) == [(5, 0)]


def test_id_of_a_deleted_topic_is_not_taken_for_its_successor(world: World, wire: Wire) -> None:
    world.create("t")
    old = topic_id(world, "t")
    start(world.broker.topics.delete("t")).then(lambda _: None)
    world.settle()
    world.create("t")
    assert commit(wire, 10, ("t", 0, 5), ids={"t": old}) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert fetch(wire, 10, ("t", 0), ids=old) == {(old, 0): (-1, ErrorCode.UNKNOWN_TOPIC_ID)}
    assert fetch(wire, 10) == {}


@pytest.mark.parametrize("version", [9, 10])
def test_refusals_of_single_offsets(world: World, wire: Wire, version: int) -> None:
    world.create("t", 2)
    too_long = commit(wire, version, ("t", 0, 1), metadata="x" * 5000)
    assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


@pytest.mark.parametrize("version", COMMIT)
def test_negative_offsets_are_stored_for_kafka_and_mean_nothing_to_others(
    world: World, wire: Wire, version: int
) -> None:
    world.create("t", 3)
    assert commit(wire, version, ("t", 0, 7), ("t", 1, 5)) == [0, 0]
    assert commit(wire, version, ("t", 0, -2), ("t", 2, -5)) == [0, 0]
    asked = (("t", 0), ("t", 1), ("t", 2))
    assert list(fetch(wire, 9, *asked).values()) == [(-2, 0), (5, 0), (-5, 0)]
    assert list(fetch(wire, 9).values()) == [(-2, 0), (5, 0), (-5, 0)]
    coordination = world.broker.coordination
    group, topic = GroupId("g"), TopicName("t")
    assert coordination.groups.committed_here(group, topic) == {1: 5}
    assert coordination.groups.offsets.committed(group, topic, Partition(0)) is None
    again = world.reopened(kill=True).broker.coordination
    assert again.groups.committed_here(group, topic) == {1: 5}
    assert again.groups.offsets.all_stored(group)[topic, Partition(0)].offset == -2


@pytest.mark.parametrize("version", [2, 9, 10])
def test_committing_asks_the_authorizer(version: int) -> None:
    wire = forbidden(Resource.GROUP, Operation.READ)
    wire.world.create("t")
    assert commit(wire, version, ("t", 0, 1)) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


def test_version_ends_are_those_tested_here() -> None:
    assert ends(ApiKey.OFFSET_COMMIT) == [COMMIT[0], COMMIT[-1]]
    assert ends(ApiKey.OFFSET_FETCH) == [FETCH[0], FETCH[-1]]
