"""Connections to one broker: one for requests, and one for each stream of frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from dragoman.client_core.addresses import Address, parse_address
from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.connection import KeptConnection, dial
from dragoman.client_core.errors import ClientError, ConnectionLostError, unreachable
from dragoman.errors import ConfigError
from dragoman.framing import Scratch
from dragoman.protocols.cursus import codec
from dragoman.protocols.cursus.client.settings import CursusSettings
from dragoman.protocols.cursus.connection import frame_reader
from dragoman.types import Buffer

_OnPush: TypeAlias = Callable[[bytearray | ClientError], None]


def broker_address(text: str) -> Address:
    """An address that a broker has given. Raises `UnreachableError`."""
    try:
        return parse_address(text)
    except ConfigError as error:
        raise unreachable(text, error) from None


async def _open_channel(
    address: Address, settings: CursusSettings, on_push: _OnPush | None = None
) -> OrderedChannel:
    """`on_push` takes every frame, and last the loss of the connection; without it, frames are
    replies. Raises `UnreachableError`."""

    def make(loop: asyncio.AbstractEventLoop) -> OrderedChannel:
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

    return await dial(address, make, settings.connect_timeout_s)


def _ignore(_pushed: bytearray | ClientError) -> None:
    """A caller that waits for a reply gets the error there."""


class Broker(KeptConnection[OrderedChannel]):
    def __init__(self, address: Address, settings: CursusSettings) -> None:
        super().__init__(address)
        self._settings = settings

    async def ask(self, payload: Buffer, wait_s: float = 0.0) -> bytes:
        """The payload of the reply. Raises the errors of connections."""
        channel = await self.connected()
        timeout_s = self._settings.request_timeout_s + wait_s
        return bytes(await channel.request(codec.frame(payload), timeout_s))

    async def _open(self) -> OrderedChannel:
        return await _open_channel(self.address, self._settings)


class Stream:
    """The frames of a connection whose broker sends more than one, one after the other."""

    def __init__(
        self, channel: OrderedChannel, frames: asyncio.Queue[bytearray | ClientError]
    ) -> None:
        self.channel = channel
        self._frames = frames

    async def next(self, timeout_s: float) -> bytearray:
        """Raises `ConnectionLostError`, also when nothing comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._frames.get()
        except TimeoutError:
            raise ConnectionLostError(f"{self.channel.address} is silent") from None
        if isinstance(frame, ClientError):
            raise frame
        return frame


@asynccontextmanager
async def open_stream(
    address: Address, settings: CursusSettings, payload: Buffer
) -> AsyncIterator[Stream]:
    """The frames that answer a command, on a connection of their own."""
    frames: asyncio.Queue[bytearray | ClientError] = asyncio.Queue()
    channel = await _open_channel(address, settings, frames.put_nowait)
    try:
        channel.send(codec.frame(payload))
        yield Stream(channel, frames)
    finally:
        channel.close()
