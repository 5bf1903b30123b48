"""Connections that clients keep: made when needed, made again after a loss, closed for good.

    idle ── `connected` ──► connecting ──► open ── lost ──► idle
                                │
                                └── failed ──► idle, for a pause that grows with every failure

A protocol says in `_open` how a connection is made: `dial`, and then its own negotiation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dragoman.client_core.addresses import Address
from dragoman.client_core.errors import ClientError, before_sending, unreachable
from dragoman.client_core.retry import RetryPolicy

if TYPE_CHECKING:
    # Only the type checker needs it; most clients start faster without the ports.
    from dragoman.world import Random


class Closable(Protocol):
    """What a kept connection has to know of its channel."""

    @property
    def is_open(self) -> bool: ...

    def close(self, error: ClientError | None = None) -> None: ...


AnyChannel = TypeVar("AnyChannel", bound=Closable)
AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.BufferedProtocol)


async def connect(
    address: Address, make: Callable[[asyncio.AbstractEventLoop], AnyProtocol]
) -> AnyProtocol:
    """A connected channel of those that `make` makes. Raises `OSError` or `ValueError`."""
    loop = asyncio.get_running_loop()
    channel = make(loop)
    await loop.create_connection(lambda: channel, address.host, address.port)
    return channel


async def dial(
    address: Address,
    make: Callable[[asyncio.AbstractEventLoop], AnyProtocol],
    timeout_s: float,
    *,
    resolve: Callable[[Address], Awaitable[Address]] | None = None,
) -> AnyProtocol:
    """A connected channel. `resolve` may put another address in place of the one that is named.

    Raises `UnreachableError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await connect(address if resolve is None else await resolve(address), make)
    except (OSError, ValueError) as error:
        # A time-out is an `OSError`; a name that no resolver could know is a `ValueError`.
        raise unreachable(address, error) from None


class KeptConnection(Generic[AnyChannel]):
    """The connection to one address. Owned by one event loop.

    With a retry policy, the next attempt waits for the policy's pause after a failed one; without,
    it is made at once.
    """

    def __init__(
        self, address: Address, policy: RetryPolicy | None = None, random: Random | None = None
    ) -> None:
        self.address = address
        self._policy = policy
        self._random = random
        self._connecting = asyncio.Lock()
        self._channel: AnyChannel | None = None
        self._failures = 0
        #: Time of the loop before which the connection is not used.
        self._not_before = 0.0
        self._closed_by: ClientError | None = None

    async def _open(self) -> AnyChannel:
        """Make a connection. Raises `UnreachableError`."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.is_open

    async def connected(self) -> AnyChannel:
        """The open channel. Raises `UnreachableError`, or the error of `close`."""
        channel = self._channel
        loop = asyncio.get_running_loop()
        if channel is not None and channel.is_open and loop.time() >= self._not_before:
            return channel
        async with self._connecting:
            self._refuse_if_closed()
            pause = self._not_before - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            if self._channel is None or not self._channel.is_open:
                self._channel = await self._opened(loop)
            return self._channel

    async def _opened(self, loop: asyncio.AbstractEventLoop) -> AnyChannel:
        try:
            channel = await self._open()
        except ClientError:
            self._failures += 1
            if self._policy is not None:
                pause = self._policy.pause_s(self._failures, self._random)
                self._not_before = loop.time() + pause
            raise
        if self._closed_by is not None:
            channel.close()
            self._refuse_if_closed()
        self._failures = 0
        return channel

    def rest(self, seconds: float) -> None:
        """Send nothing for this long: the server has asked for it."""
        self._not_before = asyncio.get_running_loop().time() + seconds

    def close(self, error: ClientError) -> None:
        """Close for good. Callers that wait for a reply, and all later ones, get this error."""
        self._closed_by = error
        if self._channel is not None:
            self._channel.close(error)

    def _refuse_if_closed(self) -> None:
        if self._closed_by is not None:
            raise before_sending(self._closed_by)
