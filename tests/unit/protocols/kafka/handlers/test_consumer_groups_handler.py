"""Goal: consumer groups over the wire: heartbeats, descriptions, offsets by epoch, both protocols
in one group, and what survives a restart. Method: requests through the real codec and session to a
broker on virtual time.
"""

from __future__ import annotations

import pytest

from dragoman.config.settings import Settings
from dragoman.log.store import Durability
from dragoman.outcome import start
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.security.access import Caller, Operation, Resource
from dragoman.security.authorizer import AllowAll
from dragoman.types import GroupId
from worlds.broker import Wire, World
from worlds.consumer_clients import DIALECT, subscription
from worlds.kafka_admin import increment


def heartbeat(wire: Wire, version: int = 1, **fields: object) -> m.ConsumerGroupHeartbeatResponse:
    fields = {"group_id": "g", "member_id": "m", **fields}
    request = m.ConsumerGroupHeartbeatRequest(**fields)  # type: ignore[arg-type]
    return wire.ask(request, version, m.ConsumerGroupHeartbeatResponse)


def join(wire: Wire, version: int = 1, **fields: object) -> m.ConsumerGroupHeartbeatResponse:
    defaults: dict[str, object] = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return heartbeat(wire, version, **{**defaults, **fields})


def assigned(response: m.ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    assert response.error_code == 0, response.error_message
    assert response.assignment is not None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


def commit(wire: Wire, version: int = 9, **fields: object) -> int:
    part = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = m.OffsetCommitRequest(
        **{"group_id": "g", "member_id": "m", **fields},  # type: ignore[arg-type]
        topics=[m.OffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    response = wire.ask(request, version, m.OffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


def fetch_offsets(wire: Wire, member_id: str | None, epoch: int) -> m.OffsetFetchResponseGroup:
    topics = [m.OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0])]
    group = m.OffsetFetchRequestGroup(
        group_id="g", member_id=member_id, member_epoch=epoch, topics=topics
    )
    response = wire.ask(m.OffsetFetchRequest(groups=[group]), 9, m.OffsetFetchResponse)
    return response.groups[0]


def describe(wire: Wire, group: str = "g") -> m.ConsumerGroupDescribeResponseGroup:
    request = m.ConsumerGroupDescribeRequest(group_ids=[group])
    return wire.ask(request, 1, m.ConsumerGroupDescribeResponse).groups[0]


def test_api_versions_advertise_consumer_groups(wire: Wire) -> None:
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = wire.ask(request, 4, m.ApiVersionsResponse)
    served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert (served[68], served[69]) == ((0, 1), (0, 1))
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized["group.version"] == 1
    assert {each.name for each in answer.supported_features} >= {"group.version"}


def test_member_joins_stays_and_leaves(world: World, wire: Wire) -> None:
    topic_id = world.create("t", 2)[0].metadata.topic.topic_id
    answer = join(wire)
    assert (answer.member_id, answer.member_epoch) == ("m", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert assigned(answer) == {topic_id: [0, 1]}
    answer = heartbeat(wire, member_epoch=1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)
    owned = [m.ConsumerGroupHeartbeatRequestTopic(topic_id=topic_id, partitions=[0, 1])]
    answer = heartbeat(wire, member_epoch=1, topic_partitions=owned)
    assert (answer.error_code, answer.assignment) == (0, None)
    answer = heartbeat(wire, member_epoch=-1)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, -1, 0)


def test_first_version_lets_the_broker_name_the_member(world: World, wire: Wire) -> None:
    world.create("t")
    answer = join(wire, 0, member_id="")
    assert answer.error_code == 0
    assert answer.member_id
    assert join(wire, 1, member_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_refusals_have_codes_and_words(
    wire: Wire, fields: dict[str, object], code: ErrorCode
) -> None:
    answer = join(wire, **fields)
    assert (answer.error_code, answer.member_id) == (code, None)
    assert answer.error_message


def test_fencing(world: World, wire: Wire) -> None:
    world.create("t")
    join(wire, instance_id="i")
    answer = heartbeat(wire, member_epoch=7, instance_id="i")
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    answer = heartbeat(wire, member_epoch=1, member_id="stranger")
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = join(wire, member_id="other", instance_id="i")
    assert answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    answer = heartbeat(wire, member_epoch=1, member_id="other", instance_id="i")
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_patterns_leave_out_topics_of_the_broker_and_of_other_protocols(
    world: World, wire: Wire
) -> None:
    topic_id = world.create("t")[0].metadata.topic.topic_id
    world.create("%RETRY%g")
    join(wire, group_id="other")
    assert "__consumer_offsets" in world.broker.image.topics
    answer = join(wire, subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert assigned(answer) == {topic_id: [0]}


def test_new_topics_and_partitions_reach_members_with_their_next_heartbeat(
    world: World, wire: Wire
) -> None:
    answer = join(wire, subscribed_topic_names=None, subscribed_topic_regex="new-.*")
    assert assigned(answer) == {}
    topic_id = world.create("new-1")[0].metadata.topic.topic_id
    answer = heartbeat(wire, member_epoch=1)
    assert assigned(answer) == {topic_id: [0]}
    start(world.broker.topics.add_partitions("new-1", 3, ())).then(lambda _: None)
    world.settle()
    answer = heartbeat(wire, member_epoch=2)
    assert (answer.member_epoch, assigned(answer)) == (3, {topic_id: [0, 1, 2]})
    start(world.broker.topics.delete("new-1")).then(lambda _: None)
    world.settle()
    answer = heartbeat(wire, member_epoch=3)
    assert (answer.member_epoch, assigned(answer)) == (3, {})
    assert heartbeat(wire, member_epoch=3, topic_partitions=[]).member_epoch == 4


def test_description_shows_members_and_both_assignments(world: World, wire: Wire) -> None:
    topic_id = world.create("t", 2)[0].metadata.topic.topic_id
    join(wire, rack_id="r", instance_id="i")
    join(wire, member_id="n", subscribed_topic_regex="t+")
    group = describe(wire)
    assert (group.error_code, group.group_state) == (0, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "uniform")
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id) == ("m", "i", "r")
    assert (first.client_id, first.client_host, first.member_epoch) == ("test", "/10.0.0.9", 1)
    assert first.subscribed_topic_names == ["t"]
    assert second.subscribed_topic_regex == "t+"
    assert first.member_type == second.member_type == 1
    (topic,) = first.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (topic_id, "t", [0, 1])
    (topic,) = first.target_assignment.topic_partitions
    assert topic.partitions == [0]
    assert second.assignment.topic_partitions == []


def test_description_of_what_is_no_consumer_group(world: World, wire: Wire) -> None:
    assert describe(wire, "nobody").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    world.create("t")
    assert commit(wire, 8, group_id="simple", member_id="", generation_id_or_member_epoch=-1) == 0
    group = describe(wire, "simple")
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message


def test_offsets_are_committed_and_read_by_epoch(world: World, wire: Wire) -> None:
    world.create("t")
    join(wire)
    assert commit(wire, generation_id_or_member_epoch=1) == 0
    assert commit(wire, generation_id_or_member_epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert (
        commit(wire, member_id="x", generation_id_or_member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert commit(wire, 8, generation_id_or_member_epoch=1) == ErrorCode.UNSUPPORTED_VERSION
    found = fetch_offsets(wire, "m", 1)
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (0, 1)
    assert fetch_offsets(wire, "m", 4).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_offsets(wire, "x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_offsets(wire, None, -1).error_code == 0
    assert fetch_offsets(wire, "", -1).error_code == 0


def test_group_survives_a_kill(world: World, wire: Wire) -> None:
    world = World()
    wire = Wire(world)
    world.create("t", 2)
    join(wire)
    join(wire, member_id="n", instance_id="i", server_assignor="range")
    heartbeat(wire, member_epoch=1, topic_partitions=[])
    before = describe(wire)
    world = world.reopened(kill=True)
    wire = Wire(world)
    after = describe(wire)
    assert {each.member_id: each for each in after.members} == {
        each.member_id: each for each in before.members
    }
    assert (after.group_epoch, after.group_state) == (before.group_epoch, before.group_state)
    answer = heartbeat(wire, member_epoch=2, member_id="n", instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (0, 2)
    world.advance(46)
    assert describe(wire).group_state == "Empty"


def test_settings_rule_sessions(wire: Wire) -> None:
    settings = Settings(
        group_consumer_session_timeout_ms=9_000,
        group_consumer_min_session_timeout_ms=9_000,
        group_consumer_max_size=1,
        group_consumer_assignors=("range",),
    )
    world = World(settings, durability=Durability.OS)
    wire = Wire(world)
    world.create("t")
    join(wire)
    assert join(wire, member_id="n").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert join(wire, server_assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert describe(wire).assignor_name == "range"
    world.advance(9.5)
    assert describe(wire).group_state == "Empty"


def join_classic(wire: Wire, member_id: str) -> m.JoinGroupResponse:
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
    )
    wire.send(request, 9)
    wire.world.settle()
    wire.world.advance(3.1)
    (reply,) = wire.replies()
    assert isinstance(reply.message, m.JoinGroupResponse)
    return reply.message


def test_group_goes_from_one_protocol_to_the_other_and_back(world: World, wire: Wire) -> None:
    topic_id = world.create("t", 2)[0].metadata.topic.topic_id
    classic = Wire(world)
    told = join_classic(classic, "")
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join_classic(classic, told.member_id)
    assert joined.leader == joined.member_id
    everything = DIALECT.write_assignment(subscription(["t"]), [("t", [0, 1])])
    sync = m.SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=everything)
        ],
    )
    assert classic.ask(sync, 5, m.SyncGroupResponse).assignment == everything
    answer = join(wire)
    assert (answer.member_epoch, assigned(answer)) == (2, {})
    beat = m.HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert classic.ask(beat, 4, m.HeartbeatResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = join_classic(classic, joined.member_id)
    assert (again.error_code, again.generation_id, again.leader) == (0, 2, "")
    sync = m.SyncGroupRequest(
        group_id="g", generation_id=2, member_id=joined.member_id, protocol_type="consumer"
    )
    half = classic.ask(sync, 4, m.SyncGroupResponse).assignment
    assert DIALECT.read_assignment(half) == [("t", [0])]
    assert assigned(heartbeat(wire, member_epoch=2)) == {topic_id: [1]}
    types = {each.member_id: each.member_type for each in describe(wire).members}
    assert types == {"m": 1, joined.member_id: 0}
    assert heartbeat(wire, member_epoch=-1).error_code == 0
    world.settle()
    assert world.broker.coordination.groups.table.describe(GroupId("g")).kind == "classic"
    last = join_classic(classic, joined.member_id)
    assert (last.error_code, last.leader) == (0, joined.member_id)


def test_who_may_not_see_a_topic_cannot_subscribe_to_it() -> None:
    class NoTopics(AllowAll):
        def is_allowed(
            self, caller: Caller, operation: Operation, resource: Resource, name: str
        ) -> bool:
            return resource is not Resource.TOPIC

    world = World(authorizer=NoTopics(), durability=Durability.OS)
    assert join(Wire(world)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_reply_to_a_connection_that_is_gone_is_dropped(world: World, wire: Wire) -> None:
    world.create("t")
    wire.send(
        m.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
    )
    wire.lose()
    world.settle()
    assert describe(Wire(world)).members[0].member_id == "m"


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\x00", b"\xff\xff" + b"\x00" * 20])
def test_metadata_that_cannot_be_read_is_no_subscription(metadata: bytes) -> None:
    assert DIALECT.read_subscription(metadata) is None
    assert DIALECT.read_assignment(metadata) is None


def test_metadata_of_every_version_is_read_and_answered_in_kind() -> None:
    for version in range(4):
        metadata = subscription(["t"], [("t", [3])], version)
        read = DIALECT.read_subscription(metadata)
        assert read is not None
        assert read.topics == {"t"}
        assert list(read.owned) == ([("t", [3])] if version else [])
        answer = DIALECT.write_assignment(metadata, [("t", [1])])
        assert answer[:2] == version.to_bytes(2, "big")
        assert DIALECT.read_assignment(answer) == [("t", [1])]
    newer = (9).to_bytes(2, "big") + subscription(["t"], (), 3)[2:]
    assert DIALECT.write_assignment(newer, [])[:2] == b"\x00\x03"


def test_groups_own_times_count_from_the_next_heartbeat_on(world: World, wire: Wire) -> None:
    world.create("t")
    epoch = join(wire).member_epoch
    changes = (
        ("consumer.session.timeout.ms", 0, "60000"),
        ("consumer.heartbeat.interval.ms", 0, "7000"),
    )
    assert increment(wire, 32, "g", *changes).error_code == 0
    assert heartbeat(wire, member_epoch=epoch).heartbeat_interval_ms == 7000
    world.advance(50)
    assert heartbeat(wire, member_epoch=epoch).error_code == 0
    deletions = tuple((name, 1, None) for name, _, _ in changes)
    assert increment(wire, 32, "g", *deletions).error_code == 0
    assert heartbeat(wire, member_epoch=epoch).heartbeat_interval_ms == 5000
    world.advance(50)
    refused = heartbeat(wire, member_epoch=epoch)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
