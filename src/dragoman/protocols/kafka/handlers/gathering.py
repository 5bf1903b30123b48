"""One reply out of many results that come in any order, some at once and some later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from dragoman.broker.errors import RequestTimedOut
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import work_on
from dragoman.protocols.kafka.messages import Message
from dragoman.types import Buffer
from dragoman.world import Handle

Item = TypeVar("Item")
Result = TypeVar("Result")
#: How an item ends that has no result but that it was done.
Done: TypeAlias = Callable[[DragomanError | None], None]


def gather(
    call: Call,
    items: Sequence[Item],
    begin: Callable[[Item, Callable[[Result | DragomanError], None]], None],
    build: Callable[[list[Result | DragomanError]], Message | list[Buffer]],
    timeout_ms: int | None = None,
    weigh: Callable[[Item], int] = lambda _: 1,
) -> None:
    """Begin every item, and reply when each has its result, with the results in the items' order.

    Many items are begun over several loop turns; `weigh` says how much one is worth, in items of
    the queue of long work. `begin` is given the item and what to call with its result; an error
    that it raises is one. What has no result `timeout_ms` after all have begun is answered with
    `RequestTimedOut`, and still happens; what that turn of the loop makes durable is in time even
    if the client does not want to wait at all, which is what zero and less mean to Kafka.
    """
    results: dict[int, Result | DragomanError] = {}
    timer: list[Handle] = []

    def put(place: int, result: Result | DragomanError) -> None:
        # The connection may have gone meanwhile, or the time may have been over.
        if call.is_done:
            return
        assert place not in results
        if isinstance(result, DragomanError):
            # Thousands of errors with the frames they came through are a long garbage collection.
            result.__traceback__ = None
        results[place] = result
        if len(results) == len(items):
            forget_time()
            reply([results[each] for each in range(len(items))])

    def reply(ordered: list[Result | DragomanError]) -> None:
        """`build` may have encoded the reply already."""
        built = build(ordered)
        if isinstance(built, list):
            call.reply_raw(built)
        else:
            call.reply(built)

    def time_is_over() -> None:
        error = RequestTimedOut(f"not done within {timeout_ms} ms; it may still be")
        for place in range(len(items)):
            if place not in results:
                put(place, error)

    def forget_time() -> None:
        for each in timer:
            each.cancel()

    def begin_one(place: int, item: Item) -> None:
        def done(result: Result | DragomanError) -> None:
            put(place, result)

        try:
            begin(item, done)
        except DragomanError as error:
            done(error)

    def steps() -> Steps[None]:
        for place, item in enumerate(items):
            begin_one(place, item)
            yield weigh(item)

    def begun(outcome: DragomanError | None) -> None:
        # An item's error is its result; only the reply itself can fail here.
        if outcome is not None:
            call.fail(outcome)
        elif timeout_ms is not None and not call.is_done:
            seconds = max(timeout_ms, 0) / 1000
            timer.append(call.service.broker.scheduler.call_later(seconds, time_is_over))
            call.on_drop(forget_time)

    if items:
        work_on(call, steps(), begun)
    else:
        reply([])
