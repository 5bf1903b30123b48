"""What can be said of a heartbeat without knowing its group (KIP-848, request validation)."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman import limits
from dragoman.broker.errors import (
    GroupRequestTooLarge,
    InvalidGroupRequest,
    UnsupportedAssignor,
)
from dragoman.broker.groups.consumer.messages import JOIN, LEAVE_FOR_NOW, HeartbeatRequest


def check_heartbeat(request: HeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raises for a heartbeat that no group can take."""
    if not request.group_id:
        raise InvalidGroupRequest("a group with members needs a name")
    if request.instance_id == "":
        raise InvalidGroupRequest("an instance id is not empty")
    if request.rack_id == "":
        raise InvalidGroupRequest("a rack id is not empty")
    if request.epoch < LEAVE_FOR_NOW:
        raise InvalidGroupRequest(f"epoch {request.epoch} says nothing")
    if request.epoch == LEAVE_FOR_NOW and request.instance_id is None:
        raise InvalidGroupRequest("only static members leave for a while")
    if not request.member_id and request.epoch != JOIN:
        raise InvalidGroupRequest("a member names itself")
    if request.epoch == JOIN:
        _check_join(request)
    _check_size(request)
    if request.assignor is not None and request.assignor not in assignors:
        raise UnsupportedAssignor(f"{request.assignor!r} is not one of: {', '.join(assignors)}")


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms is None or request.rebalance_timeout_ms < 0:
        raise InvalidGroupRequest("a join tells its rebalance time-out")
    if request.topics is None and request.pattern is None:
        raise InvalidGroupRequest("a join tells topics, or a pattern for them")
    if request.owned is None or request.owned:
        raise InvalidGroupRequest("who joins has no partitions, and says so")


def _check_size(request: HeartbeatRequest) -> None:
    if len(request.member_id.encode()) > limits.MEMBER_ID_BYTES_MAX:
        raise InvalidGroupRequest(f"a member id has at most {limits.MEMBER_ID_BYTES_MAX} bytes")
    if len((request.instance_id or "").encode()) > limits.INSTANCE_ID_BYTES_MAX:
        raise InvalidGroupRequest(
            f"an instance id has at most {limits.INSTANCE_ID_BYTES_MAX} bytes"
        )
    size = member_bytes(request)
    if size > limits.MEMBER_BYTES_MAX:
        raise GroupRequestTooLarge(f"{size} bytes of member metadata")
    if request.owned is not None and len(request.owned) > limits.MEMBER_OWNED_PARTITIONS_MAX:
        raise GroupRequestTooLarge(f"{len(request.owned)} partitions in one heartbeat")


def member_bytes(request: HeartbeatRequest) -> int:
    """Roughly what a member takes that brings all this; characters stand for bytes."""
    size = len(request.member_id) + len(request.instance_id or "") + len(request.rack_id or "")
    return size + len(request.client_id) + sum(map(len, request.topics or ()))
