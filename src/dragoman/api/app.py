"""The ASGI application: health, metrics, the OpenAPI document, and the operations of the JSON API.

A request of the JSON API becomes the call of a service's method, and the method's result becomes
the response.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import cache
from functools import partial as applied
from inspect import isawaitable
from urllib.parse import quote, unquote

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman import limits
from dragoman.api.admission import BEGUN, STREAM, Admission, Pace
from dragoman.api.authentication import Authentication, caller_of, is_still_known
from dragoman.api.declaration import ApiError, EventStream, Operation, Parameter
from dragoman.api.docs_page import DOCS_PATHS, docs_routes
from dragoman.api.health import HealthPages
from dragoman.api.hosts import OwnHosts
from dragoman.api.metrics.scrapes import Scrapes
from dragoman.api.openapi import openapi_document
from dragoman.api.operations import OPERATIONS, NodeView
from dragoman.api.problems import on_fault, on_http_exception, on_refusal, refused_with
from dragoman.api.request_ids import RequestIds
from dragoman.api.response_headers import ResponseHeaders
from dragoman.broker.errors import ClusterNotAuthorized
from dragoman.errors import MALFORMED, AuthenticationFailedError, DragomanError
from dragoman.security import access
from dragoman.telemetry.exposition import format_for

_encoder = msgspec.json.Encoder()
_EVENTS = "text/event-stream"


async def respond(operation: Operation, node: NodeView, request: Request) -> Response:
    """Run an operation. Raises `DragomanError` for a refusal."""
    arguments: dict[str, object] = {}
    # Only the first mistake of a request is reported. Callers may rely on the order: body, query,
    # path.
    if operation.body is not None:
        arguments[operation.body.name] = await _read_body(request, operation.body.type)
    for parameter in reversed(operation.parameters):
        arguments[parameter.name] = _read_parameter(request, parameter)
    if operation.caller:
        arguments[operation.caller] = caller_of(request)
    service: object = getattr(node, operation.service)
    answer: object = getattr(service, operation.name)(**arguments)
    if isawaitable(answer):
        answer = await answer
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, EventStream):
        return _event_response(request, node, answer)
    headers = {}
    if operation.creates:
        name: object = getattr(answer, "name", None)
        assert isinstance(name, str)
        headers["location"] = f"{operation.path}/{quote(name, safe='')}"
    return Response(_encoder.encode(answer), operation.status, headers, "application/json")


def _event_response(request: Request, node: NodeView, stream: EventStream) -> Response:
    # A proxy that collects events before it passes them on would hold them back.
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.method == "HEAD":
        stream.close()
        return Response(headers=headers, media_type=_EVENTS)
    request.scope["state"][STREAM] = True
    may_receive = stream.check

    def check() -> None:
        if not is_still_known(request):
            raise AuthenticationFailedError("the login has ended")
        may_receive()

    stream.check = check
    return _EventResponse(stream, node, headers)


class _EventResponse(StreamingResponse):
    def __init__(self, stream: EventStream, node: NodeView, headers: dict[str, str]) -> None:
        super().__init__(stream.events(), headers=headers, media_type=_EVENTS)
        self._stream = stream
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = self._node.hold_right(self._stream)
        try:
            await super().__call__(scope, receive, send)
        finally:
            held()
            self._stream.close()


def admission_of(request: Request) -> Admission:
    admission = request.app.state.admission
    assert isinstance(admission, Admission)
    return admission


def _read_parameter(request: Request, parameter: Parameter) -> object:
    if parameter.place == "path":
        # Decoded after routing, because a name may contain an escaped slash.
        try:
            text = unquote(request.path_params[parameter.name], errors="strict")
        except UnicodeDecodeError:
            raise ApiError(400, "invalid_request", "the name in the path is not UTF-8") from None
        return parameter.type.parse(parameter.name, text)
    if parameter.place == "header":
        given = request.headers.get(parameter.type.header)
    else:
        given = request.query_params.get(parameter.name)
    return parameter.type.default if given is None else parameter.type.parse(parameter.name, given)


async def _read_body(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    body = await _json_body(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise ApiError(400, "invalid_request", f"request body: {error}") from None


async def _json_body(request: Request) -> bytes:
    """Read the whole body, bounded in size and time.

    The media type is required because browsers send bodies of some other types across origins
    without a preflight request.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, "unsupported_media_type", "send the body as application/json")
    try:
        async with admission_of(request).reading():
            return await _bounded_body(request)
    except TimeoutError:
        raise ApiError(408, "request_timeout", "the request body did not arrive in time") from None
    except ClientDisconnect:
        raise ApiError(400, "invalid_request", "the request body ended early") from None


