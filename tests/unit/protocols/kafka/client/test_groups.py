"""Groups: offsets in the layouts of old and new brokers, both kinds of groups, refusals."""

from __future__ import annotations

import pytest

from dragoman.client.kafka import (
    CommittedOffset,
    KafkaClient,
    KafkaError,
    LiveGroupError,
    TopicPartition,
    UnknownGroupError,
    UnknownTopicError,
)
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
    ConsumerGroupDescribeResponseGroup,
    ConsumerGroupDescribeResponseMember,
    ConsumerGroupDescribeResponseTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopic,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
    ListGroupsRequest,
    ListGroupsResponse,
    ListGroupsResponseGroup,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocols.scripted_kafka import ScriptedCluster

WHERE = TopicPartition("t", 0)


def fetched(version: int, code: int = 0, partition_code: int = 0) -> OffsetFetchResponse:
    """Offset 5 in partition 0, none in partition 1."""
    offsets = ((0, 5, partition_code), (1, -1, 0))
    if version >= 8:
        parts = [
            OffsetFetchResponseGroupPartition(
                partition_index=index, committed_offset=offset, metadata="m", error_code=error
            )
            for index, offset, error in offsets
        ]
        topic = OffsetFetchResponseGroupTopic(name="t", partitions=parts)
        group = OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=code)
        return OffsetFetchResponse(groups=[group])
    single = [
        OffsetFetchResponsePartition(
            partition_index=index, committed_offset=offset, metadata="m", error_code=error
        )
        for index, offset, error in offsets
    ]
    return OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(name="t", partitions=single)], error_code=code
    )


@pytest.mark.parametrize("newest", [1, 2, 5, 7, 8, 10])
async def test_committed_offsets_are_read_in_every_layout(
    cluster: ScriptedCluster, newest: int
) -> None:
    for broker in cluster.brokers:
        broker.versions[ApiKey.OFFSET_FETCH] = (0, newest)
        broker.versions[ApiKey.FIND_COORDINATOR] = (0, 6 if newest > 7 else 2)
    cluster.answers[OffsetFetchRequest] = lambda _message, version: fetched(version)
    async with KafkaClient(cluster.bootstrap) as client:
        found = await client.committed_offsets("g", [WHERE, TopicPartition("t", 1)])
        assert found == {WHERE: CommittedOffset(5, "m")}
        if newest >= 2:
            assert await client.committed_offsets("g") == found


async def test_asking_for_no_partition_is_not_asking_for_all(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answers[OffsetFetchRequest] = lambda _message, version: fetched(version)
    await client.committed_offsets("g", [])
    await client.committed_offsets("g")
    none, every = cluster.brokers[0].asked(OffsetFetchRequest)
    assert none.groups[0].topics == []
    assert every.groups[0].topics is None


async def test_loading_and_unstable_offsets_are_waited_for(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(
        OffsetFetchRequest, fetched(9, code=14), fetched(9, partition_code=88), fetched(9)
    )
    assert WHERE in await client.committed_offsets("g", [WHERE])


async def test_group_that_does_not_exist_has_nothing_committed(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    cluster.answer(OffsetFetchRequest, fetched(9, code=69))
    assert await client.committed_offsets("g") == {}


def committed(code: int) -> OffsetCommitResponse:
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])]
    )


