"""The ASGI application: health, metrics, the OpenAPI document, and the routes of the JSON API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.api.admission import BEGUN, Admission, Pace
from dragoman.api.endpoints import admission_of, respond
from dragoman.api.errors import ApiError
from dragoman.api.hosts import OwnHosts
from dragoman.api.openapi import openapi_document
from dragoman.api.operations import OPERATIONS, NodeView, Operation
from dragoman.api.problems import on_fault, on_http_exception, on_refusal
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.telemetry.metrics import Exposition


#: These are answered to any client, at once, and say nothing about the node's data.
HEALTH_PATHS = frozenset(("/livez", "/readyz"))


def create_app(node: NodeView) -> ASGIApp:
    """The HTTP surface of a node, for any ASGI server."""
    health = _Health(node)
    routes = [
        Route("/livez", health.live),
        Route("/readyz", health.ready),
        Route("/metrics", _Metrics(node).scrape),
        Route("/openapi.json", _openapi),
        *_operation_routes(node),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            DragomanError: on_refusal,
            HTTPException: on_http_exception,
            Exception: on_fault,
        },
    )
    app.router.redirect_slashes = False
    app.state.admission = Admission()
    own = OwnHosts(_RawPath(app), node.own_names, node.allowed_hosts, exempt=HEALTH_PATHS)
    return _Paced(own)


class _Paced:
    """Begins requests at a pace that other clients of the node do not notice."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._pace.turn(is_urgent=scope["path"] in HEALTH_PATHS)
        await self._app(scope, receive, send)


class _RawPath:
    """Routes on the path as it was sent.

    Servers hand over a decoded path, in which the slash of a name such as `a%2Fb` looks like a
    separator. The parts are decoded one by one where they are used.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def _operation_routes(node: NodeView) -> list[Route]:
    """One route per path, so that a wrong method is answered with all the right ones."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(path, _endpoint(node, operations), methods=list(operations))
        for path, operations in by_path.items()
    ]


def _endpoint(
    node: NodeView, operations: dict[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if not node.is_serving():
            raise ApiError(503, "not_ready", "the node is not ready to serve clients")
        # HEAD is GET without a body, which the server leaves out.
        method = "GET" if request.method == "HEAD" else request.method
        request.scope.setdefault("state", {})[BEGUN] = True
        with admission_of(request).operation():
            return await respond(operations[method], node, request)

    return endpoint


class _Health:
    def __init__(self, node: NodeView) -> None:
        self._node = node

    async def live(self, _request: Request) -> Response:
        """That this answers is the news: the loop turns."""
        return PlainTextResponse("ok\n")

    async def ready(self, _request: Request) -> Response:
        objection = self._node.objection()
        if objection:
            return PlainTextResponse(f"not ready: {objection}\n", 503)
        degradation = self._node.degradation()
        if degradation:
            # Still of use: what is sound is served.
            return PlainTextResponse(f"ready, degraded: {degradation}\n")
        return PlainTextResponse("ready\n")


class _Metrics:
    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._exposition: Exposition | None = None

    async def scrape(self, request: Request) -> Response:
        if self._exposition is None:
            # The import takes a tenth of a second, which clients must not wait for.
            self._exposition = await asyncio.to_thread(self._load)
        text, content_type = self._exposition.render(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    def _load(self) -> Exposition:
        from dragoman.telemetry.metrics import Exposition

        return Exposition(self._node.stats)


async def _openapi(_request: Request) -> Response:
    return Response(_openapi_text(), media_type="application/json")


@cache
def _openapi_text() -> bytes:
    return msgspec.json.encode(openapi_document())
