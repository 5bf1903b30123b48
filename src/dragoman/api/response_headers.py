"""Headers of every response: browsers neither guess its type nor keep it.

Responses show data and names that the next user of the browser may not see, and records hold bytes
that anyone may have written.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS: Final = {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store"}


class ResponseHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                given = {name for name, _ in headers}
                added = [each for each in _HEADERS.items() if each[0] not in given]
                message = {**message, "headers": headers + added}
            await send(message)

        await self._app(scope, receive, completed)
