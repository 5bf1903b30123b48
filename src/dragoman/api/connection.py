"""One HTTP connection: uvicorn's h11 protocol on Dragoman's transport, with the timeouts it lacks.

uvicorn closes a connection that is idle between requests. It waits without limit for the first
byte, for the rest of a request's head, for the rest of a body that no operation reads, and for a
client that does not read its response. This module runs a timer in each of these states. The body
of a request that is being served is timed by the operation that reads it.

This module imports uvicorn and h11, so `listener.py` imports it only when the first connection
arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from email.utils import formatdate
from itertools import count
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dragoman import limits
from dragoman.api.admission import BEGUN, STREAM
from dragoman.api.authentication import known_caller
from dragoman.api.origin import ORIGIN, Origin
from dragoman.api.request_ids import request_id
from dragoman.log_limiter import LogLimiter
from dragoman.net import connection_log
from dragoman.world import Clock


def least_needed(connections: Iterable[HttpConnection]) -> HttpConnection | None:
    """The connection to close when there are too many: of the host with most idle connections, the
    one that has been idle for longest; failing that, a stream of events. None when operations run
    for all connections.
    """
    still_open = [each for each in connections if not each.is_leaving]
    found = [each for each in still_open if each.is_quiet]
    found = found or [each for each in still_open if each.is_queued]
    found = found or [each for each in still_open if each.is_stream]
    held = Counter(each.host for each in found)
    return min(found, key=lambda each: (-held[each.host], each.quiet_rank), default=None)


class Engine:
    """State shared by all connections: the application, uvicorn's configuration, and the set of
    connections.
    """

    def __init__(self, app: ASGIApp, clock: Clock, listener: str = "http") -> None:
        # uvicorn handles HTTP only: no logger configuration, no lifespan, no sockets.
        self.config = Config(
            app,
            http=H11Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=limits.HTTP_KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=limits.HTTP_HEADER_BYTES_MAX,
        )
        self.config.load()
        self.state = ServerState()
        #: The first part of the names of connections.
        self.listener = listener
        self.ranks = count()
        #: Numbers of connections, for the log.
        self.numbers = count(1)
        self._limiter: LogLimiter | None = None
        self._clock = clock
        self._second = -1

    def connections(self) -> Iterator[HttpConnection]:
        for each in self.state.connections:
            assert isinstance(each, HttpConnection)
            yield each

    def make_room(self) -> bool:
        """Cut a connection that no operation runs for; False when there is none."""
        given_up = least_needed(self.connections())
        if given_up is not None:
            given_up.cut()
        return given_up is not None

    def relieve(self) -> None:
        """Cut connections whose clients do not read their responses, until the unsent bytes of the
        others are within bounds.
        """
        still_open = (each for each in self.connections() if not each.is_leaving)
        blocked = [each for each in still_open if each.flow.write_paused]
        unsent = sum(each.transport.get_write_buffer_size() for each in blocked)
        while unsent > limits.HTTP_UNSENT_BYTES_MAX:
            given_up = least_needed(blocked)
            if given_up is None:
                return
            unsent -= given_up.transport.get_write_buffer_size()
            given_up.cut()

    def limited(
        self,
        logger: logging.Logger,
        loop: asyncio.AbstractEventLoop,
        request: Callable[[], str],
    ) -> logging.Logger:
        """uvicorn's logger for a connection, rate-limited because clients can trigger its lines at
        will. `request` gives the id of the current request.
        """
        if self._limiter is None:
            self._limiter = LogLimiter(logger, loop)
        return cast(logging.Logger, LimitedLogger(logger, self._limiter, request))

    def now(self) -> float:
        return self._clock.monotonic()

    def stamp(self) -> None:
        """Set the Date header of responses to the current second."""
        second = self._clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self.state.default_headers[:] = [(b"date", formatdate(second, usegmt=True).encode())]


class LimitedLogger(logging.LoggerAdapter[logging.Logger]):
    """Rate-limits uvicorn's log, which gets a line for each request that is not HTTP."""

    def __init__(
        self, logger: logging.Logger, limiter: LogLimiter, request: Callable[[], str]
    ) -> None:
        super().__init__(logger)
        self._limiter = limiter
        self._request = request

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {"request": self._request()}}

    @property
    def level(self) -> int:
        return self.logger.level

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self._limiter.admits(level):
            super().log(level, msg, *args, **kwargs)


