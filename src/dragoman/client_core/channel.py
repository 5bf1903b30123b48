"""One TCP connection to a server: requests out, replies to their callers.

Requests are pipelined up to a bound and written while the socket accepts them; past either limit,
callers wait. A late reply closes the channel, because every reply behind it is late too: its caller
gets `RequestTimeoutError`, all other callers get `ConnectionLostError`.

    open ── reply late, bytes that do not parse, peer gone, `close` ──► closed

With `Channel` the protocol matches replies to requests by number: `ask` gets the number of a
request when it is sent, `deliver` the number of a reply that was received. `OrderedChannel` is for
protocols without such numbers, whose servers answer in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from dragoman.client_core.errors import (
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
    before_sending,
)
from dragoman.errors import DragomanError, RemoteProtocolError
from dragoman.framing import FrameReader
from dragoman.types import Buffer

Reply = TypeVar("Reply")


class _Waiter(Generic[Reply]):
    """A caller that waits for a reply, or has given up while the reply is still due."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[Reply], timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.timer = timer


class Channel(asyncio.BufferedProtocol, Generic[Reply]):
    """The base class of a protocol's channel. Override `get_buffer` and `take`."""

    def __init__(
        self,
        address: object,
        *,
        protocol: str,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        """`protocol` is the protocol's name in error messages."""
        self.address = str(address)
        self._protocol = protocol
        self._loop = loop
        self._on_lost = on_lost
        self._slots = asyncio.Semaphore(in_flight_max)
        #: Keeps requests in order: a new one does not overtake those that wait for the channel to
        #: become writable.
        self._turn = asyncio.Lock()
        #: Callers by request number, oldest first.
        self._waiting: dict[int, _Waiter[Reply]] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._lost: ClientError | None = None

    # ---- for the protocol

    def take(self, count: int) -> None:
        """Parse `count` bytes that were received into the buffer. Raises `DragomanError`."""
        raise NotImplementedError

    async def ask(self, send: Callable[[], int | None], timeout_s: float) -> Reply | None:
        """Call `send`, which sends a request, in turn, and return the reply. Returns None at once
        when `send` returns no number, because that request has no reply.

        Raises `ConnectionLostError`, `RequestTimeoutError`, and what `send` raises.
        """
        async with self._turn:
            await self._slots.acquire()
            try:
                while not self._writable.is_set() and self._lost is None:
                    await self._writable.wait()
                if self._lost is not None:
                    raise before_sending(self._lost)
                number = send()
            except BaseException:
                self._slots.release()
                raise
        if number is None:
            self._slots.release()
            return None
        future: asyncio.Future[Reply] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expire, number, timeout_s)
        self._waiting[number] = _Waiter(future, timer)
        # The slot is released when the reply arrives, not when the caller gives up: until then the
        # request is in flight.
        return await future

    def deliver(self, number: int, reply: Reply) -> None:
        waiter = self._waiting.pop(number)
        waiter.timer.cancel()
        self._slots.release()
        if not waiter.future.done():
            waiter.future.set_result(reply)

    def late(self) -> None:
        """Called after a reply was late. Override it where replies are independent of each
        other.
        """
        text = f"connection to {self.address} was closed because of a late reply"
        self.close(ConnectionLostError(text))

    # ---- for users

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._lost is None

    @property
    def is_private(self) -> bool:
        """Whether others cannot read the connection: it is TLS, or within this machine."""
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        is_near = host == "::1" or host.startswith("127.")
        return is_near or self._transport.get_extra_info("ssl_object") is not None

    def close(self, error: ClientError | None = None) -> None:
        """Close at once, without waiting for replies."""
        if self._lost is None:
            self._end(error or ConnectionLostError(f"connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked at run time: uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.take(nbytes)
        except DragomanError as error:
            # After one invalid reply, the rest of the stream cannot be trusted either.
            reason = f"{self.address} does not speak {self._protocol}: {error}"
            self.close(ConnectionLostError(reason))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None:
            reason = "closed by the server" if exc is None else (str(exc) or repr(exc))
            self._end(ConnectionLostError(f"connection to {self.address} was lost: {reason}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- ends

    def _expire(self, number: int, timeout_s: float) -> None:
        waiter = self._waiting.pop(number)
        self._slots.release()
        if not waiter.future.done():
            waiter.future.set_exception(
                RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s")
            )
        self.late()

    def _end(self, error: ClientError) -> None:
        self._lost = error
        self._writable.set()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.timer.cancel()
            self._slots.release()
            if not each.future.done():
                each.future.set_exception(type(error)(str(error)))
        self._on_lost(error)


class OrderedChannel(Channel[bytearray]):
    """A channel whose server answers in the order of the requests, without numbering them.

    Frames for which `is_push` is true answer no request (pushed records, keep-alives). They are
    passed to `on_push`, in order. A receiver that cannot keep up pauses reading: back-pressure then
    reaches the server.
    """

    def __init__(
        self,
        address: object,
        reader: FrameReader,
        *,
        protocol: str,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        is_push: Callable[[bytearray], bool] = lambda _frame: False,
        on_push: Callable[[bytearray], None] = lambda _frame: None,
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        super().__init__(
            address, protocol=protocol, loop=loop, in_flight_max=in_flight_max, on_lost=on_lost
        )
        self._reader = reader
        self._is_push = is_push
        self._on_push = on_push
        self._sent = 0

    async def request(self, frame: Buffer, timeout_s: float) -> bytearray:
        """The reply's frame. Raises `ConnectionLostError` or `RequestTimeoutError`."""

        def send() -> int:
            self.send(frame)
            self._sent += 1
            return self._sent

        reply = await self.ask(send, timeout_s)
        assert reply is not None
        return reply

    def send(self, frame: Buffer) -> None:
        """Send a frame that has no reply. Raises `ConnectionLostError`."""
        if self._lost is not None:
            raise before_sending(self._lost)
        assert self._transport is not None
        self._transport.write(frame)

    def pause(self) -> None:
        """Stop reading until `resume`, for a receiver of pushes that cannot keep up."""
        if self.is_open:
            assert self._transport is not None
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.is_open:
            assert self._transport is not None
            self._transport.resume_reading()

    # ---- what the transport calls

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def take(self, count: int) -> None:
        for frame in self._reader.buffer_updated(count):
            if self._is_push(frame):
                self._on_push(frame)
            elif self._waiting:
                self.deliver(next(iter(self._waiting)), frame)
            else:
                raise RemoteProtocolError("a reply to no request")
