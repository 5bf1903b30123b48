"""Administration of groups: committed offsets, listing, description, deletion.

Commits have no member id, so a broker accepts them only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from dragoman.client_core.retry import Result
from dragoman.errors import DecodeError
from dragoman.protocols.kafka import codec
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Calls
from dragoman.protocols.kafka.client.errors import (
    KafkaError,
    UnknownGroupError,
    kafka_error,
    raise_first,
)
from dragoman.protocols.kafka.client.values import (
    CommittedOffset,
    GroupDetails,
    GroupListing,
    GroupMember,
    TopicPartition,
)
from dragoman.protocols.kafka.constants import ApiKey
from dragoman.protocols.kafka.errors import ErrorCode

_FIRST_VERSION_WITH_MANY_GROUPS = 8
_FIRST_VERSION_WITH_STABLE = 7
_DEAD = "Dead"


class GroupCalls(Calls):
    """Calls about groups."""

    async def _at_coordinator(
        self, group: str, ask: Callable[[Broker], Awaitable[Result]]
    ) -> Result:
        async def attempt() -> Result:
            return await ask(await self._cluster.coordinator(group))

        return await self._cluster.retry.call(attempt)

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """Committed offsets of these partitions, or of all if None. Partitions without one are left
        out.
        """
        wanted = None if partitions is None else _by_topic(partitions)

        async def ask(broker: Broker) -> dict[TopicPartition, CommittedOffset]:
            reply = await broker.ask(
                m.OffsetFetchResponse, lambda version: _fetch(group, wanted, version)
            )
            return _read_committed(group, reply)

        return await self._at_coordinator(group, ask)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit the next offsets to read. Raises `LiveGroupError` when the group has members."""
        topics: dict[str, m.OffsetCommitRequestTopic] = {}
        for (name, partition), given in offsets.items():
            committed = CommittedOffset(given) if isinstance(given, int) else given
            topic = topics.setdefault(name, m.OffsetCommitRequestTopic(name=name, partitions=[]))
            topic.partitions.append(
                m.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = m.OffsetCommitRequest(group_id=group, topics=list(topics.values()))

        async def ask(broker: Broker) -> None:
            reply = await broker.ask(m.OffsetCommitResponse, request)
            raise_first(
                _commit_error(group, topic.name, each.partition_index, each.error_code)
                for topic in reply.topics
                for each in topic.partitions
            )

        await self._at_coordinator(group, ask)

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        request = m.OffsetDeleteRequest(
            group_id=group,
            topics=[
                m.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        m.OffsetDeleteRequestPartition(partition_index=each) for each in indexes
                    ],
                )
                for name, indexes in _by_topic(partitions).items()
            ],
        )

        async def ask(broker: Broker) -> None:
            reply = await broker.ask(m.OffsetDeleteResponse, request)
            if reply.error_code:
                raise kafka_error(reply.error_code, group=group)
            raise_first(
                _commit_error(group, topic.name, each.partition_index, each.error_code)
                for topic in reply.topics
                for each in topic.partitions
            )

        await self._at_coordinator(group, ask)

    async def list_groups(self) -> list[GroupListing]:
        async def attempt() -> list[GroupListing]:
            found: dict[str, GroupListing] = {}
            # A broker lists only the groups that it coordinates.
            for broker in await self._cluster.all_brokers():
                reply = await broker.ask(m.ListGroupsResponse, m.ListGroupsRequest())
                if reply.error_code:
                    raise kafka_error(reply.error_code)
                for each in reply.groups:
                    found[each.group_id] = GroupListing(
                        group=each.group_id,
                        protocol_type=each.protocol_type,
                        state=each.group_state,
                        kind=each.group_type.lower(),
                    )
            return [found[name] for name in sorted(found)]

        return await self._cluster.retry.call(attempt)

    async def describe_group(self, group: str) -> GroupDetails:
        """Describe a classic or consumer group. Raises `UnknownGroupError`."""

        async def ask(broker: Broker) -> GroupDetails:
            details = await _describe_classic(broker, group)
            if details is None and (await broker.served()).has(ApiKey.CONSUMER_GROUP_DESCRIBE):
                # The older request reports a consumer group (KIP-848) as dead.
                details = await _describe_consumer(broker, group)
            if details is None:
                raise UnknownGroupError(ErrorCode.GROUP_ID_NOT_FOUND, group=group)
            return details

        return await self._at_coordinator(group, ask)

    async def delete_group(self, group: str) -> None:
        """Raises `LiveGroupError`, `UnknownGroupError`."""

        async def ask(broker: Broker) -> None:
            reply = await broker.ask(
                m.DeleteGroupsResponse, m.DeleteGroupsRequest(groups_names=[group])
            )
            raise_first(
                kafka_error(each.error_code, group=group) if each.error_code else None
                for each in reply.results
            )

        await self._at_coordinator(group, ask)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


