"""Checks of a node's console: whether it answers from here, who may use it, what it lacks."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterable, Iterator
from contextlib import closing
from urllib.parse import SplitResult, urlsplit

import msgspec

from dragoman.api.values import Check
from dragoman.cli.diagnosis.finding import Finding, ok, problem, warning
from dragoman.config.listeners import Address
from dragoman.installation import QUERY_MODULES, install_command, missing_modules
from dragoman.limits import DOCTOR_CONNECT_S

_ANSWER_BYTES_MAX = 1 << 20
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_LOG = "look at the log of the node for lines of `listener console`"


class _State(msgspec.Struct):
    """What the console says before a login."""

    needs_login: bool
    obstacle: str = ""
    bootstrap: str = ""


def reached(checks: Iterable[Check], host: str, tls: ssl.SSLContext) -> Iterator[Finding]:
    """Ask the console of a node on `host`; empty: on this machine. The node's own check says where
    it is.
    """
    said = next((each.detail for each in checks if each.name == "console"), "")
    place = urlsplit(said.partition(" ")[0].rstrip(";:"))
    if not place.scheme or place.hostname is None or place.port is None:
        # It is off, or the node does not show where it is.
        return
    bound = Address(place.hostname, place.port)
    is_here = not host or Address(host, 1).is_loopback
    if bound.is_loopback and not is_here:
        what = f"at {place.geturl()}, for programs on the node's machine"
        yield ok("console", what)
        return
    if bound.is_wildcard:
        bound = Address(host or _LOOPBACK[bound.host], bound.port)
    url = f"{place.scheme}://{bound}{place.path}"
    try:
        state = _state(place, bound, tls)
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        what = f"{url} does not answer from here: {error or type(error).__name__}"
        remedy = _LOG if is_here else f"{_LOG}; open the port in firewalls, or ask from its machine"
        yield (problem if is_here else warning)("console", what, remedy)
        return
    if state.obstacle:
        yield problem("console", f"{url}: {state.obstacle}", "`dragoman user create NAME`")
    elif state.needs_login:
        yield ok("console", f"{url} answers, and asks for a login")
    else:
        yield ok("console", f"{url} answers, and only reads until `dragoman user create NAME`")
    if not state.bootstrap:
        what = f"{url} shows no records: the node has no listener for Kafka's protocol"
        yield warning("console", what, "give the node --listen kafka=127.0.0.1:9092")


def _state(place: SplitResult, bound: Address, tls: ssl.SSLContext) -> _State:
    connection: http.client.HTTPConnection
    if place.scheme == "https":
        connection = http.client.HTTPSConnection(
            bound.host, bound.port, timeout=DOCTOR_CONNECT_S, context=tls
        )
    else:
        connection = http.client.HTTPConnection(bound.host, bound.port, timeout=DOCTOR_CONNECT_S)
    with closing(connection):
        connection.request("GET", f"{place.path}session")
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"status {answer.status}")
    return msgspec.json.decode(body, type=_State)


def queries() -> Finding:
    """Whether the console of a node that starts from this installation can run SQL."""
    missing = missing_modules(QUERY_MODULES)
    if not missing:
        return ok("console", "the extra `console` is installed")
    what = f"its SQL needs {', '.join(missing)}: {install_command('console')}"
    return ok("console", what)
