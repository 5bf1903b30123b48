"""Takes HTTP connections inside the broker's loop, and loads what serves them with the first one.

    listener = HttpListener(node, clock, loop)
    server = await loop.create_server(listener.protocol, host, port)
    ...
    server.close(); await listener.close(grace_seconds)

Importing starlette and uvicorn takes a fifth of a second. A broker that nobody scrapes never pays
it, and one that is scraped pays it in a thread while its other clients are served:

    connection made ── engine loaded? ── yes ──> handed to HttpConnection
                            │ no
                       reading paused ── import in a thread ── done ──> handed over, reading resumed

Nothing here imports uvicorn or starlette at module level.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from dragoman import limits
from dragoman.api.ports import NodeView
from dragoman.world import Clock

if TYPE_CHECKING:
    from dragoman.api.connection import Engine

logger = logging.getLogger(__name__)


class HttpListener:
    """Owns all HTTP connections of a node, from accept to close."""

    def __init__(self, node: NodeView, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._clock = clock
        self._loop = loop
        self._engine: Engine | None = None
        self._loading: asyncio.Future[Engine] | None = None
        #: Transports whose reading is paused until the engine is loaded.
        self._waiting: set[asyncio.Transport] = set()
        self._closed = False

    def protocol(self) -> asyncio.Protocol:
        """Factory for `loop.create_server`."""
        return _Arrival(self)

    @property
    def connection_count(self) -> int:
        return len(self._waiting) + (len(self._engine.state.connections) if self._engine else 0)

    async def close(self, grace_seconds: float) -> None:
        """Let requests in progress finish for so long, then cut every connection."""
        self._closed = True
        if self._loading is not None:
            await asyncio.wait([self._loading])
        for transport in list(self._waiting):
            transport.abort()
        if self._engine is None:
            return
        state = self._engine.state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=grace_seconds)
        for connection in list(state.connections):
            connection.transport.abort()

    def arrived(self, transport: asyncio.Transport) -> None:
        if self._closed or self.connection_count >= limits.HTTP_CONNECTIONS_MAX:
            transport.abort()
        elif self._engine is not None:
            self._hand_over(transport, self._engine)
        else:
            transport.pause_reading()
            self._waiting.add(transport)
            self._start_loading()

    def departed(self, transport: asyncio.Transport) -> None:
        """A connection was lost before it could be handed over."""
        self._waiting.discard(transport)

    def _start_loading(self) -> None:
        if self._loading is None:
            self._loading = self._loop.run_in_executor(None, self._load)
            self._loading.add_done_callback(self._loaded)

    def _load(self) -> Engine:
        from dragoman.api.app import create_app
        from dragoman.api.connection import Engine

        return Engine(create_app(self._node), self._clock)

    def _loaded(self, loading: asyncio.Future[Engine]) -> None:
        self._loading = None
        waiting, self._waiting = self._waiting, set()
        error = loading.exception()
        if error is not None:
            # The next connection tries again.
            logger.error("the HTTP server could not be loaded", exc_info=error)
            for transport in waiting:
                transport.abort()
            return
        self._engine = loading.result()
        for transport in waiting:
            if not transport.is_closing():
                self._hand_over(transport, self._engine)
                transport.resume_reading()

    def _hand_over(self, transport: asyncio.Transport, engine: Engine) -> None:
        from dragoman.api.connection import HttpConnection

        connection = HttpConnection(engine, self._loop)
        transport.set_protocol(connection)
        connection.connection_made(transport)


class _Arrival(asyncio.Protocol):
    """A connection from its accept until it is handed over."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._listener.arrived(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        assert self._transport is not None
        self._listener.departed(self._transport)
