"""What an application does with a message, and what comes of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from dragoman.protocols.rocketmq.client.values import ReceivedMessage

log = logging.getLogger("dragoman.client.rocketmq")


class Later(msgspec.Struct, frozen=True):
    """The message could not be consumed now: it comes again."""

    #: 1 to 18; 0: the broker waits longer each time; -1: it is given up, as a dead letter.
    delay_level: int = 0


Outcome: TypeAlias = Later | None
#: None, or what it raises no exception with, means that the message is consumed.
Listener: TypeAlias = Callable[[ReceivedMessage], Outcome | Awaitable[Outcome]]


async def listened(listener: Listener, message: ReceivedMessage) -> tuple[Outcome, str]:
    """The outcome, and the text of an exception, which means later."""
    try:
        outcome = listener(message)
        return (await outcome if inspect.isawaitable(outcome) else outcome), ""
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        # Also when something was cancelled that the listener waited for: its worker goes on.
        log.exception("a listener failed on message %s", message.unique_id)
        return Later(), repr(error)
