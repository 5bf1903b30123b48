"""FindCoordinator (10), versions 0 to 6: which node keeps a group or a transactional id."""

from __future__ import annotations

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.session import Call

_GROUP, _TRANSACTION = 0, 1


def handle(call: Call) -> None:
    request = call.decode(m.FindCoordinatorRequest)
    broker = call.service.broker
    host, port = call.service.advertised(call.session.channel)
    is_known = request.key_type in (_GROUP, _TRANSACTION)
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    message = None if is_known else code.text
    node_id, host, port = (broker.node_id, host, port) if is_known else (-1, "", -1)
    if call.version < 4:
        call.reply(
            m.FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=node_id, host=host, port=port
            )
        )
        return
    call.reply(
        m.FindCoordinatorResponse(
            coordinators=[
                m.FindCoordinatorResponseCoordinator(
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
