"""The bridge from the core to asyncio: an outcome as a future."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from dragoman.errors import DragomanError
from dragoman.outcome import Outcome, start

T = TypeVar("T")


async def settled(work: Outcome[T] | Coroutine[object, None, T]) -> T:
    """The result, without a turn of the loop where it is known at once."""
    outcome = work if isinstance(work, Outcome) else start(work)
    return outcome.result() if outcome.is_settled else await future_of(outcome)


def future_of(work: Outcome[T] | Coroutine[object, None, T]) -> asyncio.Future[T]:
    """Start the work now, and return a future of the running loop for its result.

    Cancelling the future does not cancel the work, which runs to its end.
    """
    outcome = work if isinstance(work, Outcome) else start(work)
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def take(result: T | DragomanError) -> None:
        if future.done():
            return
        if isinstance(result, DragomanError):
            future.set_exception(result)
        else:
            future.set_result(result)

    outcome.then(take)
    return future
