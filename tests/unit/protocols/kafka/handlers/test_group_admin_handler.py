"""Goal: groups are listed, described and deleted as tools expect, version by version."""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.log.store import Durability
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.minibroker.messages import SubscribeGroup
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from worlds.access import Denies
from worlds.broker import Wire, World
from worlds.kafka_admin import ends, forbidden
from worlds.minibroker import Peer, service_of

SUBSCRIPTION = codec.encode_versioned(m.ConsumerProtocolSubscription(topics=["t"]), 1)
DESCRIBE = range(7)
DESCRIBE_GROUP = (Operation.DESCRIBE, Resource.GROUP, "g")


@pytest.fixture
def world() -> World:
    return World(Settings(group_initial_rebalance_delay_ms=0), durability=Durability.OS)


def join(
    wire: Wire, group: str = "g", metadata: bytes = SUBSCRIPTION, kind: str = "consumer"
) -> str:
    """One stable member; returns its id."""
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=kind,
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    joined = wire.ask(request, 3, m.JoinGroupResponse)
    assert joined.error_code == 0
    assignment = m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    sync = m.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[assignment],
    )
    assert wire.ask(sync, 2, m.SyncGroupResponse).error_code == 0
    return joined.member_id


def commit(wire: Wire, group: str = "g", topic: str = "t", partition: int = 0) -> None:
    part = m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=5)
    request = m.OffsetCommitRequest(
        group_id=group, topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[part])]
    )
    response = wire.ask(request, 8, m.OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == 0


def described(
    wire: Wire, *groups: str, version: int = 6, operations: bool = False
) -> list[m.DescribeGroupsResponseGroup]:
    request = m.DescribeGroupsRequest(
        groups=list(groups), include_authorized_operations=operations and version >= 3
    )
    return wire.ask(request, version, m.DescribeGroupsResponse).groups


# ---- describe


def test_group_of_another_protocol_is_shown_as_a_classic_one(wire: Wire, world: World) -> None:
    peer = Peer(world, service_of(world))
    peer.ask(SubscribeGroup(topic="t", group="g"))
    (group,) = described(wire, "g")
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "minibroker")
    assert [each.client_host for each in group.members] == ["10.0.0.9"]
    for types in ([], ["classic"]):
        listed = wire.ask(m.ListGroupsRequest(types_filter=types), 5, m.ListGroupsResponse)
        assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "classic")]


@pytest.mark.parametrize("version", DESCRIBE)
def test_stable_group_is_shown_with_its_members(wire: Wire, version: int) -> None:
    member_id = join(wire)
    (group,) = described(wire, "g", version=version)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (member_id, "test")
    assert member.client_host == "/10.0.0.9"
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    assert group.authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", range(3, 7))
def test_operations_are_shown_when_asked_for(wire: Wire, version: int) -> None:
    join(wire)
    (group,) = described(wire, "g", version=version, operations=True)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


@pytest.mark.parametrize("version", DESCRIBE)
def test_group_that_does_not_exist_is_dead(wire: Wire, version: int) -> None:
    (group,) = described(wire, "none", version=version)
    assert (group.group_state, group.members) == ("Dead", [])
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


def test_group_with_offsets_only_is_empty(world: World, wire: Wire) -> None:
    world.create("t")
    commit(wire)
    (group,) = described(wire, "g")
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])


def test_several_groups_in_the_order_asked_each_once(wire: Wire) -> None:
    join(wire, "b")
    assert [each.group_id for each in described(wire, "a", "b", "a")] == ["a", "b"]


@pytest.mark.parametrize("version", [0, 6])
def test_describing_asks_the_authorizer(version: int) -> None:
    wire = forbidden(Resource.GROUP, Operation.DESCRIBE)
    (group,) = described(wire, "g", version=version)
    assert group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [0, 6])
def test_nothing_is_answered_while_groups_are_loaded(wire: Wire, version: int) -> None:
    wire.world.pretend_loading(True)
    (group,) = described(wire, "g", version=version)
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = wire.ask(m.ListGroupsRequest(), 0, m.ListGroupsResponse)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# ---- list


