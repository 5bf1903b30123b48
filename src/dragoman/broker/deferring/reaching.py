"""A request finds the node that keeps a deferred record, here or elsewhere.

While nobody does, or the node still reads back what it keeps, nothing is done and the request
waits, for up to `RELAY_PATIENCE_S`. When an answer is lost the outcome is unknown, and whoever
asked is told that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
)
from dragoman.broker.kinds import NOBODY
from dragoman.broker.neighbours import Answer, Request
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.limits import RELAY_PATIENCE_S, RELAY_RETRY_S
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

Result = TypeVar("Result")
#: Takes the node, `NOBODY` for the moment, or why there will be none.
TakeNode: TypeAlias = Callable[[int | DragomanError], None]
#: Nothing was done, and it may go better in a moment.
_PASSING = (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, NotSentError)


class Errand(Generic[Result]):
    """`here` does it on this node, and may raise when nothing was done; another one is sent the
    `message`, and `convert` reads its answer.
    """

    def __init__(
        self,
        broker: Broker,
        find: Callable[[TakeNode], None],
        here: Callable[[Callable[[Result | DragomanError], None]], None],
        message: Callable[[], tuple[Request, Sequence[Buffer]]],
        convert: Callable[[Answer], Result],
        done: Callable[[Result | DragomanError], None],
    ) -> None:
        self._broker = broker
        self._find = find
        self._here = here
        self._message = message
        self._convert = convert
        self._done = done
        self._until = broker.scheduler.time() + RELAY_PATIENCE_S

    def run(self) -> None:
        self._find(self._found)

    def _found(self, node: int | DragomanError) -> None:
        if isinstance(node, DragomanError):
            self._answered(node)
        elif node == NOBODY:
            self._answered(NotSentError("nobody is responsible for it at the moment"))
        elif node != self._broker.node_id:
            self._broker.neighbours.ask(node, *self._message(), self._heard)
        else:
            try:
                self._here(self._answered)
            except DragomanError as error:
                self._answered(error)

    def _heard(self, answer: Answer | DragomanError) -> None:
        match answer:
            case Answer():
                self._answered(self._convert(answer))
            case ClusterError() if not isinstance(answer, NotSentError):
                self._answered(RequestTimedOut(f"{answer}; the outcome is unknown"))
            case _:
                self._answered(answer)

    def _answered(self, outcome: Result | DragomanError) -> None:
        broker = self._broker
        is_passing = isinstance(outcome, _PASSING) and not broker.is_stopping
        if is_passing and broker.scheduler.time() < self._until:
            broker.scheduler.call_later(RELAY_RETRY_S, self.run)
        elif isinstance(outcome, NotSentError):
            self._done(CoordinatorNotAvailable(str(outcome)))
        else:
            self._done(outcome)
