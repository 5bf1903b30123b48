"""Connections to servers, and which of them leads what.

The rule of mlog's clients (section 6): on codes 3, 4 and 11, and on every failure of the network,
what was known of the leader is forgotten; the addresses are asked one after the other who leads
now, and the call is made again there. Every other code is the caller's.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    unreachable,
)
from dragoman.errors import ConfigError, DragomanError
from dragoman.framing import Scratch
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.client.errors import MlogError, NotLeaderError, error_of
from dragoman.protocols.mlog.client.settings import ClientSettings, split_address
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.errors import ErrorCode

Reply = TypeVar("Reply", bound=m.Message)


class Peer:
    """One server; connected when it is first asked, and again after the connection was lost."""

    def __init__(self, address: str, settings: ClientSettings, scratch: Scratch) -> None:
        self.address = address
        self._settings = settings
        self._scratch = scratch
        self._opening = asyncio.Lock()
        self._link: OrderedChannel | None = None
        self._connection: Connection | None = None

    async def ask(self, request: m.Message, kind: type[Reply]) -> Reply:
        """Raises `MlogError`, `UnreachableError` and what `Link.request` raises."""
        link, connection = await self._open()
        frame = await link.request(connection.send(request), self._settings.request_timeout_s)
        try:
            reply = connection.receive(frame)
        except DragomanError as error:
            wrong = ConnectionLostError(f"{self.address} does not speak mlog: {error}")
            link.close(wrong)
            raise wrong from None
        if isinstance(reply, m.RPCError):
            raise error_of(reply)
        if not isinstance(reply, kind):
            wrong = ConnectionLostError(f"{self.address} answered with {type(reply).__name__}")
            link.close(wrong)
            raise wrong
        return reply

    async def _open(self) -> tuple[OrderedChannel, Connection]:
        async with self._opening:
            if self._link is None or self._connection is None or not self._link.is_open:
                self._connection = Connection(Role.CLIENT, self._scratch, self._settings.encoding)
                self._link = await self._connect(self._connection)
            return self._link, self._connection

    async def _connect(self, connection: Connection) -> OrderedChannel:
        loop = asyncio.get_running_loop()
        host, port = split_address(self.address)
        link = OrderedChannel(
            self.address,
            connection.reader,
            protocol="mlog",
            loop=loop,
            in_flight_max=self._settings.in_flight_max,
        )
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                host = await _reachable_name(loop, host, port)
                await loop.create_connection(lambda: link, host, port)
        except (OSError, TimeoutError) as error:
            raise unreachable(self.address, error) from None
        return link

    def close(self) -> None:
        if self._link is not None:
            self._link.close(ClientClosedError("the client was closed"))


async def _reachable_name(loop: asyncio.AbstractEventLoop, host: str, port: int) -> str:
    """Names like `node1`, which are known inside a cluster only, stand for this machine outside."""
    if host.startswith("node"):
        try:
            await loop.getaddrinfo(host, port)
        except OSError:
            return "127.0.0.1"
    return host


class Leaders:
    def __init__(self, addresses: tuple[str, ...], settings: ClientSettings) -> None:
        self.settings = settings
        self._addresses = addresses
        self._scratch = Scratch()
        self._peers: dict[str, Peer] = {}
        #: Of topics, and of the cluster under None.
        self._known: dict[str | None, str] = {}
        self._finding = asyncio.Lock()
        self._is_closed = False

    async def ask(self, topic: str | None, request: m.Message, kind: type[Reply]) -> Reply:
        """Ask the leader of a topic, or of the cluster."""
        return await self._peer(await self._leader(topic)).ask(request, kind)

    async def ask_anyone(self, request: m.Message, kind: type[Reply]) -> Reply:
        """Ask the addresses, one after the other, until one answers."""
        refusal: MlogError | None = None
        failure: ClientError | None = None
        for address in self._addresses:
            try:
                return await self._peer(address).ask(request, kind)
            except MlogError as error:
                refusal = error
            except ClientError as error:
                failure = error
        # What a server says is better than that another one said nothing.
        told = refusal or failure
        assert told is not None
        raise told

    def forget(self, topic: str | None) -> None:
        self._known.pop(topic, None)

    async def _leader(self, topic: str | None) -> str:
        known = self._known.get(topic)
        if known is not None:
            return known
        async with self._finding:
            # Somebody else may have found it meanwhile.
            known = self._known.get(topic)
            if known is None:
                known = self._known[topic] = await self._find(topic)
            return known

    async def _find(self, topic: str | None) -> str:
        if topic is None:
            raft = await self.ask_anyone(m.FindRaftLeader(), m.FindRaftLeaderResp)
            address = raft.raft_leader_addr
        else:
            found = await self.ask_anyone(m.FindTopicLeader(topic=topic), m.FindTopicLeaderResp)
            address = found.leader_addr
        try:
            split_address(address)
        except ConfigError:
            raise NotLeaderError(
                ErrorCode.RAFT_LEADER_UNAVAILABLE, f"the leader has no address: {address!r}"
            ) from None
        return address

    def _peer(self, address: str) -> Peer:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(address, self.settings, self._scratch)
        return peer

    def close(self) -> None:
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()
