"""A connection's bytes: between a transport and the session that understands them.

The session is given a buffer's worth of bytes at a time and hands back buffers to send. Reading
stops while the peer does not take what was sent, while the session asks for it (enough read ahead)
and while the node is over its memory budget; each reason is kept apart, and reading goes on when
none is left.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from enum import Flag, auto
from typing import Protocol, cast

from dragoman.errors import RemoteProtocolError
from dragoman.limits import SEND_BUFFER_BYTES_MAX
from dragoman.net.admission import MemoryBudget
from dragoman.types import Buffer

log = logging.getLogger("dragoman.net")
#: Small replies are joined into one buffer; larger ones are handed over piece by piece.
_JOIN_BYTES_MAX = 16 << 10


class Session(Protocol):
    """One connection as its protocol sees it."""

    def get_buffer(self, size_hint: int) -> memoryview: ...

    def buffer_updated(self, count: int) -> None:
        """Bytes arrived. Raises `RemoteProtocolError` for bytes that the protocol forbids."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Memory held by a message that has not arrived completely."""
        ...

    def writable(self) -> None:
        """The peer takes replies again."""
        ...

    def closed(self) -> None:
        """The connection is gone: let go of everything that waits for it."""
        ...


class Reason(Flag):
    """Why a channel does not read at the moment."""

    NONE = 0
    PEER_IS_SLOW = auto()
    READ_AHEAD = auto()
    NO_MEMORY = auto()


class Channels:
    """All open connections of a node, and what they share."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.open: dict[Channel, None] = {}
        self.accepted = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def close_idle(self, before: float) -> int:
        """Close connections that have been silent since `before`; returns how many."""
        idle = [each for each in self.open if each.last_active < before]
        for channel in idle:
            channel.close()
        return len(idle)

    def close_all(self) -> None:
        for channel in list(self.open):
            channel.close()


class Channel(asyncio.BufferedProtocol):
    __slots__ = (
        "_channels",
        "_loop",
        "_make_session",
        "_reasons",
        "_session",
        "_transport",
        "is_closing",
        "is_writable",
        "last_active",
        "local_address",
        "peer_address",
    )

    def __init__(
        self,
        channels: Channels,
        make_session: Callable[[Channel], Session],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._channels = channels
        self._make_session = make_session
        self._loop = loop
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._reasons = Reason.NONE
        self.is_writable = True
        self.is_closing = False
        self.last_active = 0.0
        self.local_address: tuple[str, int] = ("", 0)
        self.peer_address: tuple[str, int] = ("", 0)

    # ---- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES_MAX)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_address = tuple(transport.get_extra_info("sockname") or ("", 0))[:2]
        self.peer_address = tuple(transport.get_extra_info("peername") or ("", 0))[:2]
        self.last_active = self._loop.time()
        self._channels.open[self] = None
        self._channels.accepted += 1
        self._session = self._make_session(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self._session is not None
        return self._session.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._loop.time()
        self._channels.bytes_in += nbytes
        session = self._session
        if session is None or self.is_closing:
            return
        try:
            session.buffer_updated(nbytes)
        except RemoteProtocolError as error:
            log.info("closing %s:%d: %s", *self.peer_address, error)
            self.close()
            return
        if self._channels.budget.is_exhausted and not session.pending_bytes:
            # Frames that are arriving may finish: stopping them would never free their memory.
            self.pause(Reason.NO_MEMORY)
            self._channels.budget.wait(self)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_closing = True
        self._channels.open.pop(self, None)
        self._channels.budget.forget(self)
        session, self._session = self._session, None
        self._transport = None
        if session is not None:
            session.closed()

    def pause_writing(self) -> None:
        self.is_writable = False
        self.pause(Reason.PEER_IS_SLOW)

    def resume_writing(self) -> None:
        self.is_writable = True
        self.unpause(Reason.PEER_IS_SLOW)
        if self._session is not None:
            self._session.writable()

    # ---- from the session

    def send(self, buffers: list[Buffer]) -> None:
        transport = self._transport
        if transport is None or self.is_closing:
            return
        size = sum(map(len, buffers))
        self._channels.bytes_out += size
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif size <= _JOIN_BYTES_MAX:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def pause(self, reason: Reason) -> None:
        if not self._reasons and self._transport is not None:
            self._transport.pause_reading()
        self._reasons |= reason

    def unpause(self, reason: Reason) -> None:
        if not self._reasons:
            return
        self._reasons &= ~reason
        if not self._reasons and self._transport is not None and not self.is_closing:
            self._transport.resume_reading()

    def resume(self) -> None:
        """There is memory again."""
        self.unpause(Reason.NO_MEMORY)

    def close(self) -> None:
        """Send what was handed over, then close."""
        if not self.is_closing and self._transport is not None:
            self.is_closing = True
            self._transport.close()
