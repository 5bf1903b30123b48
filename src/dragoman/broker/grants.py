"""Rights of work that outlives the request it was authorized for: parked reads, streams, members.

A right that was checked once would otherwise hold for as long as a stream does. Such work holds a
*grant*: when rules, users or the mode change, every grant is checked again, and work that has lost
its right is ended. Many grants are checked over several loop turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.errors import DragomanError
from dragoman.outcome import ignore

#: Asks the authorizer. Raises `NotAuthorized`, or the refusal of a protocol.
Ask: TypeAlias = Callable[[], None]
#: Ends the work, with the refusal.
Revoke: TypeAlias = Callable[[DragomanError], None]


class Grant:
    __slots__ = ("_ask", "_grants", "_revoke")

    def __init__(self, grants: dict[Grant, None], ask: Ask, revoke: Revoke) -> None:
        self._grants = grants
        self._ask = ask
        self._revoke = revoke
        grants[self] = None

    def release(self) -> None:
        """The work has ended."""
        self._grants.pop(self, None)

    def ask_again(self) -> None:
        """Revoked at most once, and not after it was released."""
        if self not in self._grants:
            return
        try:
            self._ask()
        except DragomanError as error:
            self.release()
            self._revoke(error.with_traceback(None))


class StandingRights:
    """The grants of a node."""

    def __init__(self, work: WorkQueue) -> None:
        self._work = work
        self._grants: dict[Grant, None] = {}
        #: Changes with every change that may take a right from a caller.
        self.revision = 0

    def __len__(self) -> int:
        return len(self._grants)

    def hold(self, ask: Ask, revoke: Revoke) -> Grant:
        """Hold a right that was just checked, until the work ends or loses it."""
        return Grant(self._grants, ask, revoke)

    def changed(self) -> None:
        """Rules, users, the mode or settings have changed."""
        self.revision += 1
        if self._grants:
            self._work.run(self._steps(list(self._grants))).then(ignore)

    def _steps(self, grants: list[Grant]) -> Steps[None]:
        for each in grants:
            each.ask_again()
            yield 1
