"""What every request and response of the console goes through.

A request passes if it is for a host of the console and not from a page of another site
(`api/hosts.py`). Every response forbids the browser what the pages do not need: scripts and styles
of others, frames, and the reading of a response as another type than its own.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.api.admission import BEGUN
from dragoman.console.upstream import BROWSER_OF_REQUEST

#: Nothing from elsewhere and nothing in line; no page may frame these.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Adds the headers; what is not a file of the console is not kept by caches. Requests to the
    node say for which browser they are.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        client = scope.get("client")
        if client is None:
            # It was gone when it was accepted: no address is left to examine it by.
            await Response(status_code=400)(scope, receive, safe)
            return
        BROWSER_OF_REQUEST.set(f"{client[0]} {scope['scheme']}")
        # Its connection gives way only to others when none waits for its client.
        scope.setdefault("state", {})[BEGUN] = True
        await self._app(scope, receive, safe)
