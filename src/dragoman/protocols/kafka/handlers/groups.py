"""JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14): members of classic groups.

Joins and syncs are parked until the group can answer them, and abandoned when their connection is
lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dragoman.broker.errors import MemberIdRequired, RebalanceInProgress
from dragoman.broker.groups import (
    Groups,
    Joined,
    JoinRequest,
    LeavingMember,
    Synced,
    SyncRequest,
)
from dragoman.broker.groups.registry import check_group_id
from dragoman.broker.groups.waits import Parked
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, MemberId

OWNER = "kafka"
#: First version whose clients handle MEMBER_ID_REQUIRED (KIP-394).
_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
#: First version in which a missing protocol is null instead of the empty string.
_NULL_PROTOCOL_SINCE = 7


def open_groups(call: Call, group_id: str, operation: Operation = Operation.READ) -> Groups:
    """The groups that this node coordinates. Raises `BrokerError` when the client may not use the
    group, or another node coordinates it.
    """
    broker = call.service.broker
    check_group_id(group_id)
    call.authorize(operation, Resource.GROUP, group_id)
    broker.coordination.groups.require(group_id)
    return broker.coordination.groups.table


def _end_wait(
    parked: Parked[Joined] | Parked[Synced], reply: Callable[[DragomanError], None]
) -> None:
    """Answer a parked request at once, because its client has closed its half of the connection."""
    parked.abandon()
    reply(RebalanceInProgress("the group was still rebalancing when its client stopped sending"))


def _hold_right(
    call: Call,
    group_id: str,
    parked: Parked[Joined] | Parked[Synced],
    reply: Callable[[DragomanError], None],
) -> None:
    """Let a parked request wait until it is answered, its connection closes, or the client may no
    longer use the group.
    """

    def revoked(error: DragomanError) -> None:
        parked.abandon()
        reply(error)

    ask = partial(call.authorize, Operation.READ, Resource.GROUP, group_id)
    call.grant = grant = call.service.broker.grants.hold(ask, revoked)

    def forget() -> None:
        grant.release()
        parked.abandon()

    call.on_drop(forget)
    call.on_end(partial(_end_wait, parked, reply))


def handle_join(call: Call) -> None:
    request = call.decode(m.JoinGroupRequest)

    def reply(result: Joined | DragomanError) -> None:
        if not call.is_done:
            call.reply(_joined(call, request, result))

    try:
        groups = open_groups(call, request.group_id)
    except DragomanError as error:
        reply(error)
        return
    parked = groups.join(
        JoinRequest(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            instance_id=request.group_instance_id,
            client_id=call.request.client_id or "",
            client_host=f"/{call.session.channel.peer_address[0]}",
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms if call.version >= 1 else -1,
            requires_known_member_id=call.version >= _MEMBER_ID_REQUIRED_SINCE,
            supports_skip_assignment=call.version >= _SKIP_ASSIGNMENT_SINCE,
            owner=OWNER,
        ),
        reply,
    )
    if parked is not None and not call.is_done:
        _hold_right(call, request.group_id, parked, reply)


def _joined(
    call: Call, request: m.JoinGroupRequest, result: Joined | DragomanError
) -> m.JoinGroupResponse:
    if isinstance(result, DragomanError):
        member_id = request.member_id
        if isinstance(result, MemberIdRequired):
            member_id = result.member_id
        return m.JoinGroupResponse(
            error_code=wire_code(result),
            protocol_name=None if call.version >= _NULL_PROTOCOL_SINCE else "",
            member_id=member_id,
        )
    return m.JoinGroupResponse(
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            m.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata,
            )
            for each in result.members
        ],
    )


def handle_sync(call: Call) -> None:
    request = call.decode(m.SyncGroupRequest)

    def reply(result: Synced | DragomanError) -> None:
        if call.is_done:
            return
        if isinstance(result, DragomanError):
            call.reply(m.SyncGroupResponse(error_code=wire_code(result)))
        else:
            call.reply(
                m.SyncGroupResponse(
                    protocol_type=result.protocol_type,
                    protocol_name=result.protocol,
                    assignment=result.assignment,
                )
            )

    try:
        groups = open_groups(call, request.group_id)
    except DragomanError as error:
        reply(error)
        return
    parked = groups.sync(
        SyncRequest(
            group_id=GroupId(request.group_id),
            member_id=MemberId(request.member_id),
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments=tuple(
                (MemberId(each.member_id), each.assignment) for each in request.assignments
            ),
        ),
        reply,
    )
    if parked is not None and not call.is_done:
        _hold_right(call, request.group_id, parked, reply)


def handle_heartbeat(call: Call) -> None:
    request = call.decode(m.HeartbeatRequest)
    code = 0
    try:
        open_groups(call, request.group_id).heartbeat(
            GroupId(request.group_id),
            MemberId(request.member_id),
            request.generation_id,
            request.group_instance_id,
        )
    except DragomanError as error:
        code = wire_code(error)
    call.reply(m.HeartbeatResponse(error_code=code))


def handle_leave(call: Call) -> None:
    request = call.decode(m.LeaveGroupRequest)
    if call.version < 3:
        leaving = [LeavingMember(member_id=MemberId(request.member_id))]
    else:
        leaving = [
            LeavingMember(member_id=MemberId(each.member_id), instance_id=each.group_instance_id)
            for each in request.members
        ]
    try:
        results = open_groups(call, request.group_id).leave(GroupId(request.group_id), leaving)
    except DragomanError as error:
        call.reply(m.LeaveGroupResponse(error_code=wire_code(error)))
        return
    codes = [wire_code(error) for error in results]
    if call.version < 3:
        call.reply(m.LeaveGroupResponse(error_code=codes[0]))
        return
    call.reply(
        m.LeaveGroupResponse(
            members=[
                m.LeaveGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    error_code=code,
                )
                for each, code in zip(leaving, codes, strict=True)
            ]
        )
    )