# ---- committed offsets


def _fetch(
    group: str, wanted: Mapping[str, list[int]] | None, version: int
) -> m.OffsetFetchRequest:
    # An offset whose transaction has not ended is reported as unstable (KIP-447).
    stable = version >= _FIRST_VERSION_WITH_STABLE
    if version >= _FIRST_VERSION_WITH_MANY_GROUPS:
        named = wanted and [
            m.OffsetFetchRequestGroupTopic(name=name, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
        requested = m.OffsetFetchRequestGroup(
            group_id=group, topics=None if wanted is None else named or []
        )
        return m.OffsetFetchRequest(groups=[requested], require_stable=stable)
    topics = None
    if wanted is not None:
        topics = [
            m.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    return m.OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)


def _read_committed(
    group: str, reply: m.OffsetFetchResponse
) -> dict[TopicPartition, CommittedOffset]:
    code = reply.groups[0].error_code if reply.groups else reply.error_code
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if code:
        raise kafka_error(code, group=group)
    found: dict[TopicPartition, CommittedOffset] = {}
    for name, partition in _fetched_partitions(reply):
        if partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if partition.error_code:
            raise kafka_error(partition.error_code, group=group)
        if partition.committed_offset >= 0:
            found[TopicPartition(name, partition.partition_index)] = CommittedOffset(
                partition.committed_offset,
                partition.metadata or "",
                partition.committed_leader_epoch,
            )
    return found


def _fetched_partitions(
    reply: m.OffsetFetchResponse,
) -> Iterable[tuple[str, m.OffsetFetchResponsePartition | m.OffsetFetchResponseGroupPartition]]:
    for topic in reply.topics:
        for single in topic.partitions:
            yield topic.name, single
    for group in reply.groups:
        for many in group.topics:
            for each in many.partitions:
                yield many.name, each


def _commit_error(group: str, topic: str, partition: int, code: int) -> KafkaError | None:
    if not code:
        return None
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return kafka_error(code, topic=topic, partition=partition)
    return kafka_error(code, group=group)


# ---- groups


async def _describe_classic(broker: Broker, group: str) -> GroupDetails | None:
    reply = await broker.ask(m.DescribeGroupsResponse, m.DescribeGroupsRequest(groups=[group]))
    for each in reply.groups:
        if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND or each.group_state == _DEAD:
            return None
        if each.error_code:
            raise kafka_error(each.error_code, each.error_message, group=group)
        return _classic_details(each)
    return None


def _classic_details(each: m.DescribeGroupsResponseGroup) -> GroupDetails:
    return GroupDetails(
        group=each.group_id,
        kind="classic",
        state=each.group_state,
        protocol_type=each.protocol_type,
        assignor=each.protocol_data,
        members=tuple(_classic_member(member) for member in each.members),
    )


def _classic_member(member: m.DescribeGroupsResponseMember) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_assignment(member.member_assignment),
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Partitions of a member; none when the group's protocol type is not `consumer`."""
    try:
        assignment = codec.decode_versioned(m.ConsumerProtocolAssignment, data)
    except DecodeError:
        return ()
    return tuple(
        TopicPartition(each.topic, partition)
        for each in assignment.assigned_partitions
        for partition in each.partitions
    )


async def _describe_consumer(broker: Broker, group: str) -> GroupDetails | None:
    reply = await broker.ask(
        m.ConsumerGroupDescribeResponse,
        m.ConsumerGroupDescribeRequest(group_ids=[group]),
    )
    for each in reply.groups:
        if each.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        if each.error_code:
            raise kafka_error(each.error_code, each.error_message, group=group)
        return _consumer_details(each)
    return None


def _consumer_details(each: m.ConsumerGroupDescribeResponseGroup) -> GroupDetails:
    return GroupDetails(
        group=each.group_id,
        kind="consumer",
        state=each.group_state,
        protocol_type="consumer",
        assignor=each.assignor_name,
        members=tuple(_consumer_member(member) for member in each.members),
    )


def _consumer_member(member: m.ConsumerGroupDescribeResponseMember) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
    )
