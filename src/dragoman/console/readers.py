"""Lets those through to records whom the node shows its topics, for as long as it does.

Records, and what else pages show by Kafka's protocol, come from a listener that may demand nothing
of anyone, in requests that may last for hours. So the node is asked first, and now and then while
such a request lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.console.access import Access
from dragoman.console.errors import ConsoleError, LoginNeededError

CHECK_INTERVAL_S: Final = 15.0
#: Key in the state of a request's scope, set once its caller may no longer read.
_REFUSED: Final = "is_refused"


def is_refused(request: Request) -> bool:
    """Whether the caller has lost what let the request through."""
    return bool(request.scope.get("state", {}).get(_REFUSED))


class Readers:
    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        base_path: str,
        refusal: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._app = app
        self._access = access
        self._prefixes = (f"{base_path}/records/", f"{base_path}/kafka/")
        self._queries = f"{base_path}/sql"
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._reads(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            await self._access.check_reader(request)
        except ConsoleError as error:
            refusal = await self._refusal(request, error)
            await refusal(scope, receive, send)
            return
        watching = asyncio.create_task(self._watch(request))
        try:
            await self._app(scope, receive, send)
        finally:
            watching.cancel()

    def _reads(self, scope: Scope) -> bool:
        path: str = scope["path"]
        # Whether queries can be run here is no secret.
        is_query = path == self._queries and scope["method"] == "POST"
        return is_query or path.startswith(self._prefixes)

    async def _watch(self, request: Request) -> None:
        while not is_refused(request):
            await asyncio.sleep(CHECK_INTERVAL_S)
            try:
                await self._access.check_reader(request)
            except LoginNeededError:
                request.scope.setdefault("state", {})[_REFUSED] = True
            except ConsoleError:
                # A node that starts anew, for example, refuses nothing.
                continue
