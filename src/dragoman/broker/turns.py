"""Changes of one thing, one after the other.

A change that builds on what is there must see the outcome of every change before it, and that is
only known when the metadata quorum has agreed. So changes with the same key take turns; those of
other keys do not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeAlias

from dragoman.broker.errors import Overloaded
from dragoman.errors import DragomanError
from dragoman.limits import CONFIG_CHANGES_WAITING_MAX

Done: TypeAlias = Callable[[DragomanError | None], None]
#: Makes the change and calls back exactly once, at once or later. May raise before it has begun.
Change: TypeAlias = Callable[[Done], None]


class _Turn:
    __slots__ = ("change", "done", "has_returned", "is_over")

    def __init__(self, change: Change, done: Done) -> None:
        self.change = change
        self.done = done
        self.has_returned = False
        self.is_over = False


class Turns:
    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[_Turn]] = {}

    def take(self, key: Hashable, change: Change, done: Done) -> None:
        """Begin the change when those before it are over; refused when too many wait."""
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque([_Turn(change, done)])
            self._run(key)
        elif len(queue) <= CONFIG_CHANGES_WAITING_MAX:
            queue.append(_Turn(change, done))
        else:
            done(Overloaded(f"{len(queue)} changes are waiting"))

    def _run(self, key: Hashable) -> None:
        # A loop, not a recursion: a thousand changes may be refused one after the other.
        queue = self._queues[key]
        while queue:
            turn = queue[0]
            try:
                turn.change(partial(self._finish, key, turn))
            except DragomanError as error:
                self._finish(key, turn, error)
            turn.has_returned = True
            if not turn.is_over:
                return
        del self._queues[key]

    def _finish(self, key: Hashable, turn: _Turn, error: DragomanError | None) -> None:
        assert not turn.is_over
        turn.is_over = True
        self._queues[key].popleft()
        turn.done(error)
        if turn.has_returned:
            self._run(key)
