"""What this node does when another one asks for it for its Cursus client; see `relayed.py`."""

from __future__ import annotations

from typing import assert_never

from dragoman.broker.relaying import TakeReply
from dragoman.errors import DragomanError
from dragoman.protocols.cursus.handlers.publish import append_batch
from dragoman.protocols.cursus.handlers.relayed import (
    RelayedBatch,
    RelayedCall,
    StagedMessage,
    StagedOffsets,
    decode,
    in_words,
)
from dragoman.protocols.cursus.handlers.service import CursusService
from dragoman.protocols.cursus.handlers.transactions import transactions_of


def perform(service: CursusService, body: memoryview, told: TakeReply) -> None:
    """Raises `DragomanError`."""
    request = decode(body)

    def answer(outcome: bytes | DragomanError) -> None:
        told(in_words(outcome))

    try:
        match request:
            case RelayedBatch(batch=batch):
                replica = service.broker.find(batch.topic, batch.partition)
                append_batch(service, request, replica, answer)
            case StagedMessage():
                replica = service.broker.find(request.topic, request.partition)
                transactions_of(service).stage_message(request, replica, answer)
            case StagedOffsets():
                call = RelayedCall(service, request.command, answer)
                transactions_of(service).stage_offsets(call)
            case _:
                assert_never(request)
    except DragomanError as error:
        answer(error)
