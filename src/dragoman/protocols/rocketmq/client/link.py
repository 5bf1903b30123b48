"""One connection to a name server or broker: requests in both directions, replies in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dragoman.client_core.channel import Channel
from dragoman.client_core.errors import ClientError, ConnectionLostError
from dragoman.framing import Scratch
from dragoman.limits import ROCKETMQ_CLIENT_LATE_REPLIES_MAX
from dragoman.protocols.rocketmq.codec import Command, decode, encode_parts
from dragoman.protocols.rocketmq.connection import Connection

_OPAQUE_MASK: Final = 0x7FFFFFFF


class Link(Channel[Command]):
    def __init__(
        self,
        address: str,
        *,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        on_request: Callable[[Link, Command], None],
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        super().__init__(
            address, protocol="RocketMQ", loop=loop, in_flight_max=in_flight_max, on_lost=on_lost
        )
        self._reader = Connection(scratch).reader
        self._on_request = on_request
        self._opaque = 0
        #: Replies that were late since anything came.
        self._late_replies = 0

    async def request(self, command: Command, timeout_s: float) -> Command | None:
        """The response; None for one-way requests.

        Raises `EncodeError`, `ConnectionLostError`, `RequestTimeoutError`.
        """
        return await self.ask(lambda: self._send(command), timeout_s)

    def _send(self, command: Command) -> int | None:
        self._opaque = command.opaque = (self._opaque + 1) & _OPAQUE_MASK
        self.write(command)
        return None if command.is_one_way else command.opaque

    def write(self, command: Command) -> None:
        """Send what has no reply, such as an answer. Raises `EncodeError`."""
        if self.is_open:
            assert self._transport is not None
            self._transport.writelines(encode_parts(command))

    @property
    def local_ip(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if name else ""

    # ---- what the transport calls

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def take(self, count: int) -> None:
        self._late_replies = 0
        for frame in self._reader.buffer_updated(count):
            command = decode(frame)
            if not command.is_response:
                self._on_request(self, command)
            elif command.opaque in self._waiting:
                self.deliver(command.opaque, command)
            # Else its time was up, and nobody waits for it any more.

    def late(self) -> None:
        """Replies do not wait for each other: a late one says little about the rest."""
        self._late_replies += 1
        if self._late_replies >= ROCKETMQ_CLIENT_LATE_REPLIES_MAX:
            reason = f"connection to {self.address} was closed: nothing comes from there"
            self.close(ConnectionLostError(reason))
