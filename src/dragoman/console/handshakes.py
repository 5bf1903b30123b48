"""TLS handshakes of browsers, bounded in number and time: each holds 300 KiB before anything is
known of its client. At the bound, the one that began first gives way.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Callable
from typing import Final

HANDSHAKES_MAX: Final = 100
HANDSHAKE_S: Final = 10.0


class Handshakes:
    def __init__(
        self,
        context: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`made` gives the protocol of an encrypted connection."""
        self._context = context
        self._made = made
        self._loop = loop
        self._begun: dict[_Handshake, asyncio.Task[None]] = {}
        self._failed = 0

    def __len__(self) -> int:
        return len(self._begun)

    def protocol(self) -> asyncio.Protocol:
        """For a connection that was accepted."""
        return _Handshake(self)

    def begin(self, handshake: _Handshake) -> None:
        if len(self._begun) >= HANDSHAKES_MAX:
            self._give_up(next(iter(self._begun)))
        self._begun[handshake] = self._loop.create_task(self._run(handshake))

    async def close(self) -> None:
        running = list(self._begun.values())
        for each in list(self._begun):
            self._give_up(each)
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, handshake: _Handshake) -> None:
        try:
            secured = await self._loop.start_tls(
                handshake.transport,
                handshake,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except OSError:
            secured = None
        # None, too, if the client has gone.
        if secured is None or handshake.is_lost:
            self._give_up(handshake)
            return
        del self._begun[handshake]
        handshake.hand_over(secured, self._made())

    def _give_up(self, handshake: _Handshake) -> None:
        task = self._begun.pop(handshake)
        if task is not asyncio.current_task():
            # Before the transport: it may have nothing to tell to a handshake yet.
            task.cancel()
        handshake.transport.abort()
        self._forget()

    def _forget(self) -> None:
        """Release what failed handshakes held: it is in cycles of few objects, which the collector
        would leave for long.
        """
        self._failed += 1
        if self._failed >= HANDSHAKES_MAX:
            self._failed = 0
            gc.collect()


class _Handshake(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, owner: Handshakes) -> None:
        self._owner = owner
        self.is_lost = False
        #: What has come behind the client's last message of the handshake.
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.begin(self)

    def data_received(self, data: bytes) -> None:
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True

    def hand_over(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(bytes(self._received))
