"""One reply out of many results that come in any order, some at once and some later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from dragoman.errors import DragomanError
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import Message

Item = TypeVar("Item")
Result = TypeVar("Result")
#: How an item ends that has no result but that it was done.
Done: TypeAlias = Callable[[DragomanError | None], None]


def gather(
    call: Call,
    items: Sequence[Item],
    begin: Callable[[Item, Callable[[Result | DragomanError], None]], None],
    build: Callable[[list[Result | DragomanError]], Message],
) -> None:
    """Begin every item, and reply when each has its result, with the results in the items' order.

    `begin` is given the item and what to call with its result; an error that it raises is one.
    """
    results: dict[int, Result | DragomanError] = {}

    def put(place: int, result: Result | DragomanError) -> None:
        assert place not in results
        results[place] = result
        # The connection may have gone meanwhile.
        if len(results) == len(items) and not call.is_done:
            call.reply(build([results[each] for each in range(len(items))]))

    if not items:
        call.reply(build([]))
    for place, item in enumerate(items):

        def done(result: Result | DragomanError, place: int = place) -> None:
            put(place, result)

        try:
            begin(item, done)
        except DragomanError as error:
            done(error)
