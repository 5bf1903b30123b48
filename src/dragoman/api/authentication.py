"""The caller of each request: from its credentials, else from its connection.

    Authorization: Bearer TOKEN    an API token of a user; a read-only one is good for operations
                                   that change nothing
    Authorization: Basic …         a user's password: over TLS, from this machine, or to a node
                                   with `sasl.insecure.clear.text`
    without                        the caller of the connection (`origin.py`)

The console's process passes on what its browsers present. Its requests are examined as if the
browser had connected to the console's listener: address, TLS and demands are those.

A listener that requires a login refuses anonymous requests, except for health. Wrong credentials
are refused even where none are required: a client that presents some does not expect to be
anonymous. There are no cookies. A browser that remembers a password sends it along with requests of
foreign pages, too, which `hosts.py` has refused before.

The wait after failures takes place before the request begins: it holds a connection, which gives
way to others, and no operation.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.api.operations import OPERATIONS, NodeView
from dragoman.api.origin import BROWSER, ORIGIN, Origin
from dragoman.api.problems import refusal, status_of
from dragoman.errors import AuthenticationFailedError, AuthError
from dragoman.net.future import future_of
from dragoman.security.access import ANONYMOUS, Caller

#: Key in the state of a request's scope.
_CALLER: Final = "caller"
#: Key of what finds the caller of a request for an exempt path.
_RECOGNISE: Final = "recognise"
#: Key of a function that says whether the request would still be accepted.
_IS_STILL: Final = "is_still"
Recognise: TypeAlias = Callable[[Request], Awaitable[Caller | None]]
#: In the audit log.
_PROTOCOL: Final = "http"
_REALM: Final = 'realm="dragoman"'
_READS: Final = frozenset(("GET", "HEAD"))
_QUESTIONS: Final = frozenset(each.path for each in OPERATIONS if each.is_question)
_METRICS: Final = "/metrics"


class _Refusal(msgspec.Struct, frozen=True):
    """The problem that refuses a request before its operation begins."""

    status: int
    code: str
    detail: str
    #: The challenges of a 401.
    challenges: tuple[str, ...] = ()


class Authentication:
    """Calls the application for requests whose caller is known, and answers 401 or 403 to others.

    `exempt` are the paths that everyone may request.
    """

    def __init__(self, app: ASGIApp, node: NodeView, exempt: frozenset[str]) -> None:
        self._app = app
        self._node = node
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_exempt(scope["path"]):
            scope.setdefault("state", {})[_RECOGNISE] = self._recognise
        elif scope["type"] == "http":
            request = Request(scope)
            found = await self._authenticate(request)
            if isinstance(found, _Refusal):
                answer = refusal(scope, found.status, found.code, found.detail)
                # A header each: Chromium looks only at the first challenge of a header.
                for each in found.challenges:
                    answer.headers.append("www-authenticate", each)
                await answer(scope, receive, send)
                return
            state = scope.setdefault("state", {})
            state[_CALLER] = found
            state[_IS_STILL] = partial(self._is_still, request, found)
            receive = self._examined_again(request, found, receive)
        await self._app(scope, receive, send)

    def _is_exempt(self, path: str) -> bool:
        return path in self._exempt or (path == _METRICS and not self._node.metrics_require_login)

    async def _recognise(self, request: Request) -> Caller | None:
        found = await self._authenticate(request)
        return None if isinstance(found, _Refusal) else found

    async def _authenticate(self, request: Request) -> Caller | _Refusal:
        origin = _origin_of(request)
        if origin.of_browser is not None:
            found = origin.of_browser(request.headers.get(BROWSER, ""))
            if found is None:
                return _Refusal(400, "invalid_request", f"{BROWSER}: expected ADDRESS SCHEME")
            request.scope["state"][ORIGIN] = origin = found
        security = origin.security()
        initial = self._node.logins.before_login(origin.initial())
        if not _is_private_enough(origin):
            # The connection was made before.
            return _Refusal(403, "tls_required", "this listener demands TLS now: connect by https")
        if origin.is_operator or security.authentication == "off":
            return initial
        takes_passwords = self._takes_passwords(origin)
        challenges = _challenges(takes_passwords)
        credentials = request.headers.getlist("authorization")
        if len(credentials) > 1:
            return _Refusal(401, "unauthenticated", "several Authorization headers", challenges)
        if credentials:
            return await self._log_in(request, origin, credentials[0], takes_passwords)
        if security.authentication == "required" and initial.principal == ANONYMOUS:
            obstacle = origin.login_obstacle()
            if obstacle:
                return _Refusal(403, "no_users", obstacle)
            detail = "this listener requires a login: an API token, or a user and a password"
            return _Refusal(401, "unauthenticated", detail, challenges)
        return initial

    async def _log_in(
        self, request: Request, origin: Origin, credentials: str, takes_passwords: bool
    ) -> Caller | _Refusal:
        scheme, _, value = credentials.partition(" ")
        host = origin.initial().host
        challenges = _challenges(takes_passwords)
        try:
            match scheme.lower():
                case "bearer":
                    login = self._node.logins.token(value.strip(), host)
                    if login.is_read_only and not _changes_nothing(request):
                        detail = f"the token is read-only: {request.method} is not for it"
                        return _Refusal(403, "read_only_token", detail)
                    return login.caller
                case "basic" if not takes_passwords:
                    detail = (
                        "passwords are accepted over TLS, or from the node's own machine; here "
                        "others on the network could read it"
                    )
                    return _Refusal(401, "unauthenticated", detail, challenges)
                case "basic":
                    name, password = _name_and_password(value.strip())
                    logins = self._node.logins
                    return await future_of(
                        logins.password(name, password, host, protocol=_PROTOCOL)
                    )
                case _:
                    detail = f"unknown scheme {scheme[:40]!r}: expected Bearer or Basic"
                    return _Refusal(401, "unauthenticated", detail, challenges)
        except AuthError as error:
            status = status_of(error)
            return _Refusal(status, error.code, str(error), challenges if status == 401 else ())

    def _examined_again(self, request: Request, caller: Caller, receive: Receive) -> Receive:
        """Receives the request's body. Its last part, for which the operation waits, may come long
        after the head: it raises `AuthenticationFailedError` if the caller has lost the login.
        """

        async def examined() -> Message:
            message = await receive()
            is_last = message["type"] == "http.request" and not message.get("more_body", False)
            if is_last and not self._is_still(request, caller):
                raise AuthenticationFailedError("the login has ended while the request arrived")
            return message

        return examined

    def _is_still(self, request: Request, caller: Caller) -> bool:
        """Whether the request's head would be accepted, and name the same caller, now."""
        origin = _origin_of(request)
        if origin.is_operator:
            return True
        security = origin.security()
        if not _is_private_enough(origin):
            return False
        credentials = request.headers.get("authorization", "")
        if security.authentication != "off" and credentials:
            scheme, _, value = credentials.partition(" ")
            if scheme.lower() == "bearer":
                return self._node.logins.is_valid_token(value.strip())
            return self._node.logins.is_enabled(caller.name)
        is_refused = security.authentication == "required" and caller.principal == ANONYMOUS
        return not is_refused and caller == self._node.logins.before_login(origin.initial())

    def _takes_passwords(self, origin: Origin) -> bool:
        return (
            origin.is_encrypted
            or self._node.accepts_readable_passwords
            or _is_loopback(origin.initial().host)
        )


