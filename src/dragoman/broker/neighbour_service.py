"""Answers what other nodes ask on behalf of their clients (`neighbours.py`).

Nothing is decided here: each request is what a client of this node could have asked for, or what
this node would have told itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, assert_never

from dragoman.broker.neighbours import (
    AskCaptures,
    CaptureStates,
    RemoveCapture,
    Reply,
    TellCapture,
    decode_request,
    encode,
    refusal_of,
)
from dragoman.errors import DragomanError
from dragoman.rpc import Done
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

#: Header and pieces of the body.
Send: TypeAlias = Callable[[bytes, Sequence[Buffer]], None]
_Answer: TypeAlias = Callable[[Reply | DragomanError, Sequence[Buffer]], None]


class NeighbourService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def request(self, _node: int, header: memoryview, _body: memoryview, send: Send) -> None:
        """Answer what `node` asks, now or later, exactly once. Raises `DecodeError`."""
        request = decode_request(header)

        def answer(reply: Reply | DragomanError, pieces: Sequence[Buffer] = ()) -> None:
            if isinstance(reply, DragomanError):
                reply = refusal_of(reply)
            send(encode(reply), pieces)

        done = partial(_acknowledge, answer)
        try:
            match request:
                case AskCaptures():
                    answer(CaptureStates(states=self._broker.capturing.states_here(request.names)))
                case TellCapture():
                    self._broker.capturing.tell_here(request.name, request.command, done)
                case RemoveCapture():
                    self._broker.capturing.remove_here(request.name, request.keeps_slot, done)
                case _:
                    assert_never(request)
        except DragomanError as error:
            answer(error)


def _acknowledge(answer: _Answer, error: DragomanError | None) -> None:
    answer(error or Done(), ())
