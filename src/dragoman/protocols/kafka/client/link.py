"""One connection to a broker: messages out, replies by their correlation ids."""

from __future__ import annotations

import asyncio

from dragoman.client_core.channel import Channel
from dragoman.framing import Scratch
from dragoman.limits import KAFKA_CLIENT_REPLY_BYTES_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.connection import ClientConnection


class Link(Channel[m.Message]):
    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        in_flight_max: int,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(address, protocol="Kafka", loop=loop, in_flight_max=in_flight_max)
        self._connection = ClientConnection(client_id, KAFKA_CLIENT_REPLY_BYTES_MAX, scratch)

    async def request(self, message: m.Message, version: int, timeout_s: float) -> m.Message | None:
        """The reply; None for a produce that asks for none.

        Raises `EncodeError`, `ConnectionLostError`, `RequestTimeoutError`.
        """
        return await self.ask(lambda: self._send(message, version), timeout_s)

    def _send(self, message: m.Message, version: int) -> int | None:
        assert self._transport is not None
        correlation_id, frame = self._connection.send(message, version)
        self._transport.writelines(frame)
        has_reply = not (isinstance(message, m.ProduceRequest) and message.acks == 0)
        return correlation_id if has_reply else None

    # ---- what the transport calls

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def take(self, count: int) -> None:
        for reply in self._connection.buffer_updated(count):
            self.deliver(reply.correlation_id, reply.message)
