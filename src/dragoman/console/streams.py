"""Responses that are made while they are sent: answers of the node, searches, tails and queries.

What they hold is released when the browser has everything or has gone, even if it goes before the
first byte. Those that last end with the session that has asked for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dragoman.console.sessions import Session, Sessions


class Streamed(StreamingResponse):
    """Leaves the stack at its end."""

    def __init__(
        self,
        content: AsyncGenerator[bytes],
        stack: AsyncExitStack | None = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(content, status, headers, media_type)
        self._content = content
        self._stack = stack or AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack, aclosing(self._content):
            await super().__call__(scope, receive, send)


async def within(
    sessions: Sessions, session: Session | None, content: AsyncGenerator[bytes], last: bytes = b""
) -> AsyncGenerator[bytes]:
    """The content, until the session ends, and then `last`."""
    async with aclosing(content):
        while True:
            try:
                async with asyncio.timeout(None) as bound:
                    with sessions.ending(session, lambda: _expire(bound)):
                        chunk = await anext(content, None)
            except TimeoutError:
                if last:
                    yield last
                return
            if chunk is None:
                return
            yield chunk


def _expire(bound: asyncio.Timeout) -> None:
    bound.reschedule(asyncio.get_running_loop().time())
