"""One connection to a server that answers in the order of the requests, without numbering them.

Requests are pipelined up to a bound. What the server sends unasked (records pushed, keep-alives) is
told from replies by the protocol and handed on as it comes; a receiver that cannot keep up stops
the reading, so that the server's own bound on pushes takes effect. A reply that is late ends the
connection: everything behind it could be taken for the wrong reply.

    open ── reply late, bytes that do not parse, peer gone, `close` ──► closed
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from dragoman.dialing.errors import ClientError, ConnectionLostError, RequestTimeoutError
from dragoman.errors import DragomanError
from dragoman.framing import FrameReader
from dragoman.types import Buffer


class _Waiting:
    """Someone who waits for a reply, or has given up while the reply is still due."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[bytearray], timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.timer = timer


class Link(asyncio.BufferedProtocol):
    """`is_push` tells frames that answer nothing; they go to `on_push`, in order."""

    def __init__(
        self,
        address: str,
        reader: FrameReader,
        *,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        is_push: Callable[[bytearray], bool] = lambda _frame: False,
        on_push: Callable[[bytearray], None] = lambda _frame: None,
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        self.address = address
        self._loop = loop
        self._reader = reader
        self._is_push = is_push
        self._on_push = on_push
        self._on_lost = on_lost
        self._slots = asyncio.Semaphore(in_flight_max)
        self._waiting: deque[_Waiting] = deque()
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._lost: ClientError | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._lost is None

    async def request(self, frame: Buffer, timeout_s: float) -> bytearray:
        """The reply's frame. Raises `ConnectionLostError` or `RequestTimeoutError`."""
        await self._slots.acquire()
        try:
            while not self._writable.is_set() and self._lost is None:
                await self._writable.wait()
            self.send(frame)
            future: asyncio.Future[bytearray] = self._loop.create_future()
            timer = self._loop.call_later(timeout_s, self._expire, future, timeout_s)
        except BaseException:
            self._slots.release()
            raise
        self._waiting.append(_Waiting(future, timer))
        # The slot is given back when the reply has come, not when the caller gives up.
        return await future

    def send(self, frame: Buffer) -> None:
        """Send what has no reply. Raises `ConnectionLostError`."""
        if self._lost is not None:
            error = type(self._lost)(str(self._lost))
            # The server cannot have acted on what was never sent.
            error.is_ambiguous = False
            raise error
        assert self._transport is not None
        self._transport.write(frame)

    def pause(self) -> None:
        """Read no more until `resume`: whoever takes the pushes has enough."""
        if self.is_open:
            assert self._transport is not None
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_open:
            assert self._transport is not None
            self._transport.resume_reading()

    def close(self, error: ClientError | None = None) -> None:
        """Now, without waiting for replies."""
        if self._lost is None:
            self._end(error or ConnectionLostError(f"connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked at run time: uvloop's transports are of no class of asyncio.
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.buffer_updated(nbytes):
                if self._is_push(frame):
                    self._on_push(frame)
                else:
                    self._deliver(frame)
        except DragomanError as error:
            self.close(ConnectionLostError(f"{self.address} sent what makes no sense: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None:
            reason = "closed by the server" if exc is None else (str(exc) or repr(exc))
            self._end(ConnectionLostError(f"connection to {self.address} was lost: {reason}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- replies

    def _deliver(self, frame: bytearray) -> None:
        if not self._waiting:
            self.close(ConnectionLostError(f"{self.address} answered what nobody asked"))
            return
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        self._slots.release()
        if not waiting.future.done():
            waiting.future.set_result(frame)

    def _expire(self, future: asyncio.Future[bytearray], timeout_s: float) -> None:
        if not future.done():
            future.set_exception(
                RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s")
            )
        self.close(ConnectionLostError(f"connection to {self.address} was closed: a late reply"))

    def _end(self, error: ClientError) -> None:
        self._lost = error
        self._writable.set()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.timer.cancel()
            self._slots.release()
            if not each.future.done():
                each.future.set_exception(type(error)(str(error)))
        self._on_lost(error)