def _changes_nothing(request: Request) -> bool:
    is_question = request.method == "POST" and request.scope["path"] in _QUESTIONS
    return is_question or request.method in _READS


def caller_of(request: Request) -> Caller:
    """The caller that the request was authenticated with."""
    caller = request.scope["state"][_CALLER]
    assert isinstance(caller, Caller)
    return caller


def known_caller(scope: Scope) -> Caller | None:
    """The caller that a request was authenticated with, if it was."""
    caller = scope.get("state", {}).get(_CALLER)
    return caller if isinstance(caller, Caller) else None


def is_still_known(request: Request) -> bool:
    """Whether the request would be accepted now, from the same caller."""
    is_still: Callable[[], bool] = request.scope["state"][_IS_STILL]
    return is_still()


async def caller_if_known(request: Request) -> Caller | None:
    """The caller of a request for an exempt path; None without a login that the listener demands.
    Checking a password takes long.
    """
    recognise: Recognise | None = request.scope.get("state", {}).get(_RECOGNISE)
    return None if recognise is None else await recognise(request)


def _origin_of(request: Request) -> Origin:
    origin = request.scope.get("state", {}).get(ORIGIN)
    # A server that has no origins has no listeners with demands, either.
    return origin if isinstance(origin, Origin) else Origin()


def _is_private_enough(origin: Origin) -> bool:
    is_demanded = origin.security().tls == "required" and not origin.is_operator
    return origin.is_encrypted or not is_demanded


def _challenges(takes_passwords: bool) -> tuple[str, ...]:
    bearer = f"Bearer {_REALM}"
    return (bearer, f'Basic {_REALM}, charset="UTF-8"') if takes_passwords else (bearer,)


def _name_and_password(encoded: str) -> tuple[str, str]:
    """Raises `AuthenticationFailedError`."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    name, colon, password = text.partition(":")
    if not colon:
        raise AuthenticationFailedError("Basic: expected base64 of NAME:PASSWORD in UTF-8")
    return name, password


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
