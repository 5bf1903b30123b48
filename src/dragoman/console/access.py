"""Who may use the console: logins, cookies, and what callers without a login may do.

The node examines all credentials. A console that a node has started has them examined as those of
its browsers (`api/console_access.py`). A console that uses a URL asks the node's listener first
whether it takes logins at all: one that does not accepts every password.
"""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request

from dragoman.config.console import ConsoleSettings
from dragoman.console.errors import (
    ConsoleError,
    LoginImpossibleError,
    LoginNeededError,
    OverloadedError,
    ReadOnlyError,
)
from dragoman.console.lists import NodeRefusedError
from dragoman.console.sessions import Session, Sessions
from dragoman.console.upstream import Headers, Upstream

_COOKIE: Final = "dragoman_console"
#: A request that every caller may make who may see anything.
_PROBE: Final = "/api/v1/topics?limit=1"
_ANSWER_BYTES_MAX: Final = 1 << 20
#: Logins that the node examines at once; each may wait for seconds after failures.
_LOGINS_MAX: Final = 64
#: Of one address: a guesser, who waits longest, leaves the others room.
_ADDRESS_LOGINS_MAX: Final = 8
_TAKES_NO_LOGINS: Final = (
    "the node's listener takes no logins, so it accepts any password: set"
    " listener.http.authentication to optional or required, and create users with"
    " `dragoman user create NAME`"
)


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a user with a password, or a token."""

    user: str = ""
    password: str = ""
    token: str = ""


class _Refusal(msgspec.Struct):
    code: str = ""
    detail: str = ""


class Access:
    def __init__(
        self,
        settings: ConsoleSettings,
        upstream: Upstream,
        sessions: Sessions,
        port: int,
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._sessions = sessions
        #: Cookies of a host reach all its ports: another console there has another name.
        self.cookie = f"{_COOKIE}_{port}"
        #: Logins that are being examined, by the browser's address.
        self._logins: Counter[str] = Counter()

    # ---- requests

    def session_of(self, request: Request) -> Session | None:
        return self._sessions.find(self._name(request))

    def _name(self, request: Request) -> str:
        """The name of the request's session. A page of a sibling site can add a cookie; of two,
        none is believed.
        """
        prefix = f"{self.cookie}="
        pairs = ";".join(request.headers.getlist("cookie")).split(";")
        found = [each.strip() for each in pairs if each.strip().startswith(prefix)]
        return found[0].removeprefix(prefix) if len(found) == 1 else ""

    def allowed(self, request: Request, *, is_change: bool) -> Session | None:
        """The session of a request. Raises `LoginNeededError` or `ReadOnlyError`."""
        session = self.session_of(request)
        if session is None and self._name(request):
            # What its user is doing must not go on with the rights of callers without a login.
            raise LoginNeededError("the session has ended: log in again")
        if session is None and not self._settings.is_local:
            raise LoginNeededError("log in first: others on the network reach this console")
        if session is None and is_change:
            raise ReadOnlyError("without a login the console only reads; log in as a user")
        return session

    async def check_reader(self, request: Request) -> None:
        """Have the node say whether the caller may see its topics. Records come from Kafka's
        listener, which may demand nothing of anyone. Raises `LoginNeededError`.
        """
        session = self.session_of(request)
        if session is None:
            needs_login, _ = await self.anonymous()
        else:
            status, _ = await self._ask((("authorization", session.authorization),))
            needs_login = status == HTTPStatus.UNAUTHORIZED
            if needs_login:
                self._sessions.close_session(session)
        if needs_login:
            raise LoginNeededError("log in first: the node shows its topics to users only")

    # ---- without a login

    async def anonymous(self) -> tuple[bool, str]:
        """Whether nothing is shown before a login, and why no user can log in, if so."""
        status, refusal = await self._ask(())
        is_refused = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        obstacle = refusal.detail if refusal.code == "no_users" else ""
        is_exposed = not self._settings.is_local
        if is_exposed and not self._upstream.is_of_node and not await self._takes_logins():
            obstacle = _TAKES_NO_LOGINS
        return is_refused or is_exposed, obstacle

    async def _takes_logins(self) -> bool:
        if self._upstream.is_of_node:
            return True
        # A listener that takes logins refuses a scheme that it does not know; no other one looks.
        status, _ = await self._ask((("authorization", "Dragoman-Console"),))
        return status == HTTPStatus.UNAUTHORIZED

    async def _ask(self, headers: Headers) -> tuple[int, _Refusal]:
        async with self._upstream.ask("GET", _PROBE, headers) as answer:
            body = await answer.body(_ANSWER_BYTES_MAX)
        if answer.status == HTTPStatus.OK:
            return answer.status, _Refusal()
        try:
            return answer.status, msgspec.json.decode(body, type=_Refusal)
        except msgspec.DecodeError:
            return answer.status, _Refusal()

    # ---- logins

    async def log_in(self, login: Login, request: Request) -> dict[str, Any]:
        """The cookie of a new session. Raises `ConsoleError`, and `NodeRefusedError`."""
        session = _session(login)
        address = request.client.host if request.client else ""
        if self._logins.total() >= _LOGINS_MAX or self._logins[address] >= _ADDRESS_LOGINS_MAX:
            raise OverloadedError("too many logins are being examined; try again")
        self._logins[address] += 1
        try:
            if not await self._takes_logins():
                raise LoginImpossibleError(_TAKES_NO_LOGINS)
            # The node checks the credentials, and counts the failures of the browser's address.
            headers = (("authorization", session.authorization),)
            async with self._upstream.ask("GET", _PROBE, headers) as answer:
                body = await answer.body(_ANSWER_BYTES_MAX)
        finally:
            self._logins[address] -= 1
            if not self._logins[address]:
                del self._logins[address]
        # A user without rights is refused this request, and logged in.
        if answer.status not in (HTTPStatus.OK, HTTPStatus.FORBIDDEN):
            raise NodeRefusedError(answer.status, body)
        # The session before this login, if there is one, has ended.
        self._sessions.close(self._name(request))
        return {
            **self._cookie_of(self._sessions.open(session), request),
            "max_age": int(self._settings.session_life_s),
        }

    def stale_cookie(self, request: Request) -> dict[str, Any] | None:
        """The cookie to delete, if the request has one of no session."""
        is_stale = self._name(request) and self.session_of(request) is None
        return self.log_out(request) if is_stale else None

    def log_out(self, request: Request) -> dict[str, Any]:
        """The cookie to delete."""
        self._sessions.close(self._name(request))
        cookie = self._cookie_of("", request)
        del cookie["value"]
        return cookie

    def _cookie_of(self, name: str, request: Request) -> dict[str, Any]:
        return {
            "key": self.cookie,
            "value": name,
            "path": f"{self._settings.base_path}/",
            # Behind a proxy that encrypts, only the page's origin shows it.
            "secure": request.url.scheme == "https"
            or request.headers.get("origin", "").startswith("https:"),
            "httponly": True,
            "samesite": "strict",
        }


def _session(login: Login) -> Session:
    """What a login becomes once the node accepts it. Raises `ConsoleError`."""
    if bool(login.user) == bool(login.token):
        raise ConsoleError("log in with either a user and a password, or a token")
    if login.token:
        if not (login.token.isascii() and login.token.isprintable()) or " " in login.token:
            raise ConsoleError("this is not an API token")
        return Session.of_token(login.token)
    if ":" in login.user or not login.user.isprintable():
        raise ConsoleError("names of users have no colon, and no control characters")
    return Session.of_password(login.user, login.password)
