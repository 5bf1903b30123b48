"""Settings of a client, and its connection to one broker, made when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from dragoman.dialing.errors import ClientClosedError, ClientError, unreachable
from dragoman.dialing.link import Link
from dragoman.errors import ConfigError
from dragoman.framing import Scratch
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.types import Buffer

DEFAULT_PORT = 9000


class CursusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds."""

    connect_timeout_s: float = 10.0
    #: From a request to its reply.
    request_timeout_s: float = 30.0
    #: How long a call is tried again while brokers cannot be reached.
    operation_timeout_s: float = 60.0
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0
    #: Unanswered requests on one connection. The next one waits.
    in_flight_max: int = 64
    #: How batches are compressed: `none`, or a name of `dragoman.client.cursus.register`.
    compression: str = "none"

    def backoff_s(self, failures: int) -> float:
        return min(self.backoff_max_s, self.backoff_first_s * 2.0 ** min(failures - 1, 30))


def parse_addresses(text: str) -> list[str]:
    """`HOST[:PORT],…`. Raises `ConfigError`."""
    found = [each.strip() for each in text.split(",") if each.strip()]
    if not found:
        raise ConfigError("expected at least one HOST:PORT")
    addresses = [each if ":" in each else f"{each}:{DEFAULT_PORT}" for each in found]
    for each in addresses:
        host, _, port = each.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
            raise ConfigError(f"expected HOST:PORT, got {each!r}")
    return addresses


async def open_link(
    address: str,
    settings: CursusSettings,
    *,
    is_push: Callable[[bytearray], bool] = lambda _frame: False,
    on_push: Callable[[bytearray], None] = lambda _frame: None,
    on_lost: Callable[[ClientError], None] = lambda _error: None,
) -> Link:
    """Raises `UnreachableError`."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    def make() -> Link:
        return Link(
            address,
            frame_reader(Scratch()),
            protocol="Cursus",
            loop=loop,
            in_flight_max=settings.in_flight_max,
            is_push=is_push,
            on_push=on_push,
            on_lost=on_lost,
        )

    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            _, link = await loop.create_connection(make, host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError) as error:
        raise unreachable(address, error) from None
    return link


class Peer:
    def __init__(self, address: str, settings: CursusSettings) -> None:
        self.address = address
        self._settings = settings
        self._connecting = asyncio.Lock()
        self._link: Link | None = None
        self._is_closed = False

    async def ask(self, payload: Buffer, wait_s: float = 0.0) -> bytes:
        """The payload of the reply. Raises the errors of connections."""
        link = self._link
        if link is None or not link.is_open:
            link = await self._connected()
        timeout_s = self._settings.request_timeout_s + wait_s
        return bytes(await link.request(codec.frame(payload), timeout_s))

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._is_closed:
                raise ClientClosedError("the client is closed")
            if self._link is None or not self._link.is_open:
                self._link = await open_link(self.address, self._settings)
            return self._link

    def close(self) -> None:
        self._is_closed = True
        if self._link is not None:
            self._link.close(ClientClosedError("the client is closed"))
