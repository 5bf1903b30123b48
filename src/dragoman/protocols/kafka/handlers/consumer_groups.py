"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69), versions 0 and 1: consumer groups.

In version 0 of the heartbeat the broker assigns member ids; from version 1 on clients choose them,
and may subscribe with a pattern. A member of a consumer group must use versions of OffsetCommit and
OffsetFetch that have a field for its epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from dragoman.broker.errors import EpochlessRequest, InvalidGroupRequest, NotAuthorized
from dragoman.broker.groups import ConsumerGroupDescription, HeartbeatReply, HeartbeatRequest
from dragoman.broker.groups.consumer import (
    JOIN,
    ConsumerMemberDescription,
    Partitions,
    by_topic,
    flattened,
)
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.groups import OWNER, open_groups
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import Elements, answer_array
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, MemberId, TopicName

#: First version in which the client chooses its member id.
_OWN_MEMBER_ID_SINCE = 1
#: First version of OffsetCommit with a field for the member epoch.
_COMMIT_WITH_EPOCH_SINCE = 9
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def handle_heartbeat(call: Call) -> None:
    request = call.decode(m.ConsumerGroupHeartbeatRequest)

    def reply(result: HeartbeatReply | DragomanError) -> None:
        if not call.is_done:
            call.reply(_answer(result))

    try:
        groups = open_groups(call, request.group_id)
        _require_topics(call, request.subscribed_topic_names or (), "all topics it subscribes to")
        if call.version >= _OWN_MEMBER_ID_SINCE and not request.member_id:
            raise InvalidGroupRequest("from version 1 on a client chooses its member id")
    except DragomanError as error:
        reply(error)
        return
    groups.consumer_heartbeat(_heartbeat(call, request), reply)


def _require_topics(call: Call, names: Iterable[str], described: str) -> None:
    for name in names:
        if not call.is_allowed(Operation.DESCRIBE, Resource.TOPIC, name):
            raise NotAuthorized(f"{call.caller.name} may not see {described}")


def _heartbeat(call: Call, request: m.ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    timeout_ms = request.rebalance_timeout_ms
    return HeartbeatRequest(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == -1 else timeout_ms,
        topics=None if names is None else frozenset(map(TopicName, names)),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else flattened((each.topic_id, each.partitions) for each in owned),
        client_id=call.request.client_id or "",
        client_host=f"/{call.session.channel.peer_address[0]}",
        owner=OWNER,
        caller=call.caller,
    )


def _answer(result: HeartbeatReply | DragomanError) -> m.ConsumerGroupHeartbeatResponse:
    if isinstance(result, DragomanError):
        return m.ConsumerGroupHeartbeatResponse(
            error_code=wire_code(result), error_message=str(result)
        )
    return m.ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms if result.epoch >= JOIN else 0,
        assignment=None if result.assignment is None else _assignment(result.assignment),
    )


def _assignment(partitions: Partitions) -> m.ConsumerGroupHeartbeatResponseAssignment:
    return m.ConsumerGroupHeartbeatResponseAssignment(
        topic_partitions=[
            m.ConsumerGroupHeartbeatResponseTopic(topic_id=topic_id, partitions=list(indexes))
            for topic_id, indexes in by_topic(partitions)
        ]
    )


# ---- describe


def handle_describe(call: Call) -> None:
    request = call.decode(m.ConsumerGroupDescribeRequest)

    def elements() -> Elements:
        # A group that is named twice is described once.
        for group_id in dict.fromkeys(request.group_ids):
            found = _describe(call, GroupId(group_id))
            yield found, 2 + 5 * len(found.members)

    answer_array(call, m.ConsumerGroupDescribeResponse(), "groups", elements())


def _describe(call: Call, group_id: GroupId) -> m.ConsumerGroupDescribeResponseGroup:
    try:
        groups = open_groups(call, group_id, Operation.DESCRIBE)
        found = groups.describe_consumer(group_id)
        _require_topics(call, _topics_of(call, found), "all topics of the group")
        return _described(call, found)
    except DragomanError as error:
        return m.ConsumerGroupDescribeResponseGroup(
            group_id=group_id, error_code=wire_code(error), error_message=str(error)
        )


def _topics_of(call: Call, group: ConsumerGroupDescription) -> set[str]:
    """The topics that a description names."""
    known = call.service.broker.image.topics_by_id
    names: set[str] = set()
    for member in group.members:
        names.update(member.topics)
        for assigned in (member.assigned, member.target):
            names.update(known[each].name for each, _ in by_topic(assigned) if each in known)
    return names


def _described(call: Call, group: ConsumerGroupDescription) -> m.ConsumerGroupDescribeResponseGroup:
    return m.ConsumerGroupDescribeResponseGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(call, each) for each in group.members],
    )


def _member(call: Call, member: ConsumerMemberDescription) -> m.ConsumerGroupDescribeResponseMember:
    return m.ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=[*member.topics],
        subscribed_topic_regex=member.pattern,
        assignment=_named(call, member.assigned),
        target_assignment=_named(call, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _named(call: Call, partitions: Partitions) -> m.ConsumerGroupDescribeResponseAssignment:
    """The assignment with topic names. Deleted topics are left out, as in Kafka."""
    known = call.service.broker.image.topics_by_id
    return m.ConsumerGroupDescribeResponseAssignment(
        topic_partitions=[
            m.ConsumerGroupDescribeResponseTopic(
                topic_id=topic_id, topic_name=known[topic_id].name, partitions=list(indexes)
            )
            for topic_id, indexes in by_topic(partitions)
            if topic_id in known
        ]
    )


# ---- offsets of consumer groups


def check_commit_version(call: Call, group_id: str, member_id: str) -> None:
    """Raises `EpochlessRequest` when the member needs an epoch and the version has none."""
    if call.version >= _COMMIT_WITH_EPOCH_SINCE:
        return
    group = call.service.broker.coordination.groups.table.consumer_group(GroupId(group_id))
    if group is not None and group.needs_epochs(MemberId(member_id)):
        raise EpochlessRequest(
            f"members of a consumer group commit with version {_COMMIT_WITH_EPOCH_SINCE} or newer"
        )


def check_fetching_member(call: Call, requested: m.OffsetFetchRequestGroup) -> None:
    """Raises if the request names a member with another epoch."""
    if not requested.member_id and requested.member_epoch < 0:
        return
    groups = call.service.broker.coordination.groups.table
    group = groups.consumer_group(GroupId(requested.group_id))
    if group is not None:
        group.check_fetch(MemberId(requested.member_id or ""), requested.member_epoch)
