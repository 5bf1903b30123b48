"""Where the requests of an HTTP connection come from, as the connection itself shows.

The listener makes an `Origin` for each connection that it accepts; requests find it in the state of
their scope. This module imports no HTTP server library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from dragoman.config.listeners import OPEN, ListenerSecurity
from dragoman.net.operator_socket import user_of
from dragoman.operating_system import platforms
from dragoman.security.access import Caller, Principal
from dragoman.security.authorizer import OPERATOR_KIND
from dragoman.security.identity import initial_caller
from dragoman.types import Certificate

#: Key in the state of a request's scope.
ORIGIN: Final = "origin"
#: The header by which the console says for whom it asks: the browser's address and `http` or
#: `https`, separated by a space.
BROWSER: Final = "dragoman-browser"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    #: What the listener demands of the connection at the moment.
    security: Callable[[], ListenerSecurity] = lambda: OPEN
    #: The caller before any login, at the moment.
    initial: Callable[[], Caller] = Caller
    is_encrypted: bool = False
    #: Whether it is the Unix socket of the administrator, who needs no login.
    is_operator: bool = False
    #: On the socket of the console: the origin of a request by what its header `BROWSER` says, or
    #: None for one that does not say it. The connection itself has no caller.
    of_browser: Callable[[str], Origin | None] | None = None
    #: What is needed before anyone can log in; empty: nothing.
    login_obstacle: Callable[[], str] = lambda: ""


#: The origin of a new connection; None: the connection is refused.
OriginOf: TypeAlias = Callable[[asyncio.BaseTransport], Origin | None]


def open_origin(transport: asyncio.BaseTransport) -> Origin:
    """The origin on a listener that demands nothing."""
    caller = Caller(host=host_of(transport))
    return Origin(initial=lambda: caller)


def host_of(transport: asyncio.BaseTransport) -> str:
    """The client's address; empty on a Unix socket."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def listener_origin(
    security: Callable[[], ListenerSecurity],
    mapping_rules: Callable[[], str],
    transport: asyncio.BaseTransport,
) -> Origin:
    """The origin on a listener; `mapping_rules` are those for subjects of certificates. Both may
    change at run time.
    """
    host = host_of(transport)
    certificate: Certificate | None = transport.get_extra_info("certificate")

    def initial() -> Caller:
        return initial_caller(security(), certificate, host, mapping_rules())

    return Origin(
        security=security,
        initial=initial,
        is_encrypted=transport.get_extra_info("ssl_object") is not None,
    )


def operator_origin(transport: asyncio.BaseTransport) -> Origin | None:
    """The origin on the administrator's socket: only the user that the node runs as passes."""
    user = user_of(transport)
    if user is None or user != platforms.own_user():
        return None
    caller = Caller(Principal(OPERATOR_KIND, _name_of(user)), is_proven=True)
    return Origin(initial=lambda: caller, is_operator=True)


def console_origin(
    security: Callable[[], ListenerSecurity],
    login_obstacle: Callable[[], str],
    transport: asyncio.BaseTransport,
) -> Origin | None:
    """The origin on the console's socket: only the user that the node runs as passes, and each
    request has the origin that its browser would have on the console's listener.
    """
    user = user_of(transport)
    if user is None or user != platforms.own_user():
        return None

    def of_browser(text: str) -> Origin | None:
        host, _, scheme = text.partition(" ")
        if not host or scheme not in ("http", "https"):
            return None
        return Origin(
            security=security,
            initial=lambda: initial_caller(security(), None, host),
            is_encrypted=scheme == "https",
            login_obstacle=login_obstacle,
        )

    return Origin(of_browser=of_browser)


def _name_of(user: int) -> str:
    try:
        return platforms.user_name(user)
    except KeyError:
        return str(user)
