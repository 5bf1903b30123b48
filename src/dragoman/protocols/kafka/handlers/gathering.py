"""One reply out of many results that come in any order, some at once and some later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from dragoman.broker.errors import RequestTimedOut
from dragoman.errors import DragomanError
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import Message
from dragoman.world import Handle

Item = TypeVar("Item")
Result = TypeVar("Result")
#: How an item ends that has no result but that it was done.
Done: TypeAlias = Callable[[DragomanError | None], None]


def gather(
    call: Call,
    items: Sequence[Item],
    begin: Callable[[Item, Callable[[Result | DragomanError], None]], None],
    build: Callable[[list[Result | DragomanError]], Message],
    timeout_ms: int | None = None,
) -> None:
    """Begin every item, and reply when each has its result, with the results in the items' order.

    `begin` is given the item and what to call with its result; an error that it raises is one.
    What has no result after `timeout_ms` is answered with `RequestTimedOut`, and still happens;
    what this turn of the loop makes durable is in time even if the client does not want to wait
    at all, which is what zero and less mean to Kafka.
    """
    results: dict[int, Result | DragomanError] = {}
    timer: list[Handle] = []

    def put(place: int, result: Result | DragomanError) -> None:
        # The connection may have gone meanwhile, or the time may have been over.
        if call.is_done:
            return
        assert place not in results
        results[place] = result
        if len(results) == len(items):
            forget_time()
            call.reply(build([results[each] for each in range(len(items))]))

    def time_is_over() -> None:
        error = RequestTimedOut(f"not done within {timeout_ms} ms; it may still be")
        for place in range(len(items)):
            if place not in results:
                put(place, error)

    def forget_time() -> None:
        for each in timer:
            each.cancel()

    if not items:
        call.reply(build([]))
    for place, item in enumerate(items):

        def done(result: Result | DragomanError, place: int = place) -> None:
            put(place, result)

        try:
            begin(item, done)
        except DragomanError as error:
            done(error)
    if timeout_ms is not None and not call.is_done:
        seconds = max(timeout_ms, 0) / 1000
        timer.append(call.service.broker.scheduler.call_later(seconds, time_is_over))
        call.on_drop(forget_time)
