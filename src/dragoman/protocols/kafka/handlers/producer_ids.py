"""InitProducerId (22), versions 0 to 5: an identity for an idempotent or transactional producer."""

from __future__ import annotations

from dragoman.broker.transactions import ProducerIdentity
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import code_for_version
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_FENCED_SINCE = 4


def handle(call: Call) -> None:
    request = call.decode(m.InitProducerIdRequest)

    def reply(result: ProducerIdentity | DragomanError) -> None:
        if call.is_done:
            return
        if isinstance(result, DragomanError):
            fenced = call.version >= _FENCED_SINCE
            code = code_for_version(result, knows_fenced=fenced, knows_abortable=call.version >= 5)
            call.reply(m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
            return
        identity = m.InitProducerIdResponse(
            producer_id=result.producer_id, producer_epoch=result.epoch
        )
        call.reply(identity)

    coordination = call.service.broker.coordination
    current = None
    if request.producer_id >= 0 and request.producer_epoch >= 0:
        current = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        transactional_id = request.transactional_id
        call.session.authorize(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id or "")
        if transactional_id is not None:
            coordination.transactions.require(transactional_id)
    except DragomanError as error:
        reply(error)
        return
    coordination.transactions.coordinator.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, current, reply
    )
