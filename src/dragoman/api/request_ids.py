"""Gives every HTTP request an id: that of its header `X-Request-Id`, or one of the node.

The response has the same header, and so have all lines of the log about the request in their field
`request`. An id from outside is taken only if it is short and harmless; else the node makes one.
"""

from __future__ import annotations

import logging
import re
import secrets
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.limits import REQUEST_ID_CHARS_MAX

HEADER = "x-request-id"
_HEADER = HEADER.encode()
_SANE = re.compile(rb"[A-Za-z0-9._:/+=-]{1,%d}\Z" % REQUEST_ID_CHARS_MAX)
_STATE = "request_id"
log = logging.getLogger("dragoman.connections")


class RequestIds:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: Tells the ids of this start of the node from those of others.
        self._prefix = f"http-{secrets.token_hex(4)}"
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = _given(scope) or f"{self._prefix}-{next(self._numbers)}"
        scope.setdefault("state", {})[_STATE] = found
        name = (_HEADER, found.encode())

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), name]}
                _note(scope, found, message["status"])
            await send(message)

        await self._app(scope, receive, named)


def request_id(scope: Scope) -> str:
    found: str = scope.get("state", {}).get(_STATE, "")
    return found


def _given(scope: Scope) -> str:
    values = [value for name, value in scope["headers"] if name == _HEADER]
    return values[0].decode() if len(values) == 1 and _SANE.match(values[0]) else ""


def _note(scope: Scope, found: str, status: int) -> None:
    if not log.isEnabledFor(logging.DEBUG):
        return
    client = scope.get("client") or ("", 0)
    fields = {
        "request": found,
        "api": f"{scope['method']} {scope['path']}",
        "peer": f"{client[0]}:{client[1]}",
        "status": status,
    }
    log.debug("HTTP request answered", extra=fields)
