"""Several steps that run side by side, and one answer for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dragoman.broker.replica import Acknowledge
from dragoman.errors import DragomanError


class AllOf:
    """Calls back once when several steps are done, with the first error if there was one."""

    def __init__(self, count: int, done: Acknowledge) -> None:
        self._left = count
        self._done = done
        self._error: DragomanError | None = None

    def run(self, steps: Sequence[Callable[[Acknowledge], None]]) -> None:
        if not steps:
            self._done(None)
        for step in steps:
            step(self._finished)

    def _finished(self, error: DragomanError | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._done(self._error)
