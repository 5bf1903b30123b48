"""A request that waits for its answer, and the promise that it gets exactly one.

    waiting --decide--> decided --deliver--> answered
       \\--abandon--> abandoned  <--abandon--/

Deciding and delivering are two steps because a reply may lead straight into the next request of the
same client: answers are decided while the group changes and leave only when it is consistent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from dragoman.errors import DragomanError

Result = TypeVar("Result")


class Parked(Generic[Result]):
    __slots__ = ("_reply", "_result", "_when_abandoned")

    def __init__(self, reply: Callable[[Result | DragomanError], None]) -> None:
        self._reply: Callable[[Result | DragomanError], None] | None = reply
        self._result: Result | DragomanError | None = None
        self._when_abandoned: Callable[[], None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._reply is not None and self._result is None

    def when_abandoned(self, callback: Callable[[], None]) -> None:
        self._when_abandoned = callback

    def decide(self, result: Result | DragomanError) -> None:
        assert self._result is None, "a request is answered once"
        self._result = result

    def deliver(self) -> None:
        reply, result = self._reply, self._result
        assert result is not None
        self._reply = None
        if reply is not None:
            reply(result)

    def abandon(self) -> None:
        """The connection is gone: no answer is wanted any more. No effect once answered."""
        was_waiting = self.is_waiting
        self._reply = None
        if was_waiting and self._when_abandoned is not None:
            self._when_abandoned()


class _Decided(Protocol):
    def deliver(self) -> None: ...


class Outbox:
    """Answers that were decided and wait for the group to be consistent."""

    __slots__ = ("_decided",)

    def __init__(self) -> None:
        self._decided: deque[_Decided] = deque()

    def add(self, parked: Parked[Result], result: Result | DragomanError) -> None:
        parked.decide(result)
        self._decided.append(parked)

    def send(self) -> None:
        """The last step of every entry into a group: a reply may bring the next request."""
        try:
            while self._decided:
                self._decided.popleft().deliver()
        finally:
            # When a reply fails, the others must not wait for it.
            if self._decided:
                self.send()
