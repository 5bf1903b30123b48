"""Answers that take long, worked out in slices; see `broker/work_queue.py`.

While one is worked on, later requests of its connection wait: their replies would have to wait for
it, and hold memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.protocols.kafka.codec import array_encoder
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import Message
from dragoman.types import Buffer

Result = TypeVar("Result")
#: The elements of a reply's array, each with what it cost, in items.
Elements: TypeAlias = Iterator[tuple[Message, int]]


def work_on(
    call: Call, steps: Steps[Result], done: Callable[[Result | DragomanError], None]
) -> None:
    """Call `done` with what the steps return, or the error that they raise."""

    def over(result: Result | DragomanError) -> None:
        call.session.worked_on(call)
        done(result)

    call.session.working_on(call)
    call.service.broker.work.run(steps, over, call.is_wanted)


def answer(call: Call, steps: Steps[Message]) -> None:
    """Reply with what the steps return; an error that they raise ends the connection."""

    def done(result: Message | DragomanError) -> None:
        if isinstance(result, DragomanError):
            call.fail(result)
        else:
            call.reply(result)

    work_on(call, steps, done)


def answer_array(call: Call, rest: Message, field: str, elements: Elements) -> None:
    """Reply with `rest` and these elements in its array `field`, encoded one by one as they come:
    encoding a reply takes as long as building it.
    """
    encoder = array_encoder(type(rest), field, call.version)

    def steps() -> Steps[list[Buffer]]:
        encoded: list[bytes] = []
        for element, items in elements:
            encoded.append(encoder.element(element))
            yield items
        return encoder.frame(rest, encoded, call.request.correlation_id)

    def done(result: list[Buffer] | DragomanError) -> None:
        if isinstance(result, DragomanError):
            call.fail(result)
        else:
            call.reply_raw(result)

    work_on(call, steps(), done)
