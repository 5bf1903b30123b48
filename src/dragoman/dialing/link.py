"""One connection to a server that answers in the order of the requests, without numbering them.

What the server sends unasked (records pushed, keep-alives) is told from replies by the protocol and
handed on as it comes; a receiver that cannot keep up stops the reading, so that the server's own
bound on pushes takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.dialing.asking import AskingProtocol, before_sending
from dragoman.dialing.errors import ClientError
from dragoman.errors import RemoteProtocolError
from dragoman.framing import FrameReader
from dragoman.types import Buffer


class Link(AskingProtocol[bytearray]):
    """`is_push` tells frames that answer nothing; they go to `on_push`, in order."""

    def __init__(
        self,
        address: str,
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
        self._asked = 0

    async def request(self, frame: Buffer, timeout_s: float) -> bytearray:
        """The reply's frame. Raises `ConnectionLostError` or `RequestTimeoutError`."""

        def send() -> int:
            self.send(frame)
            self._asked += 1
            return self._asked

        reply = await self.ask(send, timeout_s)
        assert reply is not None
        return reply

    def send(self, frame: Buffer) -> None:
        """Send what has no reply. Raises `ConnectionLostError`."""
        if self._lost is not None:
            raise before_sending(self._lost)
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
                raise RemoteProtocolError("a reply that nobody waits for")