class HttpConnection(H11Protocol):
    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        super().__init__(engine.config, engine.state, {ORIGIN: origin}, loop)
        self._engine = engine
        self.name = f"{engine.listener}-{next(engine.numbers)}"
        self.opened_at = engine.now()
        self.logger = engine.limited(self.logger, loop, self._request_id)
        self._deadline: asyncio.TimerHandle | None = None
        #: Runs when the client has closed its half and a response is still due.
        self._ending: asyncio.TimerHandle | None = None
        #: Runs while the client has a response to read.
        self._delivery: asyncio.TimerHandle | None = None
        self._is_cut = False
        #: Lower for connections that were made, or last answered, earlier.
        self.quiet_rank = next(engine.ranks)

    @property
    def user(self) -> str:
        """The principal of its current or last request; empty before the first one."""
        caller = None if self.cycle is None else known_caller(cast(Scope, self.cycle.scope))
        return "" if caller is None else str(caller.principal)

    @property
    def is_encrypted(self) -> bool:
        return self.transport.get_extra_info("ssl_object") is not None

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    @property
    def host(self) -> str:
        """The client's address."""
        return self.client[0] if self.client else ""

    def _request_id(self) -> str:
        return "" if self.cycle is None else request_id(cast(Scope, self.cycle.scope))

    @property
    def is_quiet(self) -> bool:
        """Whether the node waits for the client, rather than the client for the node."""
        owes_body = self.conn.their_state is h11.SEND_BODY
        return not self._is_answering() or owes_body or self.flow.write_paused

    @property
    def is_leaving(self) -> bool:
        """Whether the connection is about to end. A closed one stays until its client has read the
        last response.
        """
        is_closing = self.transport.is_closing()
        return is_closing and (self._is_cut or not self.transport.get_write_buffer_size())

    def cut(self) -> None:
        self._is_cut = True
        self.transport.abort()

    @property
    def is_stream(self) -> bool:
        """Whether its response goes on until either side ends it."""
        return self.cycle is not None and bool(self.cycle.scope["state"].get(STREAM))

    @property
    def is_queued(self) -> bool:
        """Whether its request has not begun."""
        assert self.cycle is not None
        return not self.cycle.scope["state"].get(BEGUN)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if connection_log.is_on():
            connection_log.opened(self.name, self.client or ("", 0), "http")
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._engine.stamp()
        super().data_received(data)
        self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Unlike in uvicorn, a client that has closed its half still gets its response."""
        if not self._is_answering():
            return False
        if self._ending is None:
            self._ending = self.loop.call_later(limits.ENDED_GRACE_S, self.transport.abort)
        return True

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def on_response_complete(self) -> None:
        self.quiet_rank = next(self._engine.ranks)
        super().on_response_complete()
        if self._ending is not None and not self._is_answering():
            self.transport.close()
            return
        if self.conn.their_state is h11.SEND_BODY:
            self._watch()
        if self.transport.is_closing():
            self._await_delivery()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._await_delivery()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the request is served as if it had not requested an upgrade."""

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_delivery()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_delivery()
        # Deferred, because the transport is still inside the write that filled the buffer.
        self.loop.call_soon(self._engine.relieve)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._delivered()

    def connection_lost(self, exc: Exception | None) -> None:
        if connection_log.is_on():
            why = str(exc) if exc else "this node cut it" if self._is_cut else "it ended"
            connection_log.closed(self.name, self.client or ("", 0), why)
        self._disarm()
        self._delivered()
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    def _await_delivery(self) -> None:
        """Bound how long a closed transport waits for its client to read the rest."""
        if self._delivery is None:
            self._delivery = self.loop.call_later(limits.HTTP_DELIVERY_SECONDS, self._expire)

    def _delivered(self) -> None:
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None

    def _watch(self) -> None:
        """Run the timer while the node expects bytes that no operation is waiting for."""
        owes_head = self.conn.their_state is h11.IDLE
        owes_rest = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        if not owes_head and not owes_rest:
            self._disarm()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(limits.HTTP_REQUEST_SECONDS, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        self.transport.abort()
