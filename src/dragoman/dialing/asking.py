"""The life of a connection to a server: requests out, replies to whoever waits for them.

Requests are pipelined up to a bound and written while the socket takes them; past either, callers
wait. A reply that is late ends the connection, because everything behind it waits for it too, and
then all who wait are told: the late one that its time is up, the others that the connection is
lost.

    open ── reply late, bytes that do not parse, peer gone, `close` ──► closed

Which reply belongs to which request is the protocol's to say: `ask` is told the number of what was
sent, `deliver` that of what has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from dragoman.dialing.errors import ClientError, ConnectionLostError, RequestTimeoutError
from dragoman.errors import DragomanError

Reply = TypeVar("Reply")


class _Waiting(Generic[Reply]):
    """Someone who waits for a reply, or has given up while the reply is still due."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[Reply], timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.timer = timer


class AskingProtocol(asyncio.BufferedProtocol, Generic[Reply]):
    """The base of a protocol's link: override `get_buffer` and `take`."""

    def __init__(
        self,
        address: str,
        *,
        protocol: str,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        """`protocol` is what errors call the language that the server should speak."""
        self.address = address
        self._protocol = protocol
        self._loop = loop
        self._on_lost = on_lost
        self._slots = asyncio.Semaphore(in_flight_max)
        #: Requests leave in the order in which they were made: one that finds the connection
        #: writable again does not overtake those that wait for that.
        self._turn = asyncio.Lock()
        #: By the requests' numbers, oldest first.
        self._waiting: dict[int, _Waiting[Reply]] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._lost: ClientError | None = None

    # ---- for the protocol

    def take(self, count: int) -> None:
        """So many bytes were put into the buffer. Raises `DragomanError` for senseless ones."""
        raise NotImplementedError

    async def ask(self, send: Callable[[], int | None], timeout_s: float) -> Reply | None:
        """The reply to what `send` sends when it is its turn, or None when that has no number.

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
        self._waiting[number] = _Waiting(future, timer)
        # The slot is given back when the reply has come, not when the caller gives up: until then
        # the request is in flight.
        return await future

    def deliver(self, number: int, reply: Reply) -> None:
        waiting = self._waiting.pop(number)
        waiting.timer.cancel()
        self._slots.release()
        if not waiting.future.done():
            waiting.future.set_result(reply)

    # ---- for users

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._lost is None

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

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self.take(nbytes)
        except DragomanError as error:
            # Not only bytes that do not parse: one reply that cannot be trusted makes the rest of
            # the stream worthless.
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
        late = self._waiting.pop(number)
        self._slots.release()
        if not late.future.done():
            late.future.set_exception(
                RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s")
            )
        self.close(ConnectionLostError(f"connection to {self.address} was closed: a late reply"))

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


def before_sending(lost: ClientError) -> ClientError:
    """For what was not sent any more: the server cannot have acted on it."""
    error = type(lost)(str(lost))
    error.is_ambiguous = False
    return error
