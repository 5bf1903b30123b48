"""One HTTP connection: uvicorn's h11 protocol on a transport of ours, with the time-outs it lacks.

uvicorn closes a connection that is idle between requests, but waits for ever for the first byte,
for the rest of a request's head, for the rest of a body that nobody reads, and for a client that
does not take its answer. Here a timer runs in each of these states. The body of a request that is
being served is timed by the operation that reads it.

Imports uvicorn and h11: only `listener.py` imports this, when the first connection comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from email.utils import formatdate
from itertools import count
from typing import Any, cast

import h11
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dragoman import limits
from dragoman.api.admission import BEGUN
from dragoman.log_limiter import LogLimiter
from dragoman.world import Clock


def least_needed(connections: Iterable[HttpConnection]) -> HttpConnection | None:
    """Of the address that has most connections without work, the one that is so for longest; None
    when operations work for all.
    """
    still_open = [each for each in connections if not each.is_leaving]
    found = [each for each in still_open if each.is_quiet]
    found = found or [each for each in still_open if each.is_queued]
    held = Counter(each.host for each in found)
    return min(found, key=lambda each: (-held[each.host], each.quiet_rank), default=None)


class Engine:
    """What all connections share: the application, uvicorn's configuration, and the set of
    connections.
    """

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        # No configuration of loggers, no lifespan, no sockets: uvicorn only speaks HTTP here.
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
        self.ranks = count()
        self._limiter: LogLimiter | None = None
        self._clock = clock
        self._second = -1

    def connections(self) -> Iterator[HttpConnection]:
        for each in self.state.connections:
            assert isinstance(each, HttpConnection)
            yield each

    def make_room(self) -> bool:
        """Cut one connection that no work is done for; False: there is none."""
        given_up = least_needed(self.connections())
        if given_up is not None:
            given_up.cut()
        return given_up is not None

    def relieve(self) -> None:
        """Cut connections whose clients do not take their answers, until what is left of them fits
        its bound.
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

    def limited(self, logger: logging.Logger, loop: asyncio.AbstractEventLoop) -> logging.Logger:
        """uvicorn's logger, for lines that clients can cause at will."""
        if self._limiter is None:
            self._limiter = LogLimiter(logger, loop)
        return cast(logging.Logger, LimitedLogger(logger, self._limiter))

    def stamp(self) -> None:
        """Keep the Date header that every answer carries at the current second."""
        second = self._clock.wall_ms() // 1000
        if second != self._second:
            self._second = second
            self.state.default_headers[:] = [(b"date", formatdate(second, usegmt=True).encode())]


class LimitedLogger(logging.LoggerAdapter[logging.Logger]):
    """What uvicorn logs of a request: it says so of each that is not HTTP."""

    def __init__(self, logger: logging.Logger, limiter: LogLimiter) -> None:
        super().__init__(logger)
        self._limiter = limiter

    @property
    def level(self) -> int:
        return self.logger.level

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self._limiter.admits(level):
            super().log(level, msg, *args, **kwargs)


class HttpConnection(H11Protocol):
    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(engine.config, engine.state, {}, loop)
        self._engine = engine
        self.logger = engine.limited(self.logger, loop)
        self._deadline: asyncio.TimerHandle | None = None
        #: Runs when the client sends no more, and waits for what it asked for.
        self._ending: asyncio.TimerHandle | None = None
        #: Runs while the client has an answer to take.
        self._delivery: asyncio.TimerHandle | None = None
        self._is_cut = False
        #: Lower for a connection that was made, or whose last request was answered, earlier.
        self.quiet_rank = next(engine.ranks)

    @property
    def host(self) -> str:
        """Where the client is."""
        return self.client[0] if self.client else ""

    @property
    def is_quiet(self) -> bool:
        """Whether the node waits for the client, and not the client for the node."""
        owes_body = self.conn.their_state is h11.SEND_BODY
        return not self._is_answering() or owes_body or self.flow.write_paused

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to go. One that is closed stays until its client has taken the last
        answer.
        """
        is_closing = self.transport.is_closing()
        return is_closing and (self._is_cut or not self.transport.get_write_buffer_size())

    def cut(self) -> None:
        self._is_cut = True
        self.transport.abort()

    @property
    def is_queued(self) -> bool:
        """Whether its request is not begun."""
        assert self.cycle is not None
        return not self.cycle.scope["state"].get(BEGUN)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._engine.stamp()
        super().data_received(data)
        self._watch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """uvicorn would close; a client that has sent all it wanted may still want its answer."""
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
        """The request is served as if it had not asked; that is nothing to tell an operator."""

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_delivery()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_delivery()
        # Not within the write that has filled the buffer.
        self.loop.call_soon(self._engine.relieve)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._delivered()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._delivered()
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    def _await_delivery(self) -> None:
        """A transport that is closed waits for ever for the client to take what is left."""
        if self._delivery is None:
            self._delivery = self.loop.call_later(limits.HTTP_DELIVERY_SECONDS, self._expire)

    def _delivered(self) -> None:
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None

    def _watch(self) -> None:
        """Run the timer exactly while the client owes bytes that no operation waits for."""
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
