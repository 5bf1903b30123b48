"""The ASGI application: pages, sessions, and the API of the node behind them.

GET  /                  the one page; its scripts show what the part behind # names
GET  /static/NAME       scripts and styles
GET  /session           who is logged in, and what they may try
POST /session           log in
DELETE /session         log out
GET  /lists/…           whole lists of the API
*    /records/…         records, over Kafka's protocol
GET  /kafka/…           producers of a topic, settings of a node, over Kafka's protocol
GET  /sql               whether queries can be run here
POST /sql               run a query; the answer is lines of JSON, as they are made
POST /dead-letters      send dead letters again
*    /api/v1/…          the node's API, with the credentials of the session
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from dragoman import __version__
from dragoman.api.hosts import OwnHosts
from dragoman.api.values import Problem
from dragoman.config.console import ConsoleSettings
from dragoman.console.access import Access, Login
from dragoman.console.dead_letters.resend import Resender, ResendRequest
from dragoman.console.errors import ConsoleError, OverloadedError, SlowRequestError
from dragoman.console.guard import Guard
from dragoman.console.kafka_access import KafkaAccess
from dragoman.console.kafka_views import KafkaViews
from dragoman.console.lists import NodeRefusedError, list_of_nodes, whole_list
from dragoman.console.readers import Readers
from dragoman.console.records.routes import Records
from dragoman.console.sessions import Session, Sessions
from dragoman.console.sql.service import Queries
from dragoman.console.streams import Streamed, within
from dragoman.console.upstream import Headers, Upstream
from dragoman.limits import HTTP_BODY_BYTES_MAX, HTTP_REQUEST_SECONDS

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_ANSWER_BYTES_MAX: Final = 4 << 20
#: Of a login, which everyone may try.
_LOGIN_BYTES_MAX: Final = 16 << 10
#: Of the bodies of all requests that are being read.
_BODIES_BYTES_MAX: Final = 64 << 20
#: Requests to the node at once of one user: browsers have six connections to a site.
_ASKED_PER_USER_MAX: Final = 32
_PROBLEM: Final = "application/problem+json"
#: Requests that change nothing although their method says otherwise: what they ask for is too long
#: for a URL.
_QUESTIONS: Final = frozenset(
    (
        "figures/query",
        "security/quotas/tests",
        "security/rules/searches",
        "security/rules/tests",
    )
)
#: What a node needs of a browser's request, and a browser of its answer.
_REQUEST_HEADERS: Final = ("accept", "content-type", "last-event-id")
_ANSWER_HEADERS: Final = ("content-type", "location", "retry-after", "x-request-id")
#: Lists of the API that are collected, by their name here.
_LISTS: Final = {
    "topics": "/api/v1/topics",
    "groups": "/api/v1/groups",
    "topic-usage": "/api/v1/usage/topics",
    "group-usage": "/api/v1/usage/groups",
    "captures": "/api/v1/captures",
    "users": "/api/v1/security/users",
    "quotas": "/api/v1/security/quotas",
}
#: Lists that each node has its own of.
_LISTS_OF_NODES: Final = {
    "connections": "/api/v1/connections",
    "delayed": "/api/v1/delayed",
    "pipelines": "/api/v1/pipelines",
}
#: Delayed records of a topic that are asked of each node.
_DELAYED_SHOWN: Final = 200
_DELAYED_VALUE_BYTES: Final = 4096


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages know about their user."""

    #: Null without a login; empty for the bearer of a token.
    user: str | None
    #: Whether nothing is shown before a login.
    needs_login: bool
    #: What keeps users from logging in, with the remedy; empty: they can.
    obstacle: str
    #: Whether changes are refused, because the caller has not logged in.
    is_read_only: bool
    #: The URL of the node, for the command lines that pages show.
    server: str
    #: The addresses of Kafka's listener; empty: records cannot be read.
    bootstrap: str
    version: str


