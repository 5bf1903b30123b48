"""A listener of RocketMQ messages for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.client.rocketmq import Later, ReceivedMessage


class Inbox:
    """A listener whose messages can be waited for."""

    def __init__(self, decide: Callable[[ReceivedMessage], Later | None] = lambda _: None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._decide = decide
        self._changed = asyncio.Event()

    def __call__(self, message: ReceivedMessage) -> Later | None:
        self.messages.append(message)
        self._changed.set()
        return self._decide(message)

    async def until(self, count: int) -> list[bytes]:
        while len(self.messages) < count:
            self._changed.clear()
            await self._changed.wait()
        return [each.body for each in self.messages]
