"""DescribeGroups (15), ListGroups (16), DeleteGroups (42) and OffsetDelete (47).

A node lists the groups of all protocols that it coordinates, and clients query every node. A group
that does not exist is described as dead, before version 6 without an error: tools rely on this to
check whether a group exists.
"""

from __future__ import annotations

from dragoman.broker.administration import recorded
from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import GroupNotFound
from dragoman.broker.groups import GroupDescription, GroupListing, MemberDescription, State
from dragoman.broker.groups.offsets import PreparedOffsets
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.groups import open_groups
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.resources import NOT_REQUESTED, allowed_operations, exists
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import Elements, answer_array, gather
from dragoman.security.access import CLUSTER_NAME, Operation, Resource
from dragoman.types import GroupId, Partition, TopicName

#: Group types that Kafka's clients know. Consumer groups have their own describe request; groups of
#: other protocols are shown as classic.
_CONSUMER = "consumer"
_CLASSIC = "classic"
#: First version in which a group that does not exist is an error.
_NOT_FOUND_SINCE = 6


# ---- describe


def handle_describe(call: Call) -> None:
    request = call.decode(m.DescribeGroupsRequest)
    with_operations = request.include_authorized_operations

    def elements() -> Elements:
        # A group that is named twice is described once, because it may have megabytes of metadata.
        for group_id in dict.fromkeys(request.groups):
            found = _describe(call, group_id, with_operations)
            yield found, 2 + len(found.members)

    answer_array(call, m.DescribeGroupsResponse(), "groups", elements())


def _describe(call: Call, group_id: str, with_operations: bool) -> m.DescribeGroupsResponseGroup:
    try:
        found = open_groups(call, group_id, Operation.DESCRIBE).describe(GroupId(group_id))
        if found.kind == _CONSUMER:
            raise GroupNotFound(f"group {group_id!r} is not a classic group")
    except GroupNotFound as error:
        return _not_found(call, group_id, error)
    except DragomanError as error:
        return m.DescribeGroupsResponseGroup(error_code=wire_code(error), group_id=group_id)
    operations = (
        allowed_operations(call, Resource.GROUP, group_id) if with_operations else NOT_REQUESTED
    )
    return _described(found, operations)


def _not_found(call: Call, group_id: str, error: GroupNotFound) -> m.DescribeGroupsResponseGroup:
    is_error = call.version >= _NOT_FOUND_SINCE
    return m.DescribeGroupsResponseGroup(
        error_code=wire_code(error) if is_error else 0,
        error_message=str(error) if is_error else None,
        group_id=group_id,
        group_state=State.DEAD,
    )


def _described(found: GroupDescription, operations: int) -> m.DescribeGroupsResponseGroup:
    return m.DescribeGroupsResponseGroup(
        group_id=found.group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=[_member(each) for each in found.members],
        authorized_operations=operations,
    )


def _member(member: MemberDescription) -> m.DescribeGroupsResponseMember:
    return m.DescribeGroupsResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


# ---- list


def handle_list(call: Call) -> None:
    request = call.decode(m.ListGroupsRequest)
    coordination = call.service.broker.coordination
    try:
        coordination.require_loaded(CoordinatorKind.GROUP)
    except DragomanError as error:
        call.reply(m.ListGroupsResponse(error_code=wire_code(error)))
        return
    # Kafka's tools send states such as "PreparingRebalance" and types in lower case; users send
    # either in any case.
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}

    # As in Kafka, the right to describe the cluster shows every group.
    shows_all = call.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    found = [
        group
        for group in coordination.groups.table.listings()
        if (not states or group.state.lower() in states) and (not types or _type_of(group) in types)
    ]
    names = frozenset(group.group_id for group in found)
    shown = names if shows_all else call.describable(Resource.GROUP, names)

    elements = (
        (
            m.ListGroupsResponseGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=_type_of(group),
            ),
            1,
        )
        for group in found
        if group.group_id in shown
    )
    answer_array(call, m.ListGroupsResponse(), "groups", elements)


def _type_of(group: GroupListing) -> str:
    return _CONSUMER if group.kind == _CONSUMER else _CLASSIC


# ---- delete


@awaited
async def handle_delete(call: Call) -> m.DeleteGroupsResponse:
    names = call.decode(m.DeleteGroupsRequest).groups_names
    coordination = call.service.broker.coordination

    async def delete(name: str) -> None:
        open_groups(call, name, Operation.DELETE)
        with recorded(call.service.broker.audit, "group.delete", call.actor, f"group:{name}"):
            await coordination.groups.delete(GroupId(name))

    results = await gather(call, names, delete)
    return m.DeleteGroupsResponse(
        results=[
            m.DeleteGroupsResponseGroup(group_id=name, error_code=wire_code(error))
            for name, error in zip(names, results, strict=True)
        ]
    )


@awaited
async def handle_delete_offsets(call: Call) -> m.OffsetDeleteResponse:
    request = call.decode(m.OffsetDeleteRequest)
    coordination = call.service.broker.coordination
    try:
        open_groups(call, request.group_id, Operation.DELETE)
        partitions = [
            (TopicName(topic.name), Partition(each.partition_index))
            for topic in request.topics
            if _may_read(call, topic.name)
            for each in topic.partitions
            if exists(call, topic.name, each.partition_index)
        ]
        audit, resource = call.service.broker.audit, f"group:{request.group_id}"
        details = [f"topic {name}" for name in sorted({name for name, _ in partitions})]
        with recorded(audit, "group.offsets.delete", call.actor, resource, details):
            prepared = await coordination.groups.delete_offsets(
                GroupId(request.group_id), partitions
            )
    except DragomanError as error:
        return m.OffsetDeleteResponse(error_code=wire_code(error))
    return _offsets_deleted(call, request, prepared)


def _may_read(call: Call, topic: str) -> bool:
    return call.is_allowed(Operation.READ, Resource.TOPIC, topic)


def _offsets_deleted(
    call: Call, request: m.OffsetDeleteRequest, prepared: PreparedOffsets
) -> m.OffsetDeleteResponse:
    refused = prepared.errors

    def code(topic: str, index: int) -> int:
        if not _may_read(call, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not exists(call, topic, index):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refusal = refused.get((TopicName(topic), Partition(index)))
        return wire_code(refusal)

    return m.OffsetDeleteResponse(
        topics=[
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code(topic.name, each.partition_index),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
