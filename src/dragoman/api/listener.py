"""Accepts HTTP connections on the broker's loop, and loads the HTTP server with the first one.

    listener = HttpListener(view, clock, loop)
    server = await loop.create_server(listener.factory(origin_of), host, port)
    ...
    server.close(); await listener.close(grace_seconds)

Importing starlette, uvicorn and the operations takes a fifth of a second. A broker without HTTP
clients never imports them. Any other broker imports them in a thread, while it serves the clients
of its other listeners:

    connection made ── engine loaded? ── yes ──> handed to HttpConnection
                            │ no
                       reading paused ── import in a thread ── done ──> handed over, reading resumed

At the bound on connections, and when descriptors run short, a new connection replaces one that no
operation runs for: one that sends its request slowly, does not read its response, or is idle
between requests; failing that, one whose request has not begun. Far fewer operations than
connections are admitted, so a client that holds connections open cannot keep a health probe out.

This module imports neither uvicorn, starlette nor the operations at module level.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from dragoman import limits
from dragoman.api.origin import Origin, OriginOf, open_origin
from dragoman.net.admission import DescriptorShare, all_descriptors
from dragoman.world import Clock

if TYPE_CHECKING:
    from dragoman.api.connection import Engine, HttpConnection
    from dragoman.api.operations import NodeView

logger = logging.getLogger(__name__)


class HttpListener:
    """Owns all HTTP connections of a node, from accept to close."""

    def __init__(
        self,
        view: Callable[[], NodeView],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        name: str = "http",
        descriptor_max: Callable[[], int] = all_descriptors,
        give_way: Callable[[], bool] | None = None,
    ) -> None:
        """`view` is called once, with the first connection. `name` is that of connections.

        A connection with a descriptor above `descriptor_max` replaces another HTTP connection,
        or a connection that `give_way` closes on another listener. If neither exists, the new
        connection is closed at once.
        """
        #: The descriptors that HTTP connections may have.
        self.descriptors = DescriptorShare(descriptor_max, self._make_room_anywhere)
        self._give_way = give_way
        self._view = view
        self._name = name
        self._clock = clock
        self._loop = loop
        self._engine: Engine | None = None
        self._loading: asyncio.Future[None] | None = None
        #: Connections that were accepted before the engine was loaded, the oldest first.
        self._waiting: dict[Arrival, None] = {}
        self._closed = False

    def factory(self, origin_of: OriginOf = open_origin) -> Callable[[], asyncio.Protocol]:
        """The factory of connections for `loop.create_server`; `origin_of` may refuse them."""
        return lambda: Arrival(self, origin_of)

    @property
    def connection_count(self) -> int:
        return len(self._waiting) + (len(self._engine.state.connections) if self._engine else 0)

    def connections(self) -> Iterator[HttpConnection]:
        """Those that may have sent a request."""
        return iter(()) if self._engine is None else self._engine.connections()

    async def close(self, grace_seconds: float) -> None:
        """Let requests in progress finish for up to `grace_seconds`, then cut every connection."""
        self._closed = True
        if self._loading is not None:
            await asyncio.wait([self._loading])
        for arrival in list(self._waiting):
            arrival.transport.abort()
        if self._engine is None:
            return
        state = self._engine.state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(list(state.tasks), timeout=grace_seconds)
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
        if state.tasks:
            await asyncio.wait(list(state.tasks))

    def arrived(self, arrival: Arrival) -> None:
        if self._closed or not self._has_room(arrival):
            arrival.transport.abort()
        elif self._engine is not None:
            self._hand_over(arrival, self._engine)
        else:
            self._waiting[arrival] = None
            self._start_loading()

    def _has_room(self, arrival: Arrival) -> bool:
        """Whether the connection may stay, possibly by closing another one."""
        if self.connection_count >= limits.HTTP_CONNECTIONS_MAX:
            return self._make_room()
        return self.descriptors.admits(arrival.transport)

    def _make_room_anywhere(self) -> bool:
        return self._make_room() or (self._give_way is not None and self._give_way())

    def _make_room(self) -> bool:
        """Cut a connection that no operation runs for; False when there is none."""
        if self._waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()
            return True
        return self._engine is not None and self._engine.make_room()

    def departed(self, arrival: Arrival) -> None:
        """Called when a connection is lost before its hand-over."""
        self._waiting.pop(arrival, None)

    def _start_loading(self) -> None:
        if self._loading is None:
            self._loading = self._loop.run_in_executor(None, _load)
            self._loading.add_done_callback(self._loaded)

    def _loaded(self, loading: asyncio.Future[None]) -> None:
        self._loading = None
        waiting, self._waiting = self._waiting, {}
        try:
            loading.result()
            self._engine = self._made()
        except Exception:
            # The next connection retries.
            logger.exception("the HTTP server could not be loaded")
            for arrival in waiting:
                arrival.transport.abort()
            return
        for arrival in waiting:
            if not arrival.transport.is_closing():
                self._hand_over(arrival, self._engine)

    def _made(self) -> Engine:
        """On the loop's thread, whose objects the view reads."""
        from dragoman.api.app import create_app
        from dragoman.api.connection import Engine

        return Engine(create_app(self._view()), self._clock, self._name)

    def _hand_over(self, arrival: Arrival, engine: Engine) -> None:
        from dragoman.api.connection import HttpConnection

        connection = HttpConnection(engine, self._loop, arrival.origin)
        arrival.transport.set_protocol(connection)
        connection.connection_made(arrival.transport)
        if arrival.early:
            arrival.transport.resume_reading()
            connection.data_received(arrival.early)


def _load() -> None:
    """In a thread: import what serves HTTP."""
    import dragoman.api.app
    import dragoman.api.connection
    import dragoman.api.node  # noqa: F401


class Arrival(asyncio.Protocol):
    """A connection between accept and hand-over.

    Reading is paused when the first bytes arrive: uvloop starts to read only after
    `connection_made`, so an earlier pause would have no effect.
    """

    transport: asyncio.Transport
    origin: Origin

    def __init__(self, listener: HttpListener, origin_of: OriginOf) -> None:
        self._listener = listener
        self._origin_of = origin_of
        #: Bytes read before the pause, at most one receive buffer.
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        origin = self._origin_of(transport)
        if origin is None:
            self.transport.abort()
            return
        self.origin = origin
        self._listener.arrived(self)

    def data_received(self, data: bytes) -> None:
        self.early += data
        self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._listener.departed(self)