class Console:
    def __init__(
        self,
        settings: ConsoleSettings,
        upstream: Upstream,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        port: int = 0,
    ) -> None:
        """`port` is the console's own."""
        self.settings = settings
        self.upstream = upstream
        self.sessions = Sessions(monotonic, settings.session_idle_s, settings.session_life_s)
        self.access = Access(settings, upstream, self.sessions, port)
        kafka = KafkaAccess(settings.kafka)
        self.records = Records(
            kafka,
            self._allowed,
            self.body,
            self.sessions,
            monotonic,
        )
        self.views = KafkaViews(
            self.records.clients, lambda request: self._allowed(request, is_change=False)
        )
        self._bodies_bytes = 0
        #: Requests to the node, by user, or by address without a login.
        self._asked: Counter[str] = Counter()
        self.queries = Queries(kafka, self.sessions)
        self.resender = Resender(upstream)

    # ---- sessions

    def credentials(self, session: Session | None) -> Headers:
        return () if session is None else (("authorization", session.authorization),)

    async def get_session(self, request: Request) -> Response:
        session = self.access.session_of(request)
        if session is None:
            needs_login, obstacle = await self.access.anonymous()
        else:
            needs_login, obstacle = False, ""
        response = _json(
            SessionState(
                user=None if session is None else session.user,
                needs_login=needs_login,
                obstacle=obstacle,
                is_read_only=session is None,
                server=self.settings.server,
                bootstrap=self.settings.kafka.bootstrap,
                version=__version__,
            )
        )
        if stale := self.access.stale_cookie(request):
            response.delete_cookie(**stale)
        return response

    async def log_in(self, request: Request) -> Response:
        try:
            login = msgspec.json.decode(await self.body(request, _LOGIN_BYTES_MAX), type=Login)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConsoleError(f"request body: {error}") from None
        cookie = await self.access.log_in(login, request)
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.set_cookie(**cookie)
        return response

    async def log_out(self, request: Request) -> Response:
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.delete_cookie(**self.access.log_out(request))
        return response

    def _allowed(self, request: Request, *, is_change: bool) -> Session | None:
        """The session of a request. Raises `LoginNeededError` or `ReadOnlyError`."""
        return self.access.allowed(request, is_change=is_change)

    async def body(self, request: Request, size_max: int = HTTP_BODY_BYTES_MAX) -> bytes:
        """The body of a request, bounded in bytes and time. A page of another site cannot send this
        type unasked.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(HTTP_REQUEST_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    self._bodies_bytes += len(chunk)
                    if len(body) > size_max:
                        raise ConsoleError(f"a request body may have {size_max} bytes here")
                    if self._bodies_bytes > _BODIES_BYTES_MAX:
                        raise OverloadedError("the console reads too many requests; try again")
        except TimeoutError:
            raise SlowRequestError(
                f"the request body did not arrive within {HTTP_REQUEST_SECONDS} seconds"
            ) from None
        except ClientDisconnect:
            raise SlowRequestError("the browser has closed the connection") from None
        finally:
            self._bodies_bytes -= len(body)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and media_type != "application/json":
            raise ConsoleError("send the body as application/json")
        return bytes(body)

    # ---- queries and dead letters

    async def get_queries(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        return _json(await self.queries.abilities(session))

    async def run_query(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        lines = await self.queries.start(session, await self.body(request))
        return Streamed(lines, media_type="application/x-ndjson")

    async def resend(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        try:
            wanted = msgspec.json.decode(await self.body(request), type=ResendRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConsoleError(f"request body: {error}") from None
        self._allowed(request, is_change=not wanted.validate_only)
        return _json(await self.resender.resend(wanted, self.credentials(session)))

    # ---- the node's API

    async def whole_list(self, request: Request) -> Response:
        name = request.path_params["name"]
        session = self._allowed(request, is_change=False)
        credentials = self.credentials(session)
        if name in _LISTS:
            found = whole_list(self.upstream, _LISTS[name], credentials)
        elif name in _LISTS_OF_NODES:
            found = list_of_nodes(self.upstream, _LISTS_OF_NODES[name], {}, credentials)
        else:
            return _problem(HTTPStatus.NOT_FOUND, "not_found", "there is no such list")
        return await self._listed(session, found)

    async def delayed_records(self, request: Request) -> Response:
        """The first delayed records for a topic on each node."""
        session = self._allowed(request, is_change=False)
        path = f"/api/v1/topics/{quote(request.query_params.get('topic', ''), safe='')}/delayed"
        query = {"limit": str(_DELAYED_SHOWN), "max_value_bytes": str(_DELAYED_VALUE_BYTES)}
        found = list_of_nodes(self.upstream, path, query, self.credentials(session), is_whole=False)
        return await self._listed(session, found)

    async def _listed(self, session: Session | None, found: Coroutine[Any, Any, bytes]) -> Response:
        try:
            return Response(await found, media_type="application/json")
        except NodeRefusedError as error:
            self._end_if_refused(session, error.status)
            raise

    async def health(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        headers = (("accept", "application/json"), *self.credentials(session))
        async with self.upstream.ask("GET", "/readyz?verbose", headers) as answer:
            body = await answer.body(_ANSWER_BYTES_MAX)
        # A node that is not ready answers 503, which is no failure of this request.
        return Response(body, media_type="application/json")

    async def api(self, request: Request) -> Response:
        raw: bytes = request.scope["raw_path"]
        path = raw.decode("ascii").removeprefix(self.settings.base_path)
        is_question = path.removeprefix("/api/v1/") in _QUESTIONS
        is_change = request.method not in ("GET", "HEAD") and not is_question
        session = self._allowed(request, is_change=is_change)
        headers = [
            (name, request.headers[name]) for name in _REQUEST_HEADERS if name in request.headers
        ]
        if not all(value.isascii() for _, value in headers):
            raise ConsoleError("headers are ASCII")
        target = f"{path}?{request.url.query}" if request.url.query else path
        body = await self.body(request)
        sent = (*headers, *self.credentials(session))
        async with AsyncExitStack() as stack:
            stack.enter_context(self._asking(request, session))
            answer = await stack.enter_async_context(
                self.upstream.ask(request.method, target, sent, body)
            )
            self._end_if_refused(session, answer.status)
            passed = {name: text for name in _ANSWER_HEADERS if (text := answer.header(name))}
            # A stream of events lasts, and its node knows nothing of the session.
            content = within(self.sessions, session, answer.chunks())
            held = stack.pop_all()
        return Streamed(content, held, status=answer.status, headers=passed)

    @contextmanager
    def _asking(self, request: Request, session: Session | None) -> Iterator[None]:
        """Count a request to the node. Raises `OverloadedError`: a user leaves others room."""
        address = request.client.host if request.client else ""
        owner = address if session is None else session.owner
        if self._asked[owner] >= _ASKED_PER_USER_MAX:
            raise OverloadedError("too many of your requests wait for the node; try again")
        self._asked[owner] += 1
        try:
            yield
        finally:
            self._asked[owner] -= 1
            if not self._asked[owner]:
                del self._asked[owner]

    def _end_if_refused(self, session: Session | None, status: int) -> None:
        """A user whose credentials are no longer accepted is out."""
        if session is not None and status == HTTPStatus.UNAUTHORIZED:
            self.sessions.close_session(session)


# ---- files


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """The pages' files by name: content, media type and tag."""
    return {
        path.relative_to(_STATIC).as_posix(): (
            data := path.read_bytes(),
            _TYPES.get(path.suffix, "text/html"),
            f'"{hashlib.sha256(data).hexdigest()[:20]}"',
        )
        for path in sorted(_STATIC.rglob("*.*"))
    }


