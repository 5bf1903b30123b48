"""Runs the console on a socket until it is stopped, or has been idle for long enough.

Connections are those of the node's own HTTP server (`api/connection.py`), with its bounds on slow
clients. At the bound on their number, one that waits for its client gives way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from typing import Final

from dragoman.api.connection import Engine, HttpConnection
from dragoman.api.origin import Origin
from dragoman.config.console import ConsoleSettings
from dragoman.console.app import Console, create_app
from dragoman.console.tls import BrowserTls
from dragoman.console.upstream import Upstream
from dragoman.net.listener import ACCEPT_TURNS
from dragoman.operating_system import SystemClock

log = logging.getLogger("dragoman.console")
#: Connections of browsers; a browser has up to six.
CONNECTIONS_MAX: Final = 500
_BACKLOG: Final = 128
_IDLE_CHECK_S: Final = 5.0
_END_GRACE_S: Final = 1.0
_HANDSHAKE_S: Final = 10.0


async def serve(
    settings: ConsoleSettings,
    listener: socket.socket,
    stop: asyncio.Event,
    idle_check_s: float = _IDLE_CHECK_S,
) -> None:
    """Serve until `stop` is set, or the console is idle. Closes the listener. Raises
    `ConfigError` for certificates that cannot be used.
    """
    # asyncio does so only for a socket whose protocol was named when it was made. Without it, the
    # body of a response waits 40 ms for the acknowledgement of its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls = None if settings.tls is None else BrowserTls(settings.tls)
    upstream = Upstream(settings.server, _trusted(settings), settings.data)
    port: int = listener.getsockname()[1]
    console = Console(settings, upstream, port=port)
    server = _Server(console, listener, None if tls is None else tls.context)
    checking = None if tls is None else asyncio.create_task(tls.watch())
    try:
        await server.run(stop, settings.idle_s, idle_check_s)
    finally:
        listener.close()
        if checking is not None:
            checking.cancel()
        await console.records.close()
        upstream.close()


def _trusted(settings: ConsoleSettings) -> ssl.SSLContext | None:
    if settings.data or not settings.server.startswith("https:"):
        return None
    return ssl.create_default_context(cafile=settings.ca_file or None)


class _Server:
    def __init__(
        self, console: Console, listener: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self._console = console
        self._listener = listener
        self._tls = tls
        self._engine = Engine(create_app(console), SystemClock(), "console")
        self._loop = asyncio.get_running_loop()

    async def run(self, stop: asyncio.Event, idle_s: float, check_s: float) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                server = await self._accept()
                idle = asyncio.ensure_future(self._idle_for(idle_s, check_s))
                await asyncio.wait((stopping, idle), return_when=asyncio.FIRST_COMPLETED)
                idle.cancel()
                await _pause(server, self._loop)
                if not stop.is_set() and not self._engine.state.connections:
                    return
                # A connection was accepted meanwhile: it is served, and those that follow.
        finally:
            stopping.cancel()
            # At once: another node may wait for the address.
            self._listener.close()
            await self._close()

    async def _accept(self) -> asyncio.Server:
        return await self._loop.create_server(
            self._connection,
            sock=self._listener.dup(),
            backlog=_BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S,
        )

    def _connection(self) -> asyncio.Protocol:
        state = self._engine.state
        if len(state.connections) >= CONNECTIONS_MAX and not self._engine.make_room():
            return _Refused()
        return _BrowserConnection(self._engine, self._loop, Origin())

    async def _idle_for(self, seconds: float, check_s: float) -> None:
        """Returns when there was neither a connection nor a session for so long; never for 0."""
        since = time.monotonic()
        while True:
            await asyncio.sleep(check_s)
            if self._engine.state.connections or self._console.sessions.are_open():
                since = time.monotonic()
            elif seconds and time.monotonic() - since >= seconds:
                return

    async def _close(self) -> None:
        state = self._engine.state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=_END_GRACE_S)
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        if state.tasks:
            await asyncio.wait(list(state.tasks))


async def _pause(server: asyncio.Server, loop: asyncio.AbstractEventLoop) -> None:
    """Stop accepting; what was accepted reaches its protocol."""
    for each in server.sockets:
        loop.remove_reader(each.fileno())
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)
    server.close()


class _BrowserConnection(HttpConnection):
    def eof_received(self) -> bool:  # type: ignore[override]
        """A browser that closes its half has gone: what runs for it ends at once."""
        return False


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
