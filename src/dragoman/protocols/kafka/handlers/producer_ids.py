"""InitProducerId (22), versions 0 to 5: an identity for an idempotent producer.

Transactional ids are refused until transactions are served.
"""

from __future__ import annotations

from dragoman.broker.errors import TransactionError
from dragoman.broker.transactions import ProducerIdentity
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import InitProducerIdRequest, InitProducerIdResponse


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, InitProducerIdRequest)
    if request.transactional_id is not None:
        is_empty = not request.transactional_id
        code = ErrorCode.INVALID_REQUEST if is_empty else ErrorCode.COORDINATOR_NOT_AVAILABLE
        call.reply(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
        return

    def ready(result: ProducerIdentity | TransactionError) -> None:
        if call.is_done:
            return
        if isinstance(result, TransactionError):
            code = wire_code(result)
            call.reply(InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1))
        else:
            call.reply(
                InitProducerIdResponse(producer_id=result.producer_id, producer_epoch=result.epoch)
            )

    call.service.broker.coordination.transactions.init_producer_id(None, 0, None, ready)
