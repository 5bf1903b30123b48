"""One connection to a broker: requests out, replies to whoever waits for them.

Requests are pipelined up to a bound and written while the socket takes them; past either, callers
wait. Replies come in the order of the requests. A reply that is late ends the connection, because
everything behind it waits for it too, and then all who wait are told: the late one that its time
is up, the others that the connection is lost.

    open ── reply late, bytes that do not parse, peer gone, `close` ──► closed
"""

from __future__ import annotations

import asyncio
from typing import cast

from dragoman.dialing.errors import ClientError, ConnectionLostError, RequestTimeoutError
from dragoman.errors import DragomanError
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_CLIENT_REPLY_BYTES_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection, Reply


class _Waiting:
    """Someone who waits for a reply."""

    __slots__ = ("future", "timer")

    def __init__(self, future: asyncio.Future[m.Message], timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.timer = timer


class Link(asyncio.BufferedProtocol):
    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        in_flight_max: int,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.address = address
        self._loop = loop
        self._connection = ClientConnection(client_id, KAFKA_CLIENT_REPLY_BYTES_MAX, scratch)
        self._slots = asyncio.Semaphore(in_flight_max)
        self._waiting: dict[int, _Waiting] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._lost: ClientError | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._lost is None

    async def request(self, message: m.Message, version: int, timeout_s: float) -> m.Message | None:
        """The reply; None for a produce that asks for none.

        Raises `EncodeError`, `ConnectionLostError`, `RequestTimeoutError`.
        """
        await self._slots.acquire()
        try:
            while not self._writable.is_set() and self._lost is None:
                await self._writable.wait()
            future = self._send(message, version, timeout_s)
        except BaseException:
            self._slots.release()
            raise
        if future is None:
            self._slots.release()
            return None
        # The slot is given back when the reply has come, not when the caller gives up: until then
        # the request is in flight.
        return await future

    def _send(
        self, message: m.Message, version: int, timeout_s: float
    ) -> asyncio.Future[m.Message] | None:
        if self._lost is not None:
            raise before_sending(self._lost)
        assert self._transport is not None
        correlation_id, frame = self._connection.send(message, version)
        self._transport.writelines(frame)
        if isinstance(message, m.ProduceRequest) and message.acks == 0:
            return None
        future: asyncio.Future[m.Message] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, self._expire, correlation_id, timeout_s)
        self._waiting[correlation_id] = _Waiting(future, timer)
        return future

    def close(self, error: ClientError | None = None) -> None:
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
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for reply in self._connection.buffer_updated(nbytes):
                self._deliver(reply)
        except DragomanError as error:
            # Not only bytes that do not parse: one reply that cannot be trusted makes the rest of
            # the stream worthless.
            self.close(ConnectionLostError(f"{self.address} does not speak Kafka: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._lost is None:
            reason = "closed by the broker" if error is None else (str(error) or repr(error))
            self._end(ConnectionLostError(f"connection to {self.address} was lost: {reason}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- replies

    def _deliver(self, reply: Reply) -> None:
        waiting = self._waiting.pop(reply.correlation_id)
        waiting.timer.cancel()
        self._slots.release()
        if not waiting.future.done():
            waiting.future.set_result(reply.message)

    def _expire(self, correlation_id: int, timeout_s: float) -> None:
        late = self._waiting.pop(correlation_id)
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


def before_sending(lost: ClientError) -> ClientError:
    """For a request that was not sent any more: the broker cannot have acted on it."""
    error = type(lost)(str(lost))
    error.is_ambiguous = False
    return error
