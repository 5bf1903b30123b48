"""Connections that clients keep: made when needed, made again after a loss, closed for good.

    idle ── `connected` ──► connecting ──► open ── lost ──► idle
                                │
                                └── failed ──► idle, for a pause that grows with every failure

A protocol implements `_open`, which makes a connection: `dial`, and then its own negotiation. Its
settings extend `ConnectionSettings` or `RetrySettings`; times are in seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from dragoman.client_core.addresses import Address
from dragoman.client_core.errors import ClientError, before_sending, unreachable
from dragoman.client_core.retry import RetryPolicy
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    # Only the type checker needs it; most clients start faster without the ports.
    from dragoman.world import Random


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    connect_timeout_s: float = 5.0
    #: Between a request and its reply. A later reply closes the connection.
    request_timeout_s: float = 30.0
    #: Maximum number of unanswered requests on one connection. The next request waits.
    in_flight_max: int = 64
    #: None: connections are not encrypted.
    tls: TlsSettings | None = None


class RetrySettings(ConnectionSettings, frozen=True, kw_only=True):
    #: Time-out of one call with all its retries.
    operation_timeout_s: float = 60.0
    #: Pause before the first retry; it doubles with every retry, up to the maximum.
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0

    @property
    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(self.operation_timeout_s, self.backoff_first_s, self.backoff_max_s)

    def backoff_s(self, failures: int, random: Random | None = None) -> float:
        """How long to wait after this many failures in a row (1: the first)."""
        return self.retry_policy.pause_s(failures, random)


def require_positive_numbers(settings: msgspec.Struct) -> None:
    """Check that every number is above zero. Raises `ConfigError`."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if type(value) in (int, float) and value <= 0:
            raise ConfigError(f"{name}: expected a positive number, got {value}")


class Closable(Protocol):
    """What a kept connection requires of its channel."""

    @property
    def is_open(self) -> bool: ...

    def close(self, error: ClientError | None = None) -> None: ...


AnyChannel = TypeVar("AnyChannel", bound=Closable)
AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.BufferedProtocol)


async def connect(
    address: Address,
    make: Callable[[asyncio.AbstractEventLoop], AnyProtocol],
    tls: TlsSettings | None = None,
) -> AnyProtocol:
    """Connect a channel made by `make`. Raises `OSError` or `ValueError`, and `ConfigError` for
    certificates that cannot be used.
    """
    loop = asyncio.get_running_loop()
    channel = make(loop)
    host, port = address
    if tls is None:
        await loop.create_connection(lambda: channel, host, port)
    else:
        context, name = tls.context(), tls.server_name or host
        await loop.create_connection(lambda: channel, host, port, ssl=context, server_hostname=name)
    return channel


async def dial(
    address: Address,
    make: Callable[[asyncio.AbstractEventLoop], AnyProtocol],
    timeout_s: float,
    *,
    tls: TlsSettings | None = None,
    resolve: Callable[[Address], Awaitable[Address]] | None = None,
) -> AnyProtocol:
    """Connect a channel made by `make`. `resolve` may replace the address.

    Raises `UnreachableError`, and `ConfigError` for certificates that cannot be used.
    """
    try:
        async with asyncio.timeout(timeout_s):
            found = address if resolve is None else await resolve(address)
            return await connect(found, make, tls)
    except (OSError, ValueError) as error:
        # A time-out is an `OSError`; a name that cannot be a host name is a `ValueError`.
        raise unreachable(address, error) from None


class KeptConnection(Generic[AnyChannel]):
    """The connection to one address. Owned by one event loop.

    With a retry policy, an attempt that follows a failed one waits for the policy's pause. Without
    one there is no pause.
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
        #: Loop time before which nothing is sent.
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
        """Send nothing for this long, as the server has requested."""
        self._not_before = asyncio.get_running_loop().time() + seconds

    def close(self, error: ClientError) -> None:
        """Close for good. Callers that wait for a reply, and all later callers, get this error."""
        self._closed_by = error
        if self._channel is not None:
            self._channel.close(error)

    def _refuse_if_closed(self) -> None:
        if self._closed_by is not None:
            raise before_sending(self._closed_by)
