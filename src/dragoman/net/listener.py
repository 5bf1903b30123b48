"""Opening a listener: bind, accept, and the address that clients on it get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from dragoman.config.listeners import Address, Listener
from dragoman.errors import ConfigError


class AddressTakenError(ConfigError):
    """The address of a listener cannot be bound."""


#: Loop turns until an accepted connection reaches its protocol.
ACCEPT_TURNS = 2


class Closed(asyncio.Protocol):
    """Closes a connection without a session."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class OpenListener:
    """A bound listener, which accepts connections once it is started."""

    def __init__(self, listener: Listener, server: asyncio.Server, bound: Address) -> None:
        self.listener = listener
        self.bound = bound
        self._server = server

    @property
    def name(self) -> str:
        return self.listener.name

    @property
    def advertised(self) -> Address | None:
        """None: the local address of each connection."""
        if self.listener.advertised is not None:
            return self.listener.advertised
        return None if self.bound.is_wildcard else self.bound

    def address_for(self, local_address: tuple[str, int]) -> tuple[str, int]:
        """Host and port for a client whose connection, here or on another listener of this node,
        has this local address.
        """
        advertised = self.advertised
        if advertised is not None:
            return advertised.host, advertised.port
        return local_address[0], self.bound.port

    async def serve(self) -> None:
        await self._server.start_serving()

    def pause(self) -> None:
        """Stop accepting; accepted connections reach their protocols within `ACCEPT_TURNS` loop
        turns.

        Call it that long before `close`: closing asyncio's server loses accepted connections that
        have not reached their protocols.
        """
        loop = self._server.get_loop()
        for each in self._server.sockets:
            # uvloop may have closed its socket already; it then has no number.
            if (number := each.fileno()) >= 0:
                # No effect on uvloop, whose servers have neither such a reader nor such a gap.
                loop.remove_reader(number)

    def close(self) -> None:
        """Release the port; connections stay."""
        self._server.close()

    async def closed(self) -> None:
        """Returns when nothing of it is left but accepted connections."""


async def open_listener(
    listener: Listener,
    loop: asyncio.AbstractEventLoop,
    make_protocol: Callable[[], asyncio.BaseProtocol],
    backlog: int,
) -> OpenListener:
    """Raises `AddressTakenError`."""
    host, port = listener.bind.host, listener.bind.port
    try:
        server = await loop.create_server(
            make_protocol, host, port, backlog=backlog, start_serving=False
        )
    except OSError as error:
        # The loop repeats the address in its own text, and from Python 3.13 on the number.
        reason = (error.strerror or str(error)).rpartition(": ")[2].rpartition("] ")[2]
        raise AddressTakenError(
            f"listener {listener.name}: cannot bind {listener.bind}: {reason}"
        ) from None
    bound = server.sockets[0].getsockname()
    # The host as configured: a name stays a name in replies to clients.
    return OpenListener(listener, server, Address(host, bound[1]))
