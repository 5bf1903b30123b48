"""InitProducerId (22), versions 0 to 5: an identity for an idempotent or transactional producer."""

from __future__ import annotations

from dragoman.broker.transactions import ProducerIdentity
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import code_for_version
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.transactions import open_transactions

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

    current = None
    if request.producer_id >= 0 and request.producer_epoch >= 0:
        current = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        coordinator = open_transactions(call, request.transactional_id or "")
    except DragomanError as error:
        reply(error)
        return
    coordinator.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, current, reply
    )
