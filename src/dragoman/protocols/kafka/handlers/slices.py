"""Computes long replies in slices of a loop turn; see `broker/work_queue.py`.

While a reply is being computed, later requests of its connection do not begin: their replies would
wait for it and hold memory meanwhile. `gather` serves requests that name many items with a result
each: it begins every item and waits for all results.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from dragoman.broker.errors import RequestTimedOut
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.outcome import Outcome, start
from dragoman.protocols.kafka.codec import array_encoder
from dragoman.protocols.kafka.handlers.session import Call, finish
from dragoman.protocols.kafka.messages import Message
from dragoman.types import Buffer
from dragoman.world import Handle

Item = TypeVar("Item")
Result = TypeVar("Result")
#: The elements of a reply's array, each with its cost in items.
Elements: TypeAlias = Iterator[tuple[Message, int]]


def answer(call: Call, steps: Steps[Message] | Steps[list[Buffer]]) -> None:
    """Reply with the result of the steps; an error that they raise closes the connection."""
    call.session.working_on(call)
    call.service.broker.work.run(steps, call.is_wanted).then(partial(finish, call))


def answer_array(call: Call, rest: Message, field: str, elements: Elements) -> None:
    """Reply with `rest` and these elements in its array `field`. Each element is encoded as it is
    produced, because encoding a reply takes as long as building it.
    """
    answer(call, _encoded(call, rest, field, elements))


def _encoded(call: Call, rest: Message, field: str, elements: Elements) -> Steps[list[Buffer]]:
    encoder = array_encoder(type(rest), field, call.version)
    encoded: list[bytes] = []
    call.count_errors(rest)
    for element, items in elements:
        call.count_errors(element)
        encoded.append(encoder.element(element))
        yield items
    return encoder.frame(rest, encoded, call.request.correlation_id)


async def gather(
    call: Call,
    items: Sequence[Item],
    work: Callable[[Item], Coroutine[object, None, Result]],
    *,
    timeout_ms: int | None = None,
    weigh: Callable[[Item], int] = lambda _: 1,
) -> list[Result | DragomanError]:
    """The result of each item, or the error that it raised, in the order of the items.

    Many items are begun over several loop turns; `weigh` is the cost of an item, in items of the
    work queue. An item without a result `timeout_ms` after all have begun counts as
    `RequestTimedOut`; its work continues. As in Kafka, the client does not wait with a timeout of
    zero or less: only what becomes durable in this loop turn is in time.
    """
    if not items:
        return []
    return await _Gathering(call, items, work, timeout_ms, weigh).results


class _Gathering(Generic[Result]):
    def __init__(
        self,
        call: Call,
        items: Sequence[Item],
        work: Callable[[Item], Coroutine[object, None, Result]],
        timeout_ms: int | None,
        weigh: Callable[[Item], int],
    ) -> None:
        self._call = call
        self._count = len(items)
        self._timeout_ms = timeout_ms
        self._timer: Handle | None = None
        self._found: dict[int, Result | DragomanError] = {}
        self.results: Outcome[list[Result | DragomanError]] = Outcome()

        call.on_drop(self._drop)
        call.session.working_on(call)
        steps = self._steps(items, work, weigh)
        call.service.broker.work.run(steps, call.is_wanted).then(self._begun)

    def _steps(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Coroutine[object, None, Result]],
        weigh: Callable[[Item], int],
    ) -> Steps[None]:
        for place, item in enumerate(items):
            start(work(item)).then(partial(self._put, place))
            yield weigh(item)

    def _put(self, place: int, result: Result | DragomanError) -> None:
        if self.results.is_settled:
            # The connection is gone, or the time is over.
            return
        if isinstance(result, DragomanError):
            # Thousands of errors that keep their stack frames alive would make garbage collection
            # slow.
            result.__traceback__ = None
        self._found[place] = result
        if len(self._found) == self._count:
            self._forget_time()
            self.results.succeed([self._found[each] for each in range(self._count)])

    def _begun(self, error: DragomanError | None) -> None:
        self._call.session.worked_on(self._call)
        if error is not None:
            self.results.fail(error)
        elif self._timeout_ms is not None and not self.results.is_settled:
            seconds = max(self._timeout_ms, 0) / 1000
            scheduler = self._call.service.broker.scheduler
            self._timer = scheduler.call_later(seconds, self._time_is_over)

    def _time_is_over(self) -> None:
        error = RequestTimedOut(f"not done within {self._timeout_ms} ms; it may still be")
        for place in range(self._count):
            if place not in self._found:
                self._put(place, error)

    def _forget_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _drop(self) -> None:
        """Called when the connection is gone. Items that have begun run to their end."""
        self._forget_time()
        if not self.results.is_settled:
            self.results.fail(RequestTimedOut("the connection is gone"))