def listed(
    wire: Wire, version: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[str]:
    request = m.ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    response = wire.ask(request, version, m.ListGroupsResponse)
    assert response.error_code == 0
    return sorted(each.group_id for each in response.groups)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    join(wire, "live")
    commit(wire, "offsets")
    response = wire.ask(m.ListGroupsRequest(), version, m.ListGroupsResponse)
    found = {each.group_id: each for each in response.groups}
    assert set(found) == {"live", "offsets"}
    assert found["live"].protocol_type == "consumer"
    if version >= 4:
        assert [found[name].group_state for name in ("live", "offsets")] == ["Stable", "Empty"]
    if version >= 5:
        assert {each.group_type for each in response.groups} == {"classic"}


def test_filters_let_through_what_they_name(world: World, wire: Wire) -> None:
    world.create("t")
    join(wire, "live")
    commit(wire, "offsets")
    assert listed(wire, 4, ("Stable",)) == ["live"]
    assert listed(wire, 4, ("empty",)) == ["offsets"]
    assert listed(wire, 4, ("Empty", "Stable")) == ["live", "offsets"]
    assert listed(wire, 4, ("Nonsense",)) == []
    assert listed(wire, 5, (), ("classic",)) == ["live", "offsets"]
    assert listed(wire, 5, (), ("Consumer",)) == []
    assert listed(wire, 5, ("Stable",), ("Classic", "share")) == ["live"]


def test_groups_that_may_not_be_seen_are_left_out() -> None:
    rules = Denies(DESCRIBE_GROUP)
    wire = Wire(World(authorizer=rules))
    wire.world.create("t")
    commit(wire)
    assert listed(wire, 5) == ["g"]
    rules.denied.add((Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME))
    assert listed(wire, 5) == []
    rules.denied.remove(DESCRIBE_GROUP)
    assert listed(wire, 5) == ["g"]


# ---- delete


def deleted(wire: Wire, *groups: str, version: int = 2) -> list[tuple[str, int]]:
    request = m.DeleteGroupsRequest(groups_names=list(groups))
    results = wire.ask(request, version, m.DeleteGroupsResponse).results
    return [(each.group_id, each.error_code) for each in results]


@pytest.mark.parametrize("version", range(3))
def test_groups_without_members_are_deleted(world: World, wire: Wire, version: int) -> None:
    world.create("t")
    commit(wire, "gone")
    join(wire, "live")
    assert deleted(wire, "gone", "live", "none", version=version) == [
        ("gone", 0),
        ("live", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert listed(wire, 5) == ["live"]
    wire.lose()
    assert listed(Wire(world.reopened()), 5) == ["live"]


def test_deleting_nothing(wire: Wire) -> None:
    assert deleted(wire) == []


def test_deleting_asks_the_authorizer() -> None:
    wire = forbidden(Resource.GROUP, Operation.DELETE)
    wire.world.create("t")
    commit(wire)
    assert deleted(wire, "g") == [("g", ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    assert listed(wire, 5) == ["g"]


# ---- offsets


def forget(wire: Wire, group: str, *partitions: tuple[str, int]) -> m.OffsetDeleteResponse:
    topics = [
        m.OffsetDeleteRequestTopic(
            name=name, partitions=[m.OffsetDeleteRequestPartition(partition_index=index)]
        )
        for name, index in partitions
    ]
    request = m.OffsetDeleteRequest(group_id=group, topics=topics)
    return wire.ask(request, 0, m.OffsetDeleteResponse)


def codes(response: m.OffsetDeleteResponse) -> list[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


def committed(world: World, group: str = "g") -> list[tuple[str, int]]:
    return sorted(world.broker.coordination.groups.offsets.all_committed(group))  # type: ignore[arg-type]


def test_offsets_are_forgotten_one_by_one(world: World, wire: Wire) -> None:
    world.create("t", 2)
    for index in range(2):
        commit(wire, partition=index)
    response = forget(wire, "g", ("t", 0), ("t", 5), ("none", 0))
    assert response.error_code == 0
    assert codes(response) == [0, 3, 3]
    assert committed(world) == [("t", 1)]
    wire.lose()
    assert committed(world.reopened()) == [("t", 1)]


def test_offsets_of_a_topic_that_is_read_stay(world: World, wire: Wire) -> None:
    for name in ("t", "u"):
        world.create(name)
        commit(wire, topic=name)
    join(wire)
    response = forget(wire, "g", ("t", 0), ("u", 0))
    assert codes(response) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert committed(world) == [("t", 0)]


@pytest.mark.parametrize(
    ("metadata", "kind"), [(b"", "consumer"), (b"\xff\xff", "consumer"), (SUBSCRIPTION, "connect")]
)
def test_offsets_of_members_with_unreadable_subscriptions_are_kept(
    world: World, wire: Wire, metadata: bytes, kind: str
) -> None:
    world.create("t")
    commit(wire)
    join(wire, metadata=metadata, kind=kind)
    response = forget(wire, "g", ("t", 0))
    assert (response.error_code, response.topics) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert committed(world) == [("t", 0)]


def test_offsets_of_a_group_that_does_not_exist(wire: Wire) -> None:
    assert forget(wire, "none", ("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_forgetting_asks_the_authorizer() -> None:
    wire = forbidden(Resource.GROUP, Operation.DELETE)
    assert forget(wire, "g", ("t", 0)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_version_ends_are_those_tested_here() -> None:
    assert ends(ApiKey.DESCRIBE_GROUPS) == [0, 6]
    assert ends(ApiKey.LIST_GROUPS) == [0, 5]
    assert ends(ApiKey.DELETE_GROUPS) == [0, 2]
    assert ends(ApiKey.OFFSET_DELETE) == [0]
