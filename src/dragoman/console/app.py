"""The ASGI application: pages, sessions, and the API of the node behind them.

GET  /                  the one page; its scripts show what the part behind # names
GET  /static/NAME       scripts and styles
GET  /session           who is logged in, and what they may try
POST /session           log in
DELETE /session         log out
GET  /lists/…           whole lists of the API
*    /records/…         records, over Kafka's protocol
*    /api/v1/…          the node's API, with the credentials of the session
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from dragoman import __version__
from dragoman.api.hosts import OwnHosts
from dragoman.api.values import Problem
from dragoman.console.errors import ConsoleError, LoginNeededError, ReadOnlyError
from dragoman.console.guard import SafeResponses
from dragoman.console.lists import NodeRefusedError, whole_list
from dragoman.console.records.routes import Records
from dragoman.console.sessions import LIFE_S, Session, Sessions
from dragoman.console.settings import ConsoleSettings
from dragoman.console.upstream import Answer, Headers, Upstream

COOKIE: Final = "dragoman_console"
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_BODY_BYTES_MAX: Final = 4 << 20
_PROBLEM: Final = "application/problem+json"
#: Requests that change nothing although their method says otherwise: what they ask for is too long
#: for a URL.
_QUESTIONS: Final = frozenset(("security/rules/searches", "security/rules/tests"))
#: What a node needs of a browser's request, and a browser of its answer.
_REQUEST_HEADERS: Final = ("accept", "content-type", "last-event-id")
_ANSWER_HEADERS: Final = ("content-type", "location", "retry-after", "x-request-id")
#: Lists of the API that are collected, by their name here.
_LISTS: Final = {
    "topics": "/api/v1/topics",
    "groups": "/api/v1/groups",
    "connections": "/api/v1/connections",
    "captures": "/api/v1/captures",
    "pipelines": "/api/v1/pipelines",
    "damage": "/api/v1/damage",
    "users": "/api/v1/security/users",
}


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the pages know about their user."""

    #: Null without a login.
    user: str | None
    #: Whether nothing is shown before a login.
    needs_login: bool
    #: Whether changes are refused: nobody is logged in.
    is_read_only: bool
    #: The URL of the node, for the command lines that pages show.
    server: str
    #: The addresses of Kafka's listener; empty: records cannot be read.
    bootstrap: str
    version: str


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a user with a password, or a token."""

    user: str = ""
    password: str = ""
    token: str = ""


class Console:
    def __init__(
        self,
        settings: ConsoleSettings,
        upstream: Upstream,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.upstream = upstream
        self.sessions = Sessions(monotonic)
        self.records = Records(
            settings.kafka,
            lambda request: self._allowed(request, is_change=False),
            self.sessions.is_open,
            monotonic,
        )

    # ---- sessions

    def session_of(self, request: Request) -> Session | None:
        return self.sessions.find(request.cookies.get(COOKIE, ""))

    def credentials(self, session: Session | None) -> Headers:
        return () if session is None else (("authorization", session.authorization),)

    async def get_session(self, request: Request) -> Response:
        session = self.session_of(request)
        return _json(
            SessionState(
                user=None if session is None else session.user,
                needs_login=session is None and not await self._serves_anonymous(),
                is_read_only=session is None,
                server=self.upstream.url,
                bootstrap=self.settings.kafka.bootstrap,
                version=__version__,
            )
        )

    async def _serves_anonymous(self) -> bool:
        """Whether callers without a login may see anything. A console that others on the network
        reach asks for one in any case.
        """
        if not self.settings.is_local:
            return False
        async with self.upstream.ask("GET", "/api/v1/topics?limit=1") as answer:
            await answer.body(_BODY_BYTES_MAX)
            return answer.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

    async def log_in(self, request: Request) -> Response:
        try:
            login = msgspec.json.decode(await _body(request), type=Login)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConsoleError(f"request body: {error}") from None
        if bool(login.user) == bool(login.token):
            raise ConsoleError("log in with either a user and a password, or a token")
        if ":" in login.user or not f"{login.user}{login.token}".isprintable():
            raise ConsoleError("names of users have no colon, and no control characters")
        if login.token:
            if not login.token.isascii() or " " in login.token:
                raise ConsoleError("this is not an API token")
            name = self.sessions.open_token(login.token)
        else:
            name = self.sessions.open_password(login.user, login.password)
        session = self.sessions.find(name)
        # The node checks the credentials, and counts the failures of this address.
        path = "/api/v1/topics?limit=1"
        async with self.upstream.ask("GET", path, self.credentials(session)) as answer:
            body = await answer.body(_BODY_BYTES_MAX)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                self.sessions.close(name)
                return Response(body, answer.status, media_type=_PROBLEM)
        # The session before this login, if there is one, has ended.
        self.sessions.close(request.cookies.get(COOKIE, ""))
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.set_cookie(
            COOKIE,
            name,
            max_age=LIFE_S,
            path=f"{self.settings.base_path}/",
            secure=self.settings.is_encrypted,
            httponly=True,
            samesite="strict",
        )
        return response

    async def log_out(self, request: Request) -> Response:
        self.sessions.close(request.cookies.get(COOKIE, ""))
        response = Response(status_code=HTTPStatus.NO_CONTENT)
        response.delete_cookie(COOKIE, path=f"{self.settings.base_path}/")
        return response

    def _allowed(self, request: Request, *, is_change: bool) -> Session | None:
        """The session of a request. Raises `LoginNeededError` or `ReadOnlyError`."""
        session = self.session_of(request)
        if session is None and not self.settings.is_local:
            raise LoginNeededError("log in first: others on the network reach this console")
        if session is None and is_change:
            raise ReadOnlyError("without a login the console only reads; log in as a user")
        return session

    # ---- the node's API

    async def whole_list(self, request: Request) -> Response:
        path = _LISTS.get(request.path_params["name"])
        if path is None:
            return _problem(HTTPStatus.NOT_FOUND, "not_found", "there is no such list")
        session = self._allowed(request, is_change=False)
        return Response(
            await whole_list(self.upstream, path, self.credentials(session)),
            media_type="application/json",
        )

    async def health(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        headers = (("accept", "application/json"), *self.credentials(session))
        async with self.upstream.ask("GET", "/readyz?verbose", headers) as answer:
            body = await answer.body(_BODY_BYTES_MAX)
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
        target = f"{path}?{request.url.query}" if request.url.query else path
        stack = AsyncExitStack()
        answer = await stack.enter_async_context(
            self.upstream.ask(
                request.method,
                target,
                (*headers, *self.credentials(session)),
                await _body(request),
            )
        )
        passed = {name: text for name in _ANSWER_HEADERS if (text := answer.header(name))}
        return StreamingResponse(_chunks(answer, stack), answer.status, passed)


async def _chunks(answer: Answer, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        async for chunk in answer.chunks():
            yield chunk


async def _body(request: Request) -> bytes:
    """The body of a request, bounded. A page of another site cannot send this type unasked."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES_MAX:
            raise ConsoleError(f"a request body may have {_BODY_BYTES_MAX} bytes")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if body and media_type != "application/json":
        raise ConsoleError("send the body as application/json")
    return bytes(body)


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
        Route("/lists/{name}", console.whole_list),
        Route("/health", console.health),
        *console.records.routes(),
        Route("/api/v1/{path:path}", console.api, methods=["GET", "POST", "PATCH", "DELETE"]),
    ]
    base = settings.base_path
    routes = [Mount(base, routes=pages), Route(base, _to(f"{base}/"))] if base else pages
    app = Starlette(
        routes=routes,
        exception_handlers={ConsoleError: _on_error, NodeRefusedError: _on_refusal},
    )
    app.router.redirect_slashes = False
    own = OwnHosts(app, lambda: settings.hosts, settings.hosts, exempt=frozenset())
    return SafeResponses(own)


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
