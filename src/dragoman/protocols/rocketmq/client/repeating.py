"""What is done again and again while a client lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dragoman.errors import DragomanError

log = logging.getLogger("dragoman.client.rocketmq")


async def often(interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
    """For ever. What goes wrong is logged."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            await action()
        except DragomanError as error:
            log.warning("%s", error)
