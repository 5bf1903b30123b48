"""One reply out of many results that come in any order, some at once and some later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import Message

Result = TypeVar("Result")


class Gathering(Generic[Result]):
    """Replies when every place is filled, with the results in the order of the places."""

    def __init__(self, call: Call, count: int, build: Callable[[list[Result]], Message]) -> None:
        self._call = call
        self._build = build
        self._results: dict[int, Result] = {}
        self._count = count
        if not count:
            call.reply(build([]))

    def set(self, place: int, result: Result) -> None:
        assert place not in self._results
        self._results[place] = result
        # The connection may have gone meanwhile.
        if len(self._results) == self._count and not self._call.is_done:
            self._call.reply(self._build([self._results[each] for each in range(self._count)]))
