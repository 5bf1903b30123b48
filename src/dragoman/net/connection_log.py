"""Lines of the log at the level debug about connections and the requests on them.

A connection is named by its listener and its number there, such as `kafka-17`; a request by its
connection and its number in the protocol, such as `kafka-17.42`. The same names are in every line
about them. A caller asks `is_on` before it collects what a line says, so that nothing is collected
while the level is higher. The log itself bounds the rate of such lines (`telemetry/logs.py`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from dragoman.limits import LOGGED_NAME_CHARS_MAX

log = logging.getLogger("dragoman.connections")


#: Whether the level is debug. Asked with each reply, so it is not wrapped in a function.
is_on: Final = partial(log.isEnabledFor, logging.DEBUG)


def request_name(connection: str, number: int | None) -> str:
    """How lines of the log call a request. Requests of some protocols have no number."""
    return connection if number is None else f"{connection}.{number}"


def opened(connection: str, peer: tuple[str, int], protocol: str) -> None:
    fields = {"connection": connection, "peer": _text(peer), "protocol": protocol}
    log.debug("connection opened", extra=fields)


def closed(connection: str, peer: tuple[str, int], why: str) -> None:
    fields = {"connection": connection, "peer": _text(peer), "why": why}
    log.debug("connection closed", extra=fields)


def failed(
    connection: str,
    number: int | None,
    *,
    protocol: str,
    api: object,
    client: str | None,
    user: str,
    code: object,
    text: str,
) -> None:
    """A request was answered with an error. Requests of some protocols have no number."""
    fields = {
        "request": request_name(connection, number),
        "protocol": protocol,
        "api": str(api),
        "client": (client or "")[:LOGGED_NAME_CHARS_MAX],
        "user": user,
        "code": str(code),
        "why": text,
    }
    log.debug("request failed", extra=fields)


def _text(peer: tuple[str, int]) -> str:
    return f"{peer[0]}:{peer[1]}"