async def test_commit_is_that_of_no_member(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.answer(OffsetCommitRequest, committed(0))
    await client.commit_offsets("g", {WHERE: 7, TopicPartition("t", 1): CommittedOffset(8, "note")})
    (request,) = cluster.brokers[0].asked(OffsetCommitRequest)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    offsets = [
        (each.partition_index, each.committed_offset, each.committed_metadata)
        for each in request.topics[0].partitions
    ]
    assert offsets == [(0, 7, ""), (1, 8, "note")]


@pytest.mark.parametrize("code", [22, 25, 27])
async def test_commit_into_a_live_group_is_refused(
    client: KafkaClient, cluster: ScriptedCluster, code: int
) -> None:
    cluster.answer(OffsetCommitRequest, committed(code))
    with pytest.raises(LiveGroupError, match="group 'g'"):
        await client.commit_offsets("g", {WHERE: 7})


async def test_commit_for_an_unknown_partition_names_it(cluster: ScriptedCluster) -> None:
    from dragoman.client.kafka import ClientSettings

    cluster.answer(OffsetCommitRequest, committed(3))
    settings = ClientSettings(operation_timeout_s=0.01)
    async with KafkaClient(cluster.bootstrap, settings) as client:
        with pytest.raises(UnknownTopicError, match="topic 't' partition 0"):
            await client.commit_offsets("g", {WHERE: 7})


async def test_groups_of_all_brokers_are_listed(
    client: KafkaClient, cluster: ScriptedCluster
) -> None:
    for broker in cluster.brokers:
        listed = ListGroupsResponseGroup(
            group_id=f"g{3 - broker.node_id}",
            protocol_type="consumer",
            group_state="Empty",
            group_type="Classic",
        )
        broker.answers[ListGroupsRequest] = lambda _message, _version, listed=listed: (
            ListGroupsResponse(groups=[listed])
        )
    groups = await client.list_groups()
    assert [each.group for each in groups] == ["g1", "g2"]
    assert groups[0].kind == "classic"


async def test_classic_group_is_described(client: KafkaClient, cluster: ScriptedCluster) -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopic(topic="t", partitions=[0, 2])]
    )
    members = [
        DescribeGroupsResponseMember(
            member_id="m",
            client_id="c",
            client_host="/h",
            member_assignment=codec.encode_versioned(assignment, 0),
        ),
        DescribeGroupsResponseMember(member_id="n", member_assignment=b"\xff not ours"),
    ]
    described = DescribeGroupsResponseGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )
    cluster.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[described]))
    details = await client.describe_group("g")
    assert (details.kind, details.state, details.assignor) == ("classic", "Stable", "range")
    assert details.members[0].assignment == (("t", 0), ("t", 2))
    assert details.members[1].assignment == ()


@pytest.mark.parametrize(
    "dead",
    [
        DescribeGroupsResponseGroup(group_id="g", group_state="Dead"),
        DescribeGroupsResponseGroup(group_id="g", error_code=69),
    ],
    ids=["dead", "not found"],
)
async def test_group_of_the_newer_kind_is_described(
    client: KafkaClient, cluster: ScriptedCluster, dead: DescribeGroupsResponseGroup
) -> None:
    cluster.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[dead]))
    topic = ConsumerGroupDescribeResponseTopic(topic_name="t", partitions=[1])
    member = ConsumerGroupDescribeResponseMember(
        member_id="m",
        assignment=ConsumerGroupDescribeResponseAssignment(topic_partitions=[topic]),
    )
    group = ConsumerGroupDescribeResponseGroup(
        group_id="g", group_state="Stable", assignor_name="uniform", members=[member]
    )
    cluster.answer(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[group]))
    details = await client.describe_group("g")
    assert (details.kind, details.assignor) == ("consumer", "uniform")
    assert details.members[0].assignment == (("t", 1),)
    gone = ConsumerGroupDescribeResponseGroup(group_id="g", error_code=69)
    cluster.answer(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[gone]))
    with pytest.raises(UnknownGroupError):
        await client.describe_group("g")


async def test_unknown_group_of_an_older_broker_is_unknown(cluster: ScriptedCluster) -> None:
    for broker in cluster.brokers:
        del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    dead = DescribeGroupsResponseGroup(group_id="g", group_state="Dead")
    cluster.answer(DescribeGroupsRequest, DescribeGroupsResponse(groups=[dead]))
    async with KafkaClient(cluster.bootstrap) as client:
        with pytest.raises(UnknownGroupError):
            await client.describe_group("g")


@pytest.mark.parametrize(("code", "kind"), [(68, LiveGroupError), (69, UnknownGroupError)])
async def test_deletion_that_is_refused_says_why(
    client: KafkaClient, cluster: ScriptedCluster, code: int, kind: type[KafkaError]
) -> None:
    group = DeleteGroupsResponseGroup(group_id="g", error_code=code)
    cluster.answer(DeleteGroupsRequest, DeleteGroupsResponse(results=[group]))
    with pytest.raises(kind):
        await client.delete_group("g")
    cluster.answer(DeleteGroupsRequest, DeleteGroupsResponse())
    await client.delete_group("g")


async def test_offsets_are_deleted(client: KafkaClient, cluster: ScriptedCluster) -> None:
    cluster.answer(OffsetDeleteRequest, OffsetDeleteResponse())
    await client.delete_offsets("g", [WHERE])
    (request,) = cluster.brokers[0].asked(OffsetDeleteRequest)
    assert request.topics[0].partitions[0].partition_index == 0
    cluster.answer(OffsetDeleteRequest, OffsetDeleteResponse(error_code=86))
    with pytest.raises(KafkaError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
        await client.delete_offsets("g", [WHERE])
