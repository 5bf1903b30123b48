"""Settings of a client, what its commands look like, and its connections to one broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias

import msgspec

from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    unreachable,
)
from dragoman.errors import ConfigError
from dragoman.framing import Scratch
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.protocols.cursus.messages import Command
from dragoman.types import Buffer

DEFAULT_PORT = 9000
#: Of a command; those that are empty are left out.
Arguments: TypeAlias = Mapping[str, str | int]
Pushed: TypeAlias = Callable[[bytearray | ClientError], None]


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
    addresses = [
        each if ":" in each and not each.endswith("]") else f"{each}:{DEFAULT_PORT}"
        for each in found
    ]
    for each in addresses:
        host, _, port = each.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
            raise ConfigError(f"expected HOST:PORT, got {each!r}")
    return addresses


def encoded(
    word: str, arguments: Arguments, *, message: bytes | None = None, last: str = ""
) -> bytes:
    """The payload of a command. Raises `EncodeError`."""
    given = {name: _shown(value) for name, value in arguments.items() if value != ""}
    return codec.encode_command(Command(word=word, arguments=given, message=message, last=last))


def _shown(value: str | int) -> str:
    """The wire's words for what is true and false are not Python's."""
    return str(value).lower() if isinstance(value, bool) else str(value)


async def open_link(
    address: str, settings: CursusSettings, on_push: Pushed | None = None
) -> OrderedChannel:
    """`on_push` takes all that comes, and last why the connection was lost; without it, what comes
    are replies. Raises `UnreachableError`."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    def make() -> OrderedChannel:
        return OrderedChannel(
            address,
            frame_reader(Scratch()),
            protocol="Cursus",
            loop=loop,
            in_flight_max=settings.in_flight_max,
            is_push=lambda _frame: on_push is not None,
            on_push=on_push or _ignore,
            on_lost=on_push or _ignore,
        )

    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            _, link = await loop.create_connection(make, host.strip("[]"), int(port))
    except (OSError, TimeoutError, ValueError) as error:
        raise unreachable(address, error) from None
    return link


def _ignore(_pushed: bytearray | ClientError) -> None:
    """Whoever waits for a reply is told there."""


class Peer:
    def __init__(self, address: str, settings: CursusSettings) -> None:
        self.address = address
        self._settings = settings
        self._connecting = asyncio.Lock()
        self._link: OrderedChannel | None = None
        self._is_closed = False

    async def ask(self, payload: Buffer, wait_s: float = 0.0) -> bytes:
        """The payload of the reply. Raises the errors of connections."""
        link = self._link
        if link is None or not link.is_open:
            link = await self._connected()
        timeout_s = self._settings.request_timeout_s + wait_s
        return bytes(await link.request(codec.frame(payload), timeout_s))

    async def _connected(self) -> OrderedChannel:
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


class Pushes:
    """What comes on a connection whose broker sends more than one frame, one after the other."""

    def __init__(
        self, link: OrderedChannel, frames: asyncio.Queue[bytearray | ClientError]
    ) -> None:
        self.link = link
        self._frames = frames

    async def next(self, timeout_s: float) -> bytearray:
        """Raises `ConnectionLostError`, also when nothing comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._frames.get()
        except TimeoutError:
            raise ConnectionLostError(f"{self.link.address} is silent") from None
        if isinstance(frame, ClientError):
            raise frame
        return frame


@asynccontextmanager
async def listening(
    address: str, settings: CursusSettings, payload: Buffer
) -> AsyncIterator[Pushes]:
    """What a command brings, on a connection of its own."""
    frames: asyncio.Queue[bytearray | ClientError] = asyncio.Queue()
    link = await open_link(address, settings, frames.put_nowait)
    try:
        link.send(codec.frame(payload))
        yield Pushes(link, frames)
    finally:
        link.close()