async def _bounded_body(request: Request) -> bytes:
    too_large = ApiError(
        413, "body_too_large", f"a request body may have {limits.HTTP_BODY_BYTES_MAX} bytes"
    )
    announced = request.headers.get("content-length", "0")
    if len(announced) > 18 or int(announced) > limits.HTTP_BODY_BYTES_MAX:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limits.HTTP_BODY_BYTES_MAX:
            raise too_large
        body += chunk
    return bytes(body)


#: Served at once, to any client; they reveal nothing about the node's data.
HEALTH_PATHS = frozenset(("/livez", "/readyz"))


def create_app(node: NodeView) -> ASGIApp:
    """The HTTP surface of a node, for any ASGI server."""
    health = HealthPages(node)
    routes = [
        Route("/livez", health.live),
        Route("/readyz", health.ready),
        Route("/metrics", _Metrics(node).scrape),
        Route("/openapi.json", _openapi),
        *docs_routes(),
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
    known = Authentication(_RawPath(app), node, exempt=HEALTH_PATHS | DOCS_PATHS)
    own = OwnHosts(known, node.own_names, node.allowed_hosts, exempt=HEALTH_PATHS)
    return RequestIds(ResponseHeaders(_Paced(_Refusals(own, node))))


#: The name by which requests are counted that no operation gets.
_REFUSED = "refused"


class _Refusals:
    """Counts requests that no operation gets: of foreign pages, without a login, for no path."""

    def __init__(self, app: ASGIApp, node: NodeView) -> None:
        self._app = app
        self._node = node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_at = time.monotonic()
        await self._app(scope, receive, send)
        code = refused_with(scope)
        if code:
            counter = self._node.requests[_REFUSED]
            counter.failed(code)
            counter.answered(time.monotonic() - began_at)


class _Paced:
    """Begins requests at a pace that leaves time for the node's other clients."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._pace.turn(is_urgent=scope["path"] in HEALTH_PATHS)
        await self._app(scope, receive, send)


class _RawPath:
    """Routes on the undecoded path.

    ASGI servers decode the path, so the slash in a name such as `a%2Fb` would look like a
    separator. Each part is decoded where it is used.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def _operation_routes(node: NodeView) -> list[Route]:
    """One route per path, so that the answer to a wrong method lists every allowed method."""
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
        operation = operations[method]
        counter = node.requests[f"{method} {operation.path}"]
        began_at = time.monotonic()
        try:
            with admission_of(request).operation():
                return await node.caller_quotas.timed(
                    caller_of(request), applied(respond, operation, node, request)
                )
        except Exception as error:
            counter.failed(error.code if isinstance(error, DragomanError) else "internal")
            raise
        finally:
            counter.answered(time.monotonic() - began_at)

    return endpoint


class _Metrics:
    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._scrapes = Scrapes(node.stats)

    async def scrape(self, request: Request) -> Response:
        if not self._is_allowed(request):
            raise ClusterNotAuthorized("metrics are for those who may describe the cluster")
        form = format_for(request.headers.get("accept", ""))
        text = await self._scrapes.text(form)
        return Response(text, headers={"content-type": form.content_type})

    def _is_allowed(self, request: Request) -> bool:
        if not self._node.metrics_require_login:
            return True
        wanted = access.Operation.DESCRIBE, access.Resource.CLUSTER, access.CLUSTER_NAME
        return self._node.authorizer.is_allowed(caller_of(request), *wanted)


async def _openapi(_request: Request) -> Response:
    return Response(_openapi_text(), media_type="application/json")


@cache
def _openapi_text() -> bytes:
    return msgspec.json.encode(openapi_document())
