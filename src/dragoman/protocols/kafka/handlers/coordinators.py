"""FindCoordinator (10), versions 0 to 6: which node keeps a group or a transactional id."""

from __future__ import annotations

from typing import TypeAlias

from dragoman.broker.coordination import CoordinatorKind
from dragoman.broker.errors import CoordinatorNotAvailable, InvalidGroupRequest
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.items import gather
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call, awaited

_KINDS = {0: CoordinatorKind.GROUP, 1: CoordinatorKind.TRANSACTION}
#: First version that asks for several at once.
_BATCHED_SINCE = 4
_Node: TypeAlias = tuple[int, str, int]


@awaited
async def handle(call: Call) -> m.FindCoordinatorResponse:
    request = call.decode(m.FindCoordinatorRequest)
    is_batched = call.version >= _BATCHED_SINCE
    keys = request.coordinator_keys if is_batched else [request.key]

    async def find(key: str) -> _Node:
        kind = _KINDS.get(request.key_type)
        if kind is None:
            raise InvalidGroupRequest(f"there are no coordinators of type {request.key_type}")
        find_coordinator = call.service.broker.coordination.find_coordinator
        return _addressed(call, await find_coordinator(kind, key))

    found = await gather(call, keys, find)
    coordinators = [_coordinator(key, each) for key, each in zip(keys, found, strict=True)]
    if is_batched:
        return m.FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return m.FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _addressed(call: Call, node: int) -> _Node:
    address = call.service.address_of(call.session.channel, node)
    if address is None:
        raise CoordinatorNotAvailable(f"node {node} has no listener like this one")
    return node, *address


def _coordinator(key: str, found: _Node | DragomanError) -> m.FindCoordinatorResponseCoordinator:
    if isinstance(found, DragomanError):
        code = wire_code(found)
        return m.FindCoordinatorResponseCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.text
        )
    node_id, host, port = found
    return m.FindCoordinatorResponseCoordinator(
        key=key, node_id=node_id, host=host, port=port, error_message=None
    )
