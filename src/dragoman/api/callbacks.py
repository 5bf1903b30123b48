"""The core answers through callbacks; a service awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from dragoman.errors import DragomanError

Answer = TypeVar("Answer")
#: Takes nothing for success.
Acknowledge: TypeAlias = Callable[[DragomanError | None], None]


async def answered(begin: Callable[[Callable[[Answer | DragomanError], None]], None]) -> Answer:
    """What an operation of the core answers. An error that it answers with is raised."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def done(answer: Answer | DragomanError) -> None:
        if future.done():
            return
        if isinstance(answer, DragomanError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    begin(done)
    return await future


async def acknowledged(begin: Callable[[Acknowledge], None]) -> None:
    """Wait for an operation of the core that answers with no more than its success."""
    await answered(begin)
