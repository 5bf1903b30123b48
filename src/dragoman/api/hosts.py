"""Refuses requests that a web page of another site may have sent.

A browser that shows a foreign page can reach every server that its user can reach, including a node
on the user's own machine. Two headers, which pages cannot forge, identify such requests:

    Host      the name that the page was loaded from, when its DNS leads here (DNS rebinding): only
              names of this node are served
    Origin    the site that sends a request to another one: only this one's own pages may

A request whose `Host` is an address is always served: no DNS was involved, so nothing was rebound.
A request without `Host` is not from a browser. Health is exempt, because probes of orchestrators
and load balancers send any headers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.api.problems import refusal
from dragoman.config.hosts import host_matches

_LOOPBACK_NAME = "localhost"
#: `host`, `host:port` or `[address]:port`.
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.%a-z]+)\]|([^\[\]:/@\s]+))(?::(\d{0,5}))?\Z")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SAFE = frozenset(("GET", "HEAD"))
#: Values of Sec-Fetch-Site for requests that no foreign page has sent.
_OWN_SITES = frozenset(("same-origin", "none"))
_REMEDY = "name it in the node's setting http.allowed.hosts"


#: Key in the state of a request's scope.
_FOREIGN = "is_foreign"


def is_foreign(request: Request) -> bool:
    """Whether a web page of another site may have sent a request to an exempt path."""
    found: bool = request.scope.get("state", {}).get(_FOREIGN, False)
    return found


class OwnHosts:
    """Answers 421 for a foreign `Host` and 403 for a foreign `Origin`, else calls the application.

    `names` gives the node's own host names, which may change; `allowed` are those that its operator
    has added.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Callable[[], Iterable[str]],
        allowed: Sequence[str],
        exempt: frozenset[str],
    ) -> None:
        self._app = app
        self._names = names
        self._allowed = allowed
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in self._exempt:
            request = Request(scope)
            is_other = bool(self._foreign_host(request) or self._foreign_origin(request))
            scope.setdefault("state", {})[_FOREIGN] = is_other
        elif scope["type"] == "http":
            request = Request(scope)
            detail = self._foreign_host(request)
            if detail:
                await refusal(scope, 421, "host_not_allowed", detail)(scope, receive, send)
                return
            detail = self._foreign_origin(request)
            if detail:
                await refusal(scope, 403, "origin_not_allowed", detail)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _foreign_host(self, request: Request) -> str:
        """Why the host is not served; empty when it is."""
        for text in request.headers.getlist("host"):
            found = _AUTHORITY.match(text.lower())
            if found is None:
                return f"Host: {text[:200]!r} names no host"
            host = (found[1] or found[2]).removesuffix(".")
            # Brackets are for addresses only; URLs with others cannot be read.
            if not (_is_address(host) or (found[1] is None and self._is_own(host))):
                return f"this node is not called {host[:200]!r}: {_REMEDY}"
        return ""

    def _is_own(self, host: str) -> bool:
        if host == _LOOPBACK_NAME or host.endswith(f".{_LOOPBACK_NAME}"):
            return True
        return host_matches(host, self._allowed) or host in {
            each.lower().removesuffix(".") for each in self._names()
        }

    def _foreign_origin(self, request: Request) -> str:
        """Why the site may not send this request; empty when it may."""
        origins = request.headers.getlist("origin")
        for origin in origins:
            if not self._is_own_origin(origin.lower(), request.headers.get("host", "").lower()):
                return f"pages of {origin[:200]!r} may not use this node: {_REMEDY}"
        if origins:
            return ""
        # Browsers mark requests for embedded resources, which have no Origin. A link that the user
        # follows to this node is harmless.
        site = request.headers.get("sec-fetch-site", "none")
        is_link = (
            request.method in _SAFE and request.headers.get("sec-fetch-mode", "") == "navigate"
        )
        if site not in _OWN_SITES and not is_link:
            return "pages of other sites may not use this node"
        return ""

    def _is_own_origin(self, origin: str, host: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        found, own = _AUTHORITY.match(authority), _AUTHORITY.match(host)
        # `null` is also refused: browsers send it for files and for pages that hide their origin.
        if not separator or found is None or scheme not in _DEFAULT_PORTS:
            return False
        name = found[1] or found[2]
        if host_matches(name, self._allowed):
            return True
        if own is None:
            return False
        # A proxy in front of the node may terminate TLS, so the default port follows from the
        # origin's scheme and not from the node's.
        default = _DEFAULT_PORTS[scheme]
        return (name, found[3] or default) == (own[1] or own[2], own[3] or default)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
