"""FindCoordinator (10), versions 0 to 6: which node keeps a group or a transactional id."""

from __future__ import annotations

from dragoman.protocols.kafka.errors import ErrorCode, error_text
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

_GROUP, _TRANSACTION = 0, 1


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, FindCoordinatorRequest)
    broker = call.service.broker
    host, port = call.service.advertised(call.session.channel)
    is_known = request.key_type in (_GROUP, _TRANSACTION)
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    message = None if is_known else error_text(code)
    node_id, host, port = (broker.node_id, host, port) if is_known else (-1, "", -1)
    if call.version < 4:
        call.reply(
            FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=node_id, host=host, port=port
            )
        )
        return
    call.reply(
        FindCoordinatorResponse(
            coordinators=[
                FindCoordinatorResponseCoordinator(
                    key=key,
                    node_id=node_id,
                    host=host,
                    port=port,
                    error_code=code,
                    error_message=message,
                )
                for key in request.coordinator_keys
            ]
        )
    )