async def _file(request: Request) -> Response:
    found = _files().get(request.path_params.get("name", "index.html"))
    if found is None:
        return _problem(HTTPStatus.NOT_FOUND, "not_found", "there is no such file")
    data, media_type, tag = found
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(data, headers=headers, media_type=media_type)


# ---- the application


def create_app(console: Console) -> ASGIApp:
    settings = console.settings
    pages: list[BaseRoute] = [
        Route("/", _file),
        Route("/static/{name:path}", _file),
        Route("/session", console.get_session, methods=["GET"]),
        Route("/session", console.log_in, methods=["POST"]),
        Route("/session", console.log_out, methods=["DELETE"]),
        Route("/lists/delayed-records", console.delayed_records),
        Route("/lists/{name}", console.whole_list),
        Route("/health", console.health),
        *console.records.routes(),
        *console.views.routes(),
        Route("/sql", console.get_queries, methods=["GET"]),
        Route("/sql", console.run_query, methods=["POST"]),
        Route("/dead-letters", console.resend, methods=["POST"]),
        Route("/api/v1/{path:path}", console.api, methods=["GET", "POST", "PATCH", "DELETE"]),
    ]
    base = settings.base_path
    routes = [Mount(base, routes=pages), Route(base, _to(f"{base}/"))] if base else pages
    app = Starlette(
        routes=routes,
        exception_handlers={ConsoleError: _on_error, NodeRefusedError: _on_refusal},
    )
    app.router.redirect_slashes = False
    checked = Readers(app, console.access, base, _on_error)
    return Guard(OwnHosts(checked, lambda: settings.hosts, settings.allowed_hosts, frozenset()))


def _to(path: str) -> Callable[[Request], Awaitable[Response]]:
    async def redirect(_: Request) -> Response:
        return RedirectResponse(path)

    return redirect


async def _on_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ConsoleError)
    return _problem(error.status, error.code, str(error))


async def _on_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, NodeRefusedError)
    return Response(error.body, error.status, media_type=_PROBLEM)


def _problem(status: int, code: str, detail: str) -> Response:
    body = Problem(title=HTTPStatus(status).phrase, status=status, code=code, detail=detail)
    return Response(msgspec.json.encode(body), status, media_type=_PROBLEM)


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
