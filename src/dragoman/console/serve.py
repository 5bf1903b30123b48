"""Runs the console on a socket until it is stopped, or has been idle for long enough."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from dragoman.console.app import Console, create_app
from dragoman.console.settings import ConsoleSettings
from dragoman.console.upstream import Upstream

_IDLE_CHECK_S: Final = 5.0
_CONNECTIONS_MAX: Final = 500
_KEEP_ALIVE_S: Final = 30


async def serve(
    settings: ConsoleSettings,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set. `tls` is for browsers."""
    # asyncio does so only for a socket whose protocol was named when it was made. Without it, the
    # body of a response waits 40 ms for the acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trusted = None
    if settings.server.startswith("https:"):
        trusted = ssl.create_default_context(cafile=settings.ca_file or None)
    upstream = Upstream(settings.server, trusted)
    console = Console(settings, upstream)
    config = uvicorn.Config(
        create_app(console),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    waiting = asyncio.ensure_future(stop.wait())
    idle = asyncio.ensure_future(_idle_for(server, settings.idle_s))
    try:
        await asyncio.wait((serving, waiting, idle), return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        for task in (waiting, idle):
            task.cancel()
        await serving
        await console.records.close()
        upstream.close()


class _Server(uvicorn.Server):
    """Leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _idle_for(server: uvicorn.Server, seconds: float) -> None:
    """Returns when nobody was connected for so long; never for 0."""
    idle = 0.0
    while not seconds or idle < seconds:
        await asyncio.sleep(_IDLE_CHECK_S)
        idle = 0.0 if server.server_state.connections else idle + _IDLE_CHECK_S
