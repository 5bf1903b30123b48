"""Connections to mlog servers, and the leaders of topics.

The rule of mlog's clients (section 6): on codes 3, 4 and 11, and on every network failure, the
client forgets the leader. It asks the addresses one after the other for the new leader, and repeats
the call there. Every other code is raised to the caller.

Errors of the server's replies (`client_core.errors` has those of connections):

    ClientError
      MlogError                 the server refused; `number` is mlog's code
        TopicNotFoundError      3                                             retriable
        NotLeaderError          4, 11: another node leads, or none yet        retriable
        NoDataError             6: there is no record at this offset
        CommitRefusedError      7
        TopicExistsError        12
        TooFewNodesError        13
        AckModeError            15
        CatchUpTimeoutError     16: appended, but not on all replicas in time
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from dragoman.client_core.addresses import Address, parse_address
from dragoman.client_core.channel import OrderedChannel
from dragoman.client_core.connection import (
    KeptConnection,
    RetrySettings,
    dial,
    require_positive_numbers,
)
from dragoman.client_core.errors import ClientClosedError, ClientError, ConnectionLostError
from dragoman.errors import ConfigError, DragomanError
from dragoman.framing import Scratch
from dragoman.protocols.mlog import messages as m
from dragoman.protocols.mlog.connection import Connection, Role
from dragoman.protocols.mlog.constants import Encoding
from dragoman.protocols.mlog.errors import ErrorCode
from dragoman.protocols.mlog.messages import RPCError


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Settings of an mlog client. Times are in seconds. Servers may take up to 30 s for a reply."""

    #: Every server understands JSON.
    encoding: Encoding = Encoding.JSON
    #: How long calls on an unknown topic are retried, because nodes may learn about a new topic
    #: late.
    missing_topic_timeout_s: float = 1.0
    #: Pause of a consumer that has read everything, as in the original.
    poll_interval_s: float = 0.5
    #: Whether records are retried if the connection breaks before the reply. If so, they may be
    #: stored twice; if not, they may be stored although an error was raised.
    repeats_produce: bool = True
    in_flight_max: int = 128

    def __post_init__(self) -> None:
        require_positive_numbers(self)


Reply = TypeVar("Reply", bound=m.Message)


class _Channel(OrderedChannel):
    """A connection, with the state of its two codecs."""

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.codec = Connection(Role.CLIENT, scratch, settings.encoding)
        super().__init__(
            address,
            self.codec.reader,
            protocol="mlog",
            loop=loop,
            in_flight_max=settings.in_flight_max,
        )


class Server(KeptConnection[_Channel]):
    def __init__(self, address: Address, settings: ClientSettings, scratch: Scratch) -> None:
        super().__init__(address)
        self._settings = settings
        self._scratch = scratch

    async def ask(self, request: m.Message, kind: type[Reply]) -> Reply:
        """Raises `MlogError` and the errors of connections."""
        channel = await self.connected()
        sent = channel.codec.send(request)
        frame = await channel.request(sent, self._settings.request_timeout_s)
        try:
            reply = channel.codec.receive(frame)
        except DragomanError as error:
            wrong = ConnectionLostError(f"{self.address} is not an mlog server: {error}")
            channel.close(wrong)
            raise wrong from None
        if isinstance(reply, m.RPCError):
            raise error_of(reply)
        if not isinstance(reply, kind):
            wrong = ConnectionLostError(f"{self.address} answered with {type(reply).__name__}")
            channel.close(wrong)
            raise wrong
        return reply

    async def _open(self) -> _Channel:
        return await dial(
            self.address,
            lambda loop: _Channel(self.address, self._settings, self._scratch, loop),
            self._settings.connect_timeout_s,
            tls=self._settings.tls,
            resolve=_reachable,
        )


async def _reachable(address: Address) -> Address:
    """The address to connect to. Outside a cluster, its node names such as `node1` do not resolve
    and are replaced by this machine.
    """
    if address.host.startswith("node"):
        try:
            await asyncio.get_running_loop().getaddrinfo(*address)
        except OSError:
            return Address("127.0.0.1", address.port)
    return address


class Leaders:
    def __init__(self, addresses: tuple[Address, ...], settings: ClientSettings) -> None:
        self._settings = settings
        self._addresses = addresses
        self._scratch = Scratch()
        self._servers: dict[Address, Server] = {}
        #: The leaders by topic; under None, the cluster's leader.
        self._known: dict[str | None, Address] = {}
        self._finding = asyncio.Lock()
        self._is_closed = False

    async def ask(self, topic: str | None, request: m.Message, kind: type[Reply]) -> Reply:
        """Send a request to the leader of a topic or, with None, of the cluster. An error drops the
        cached leader.
        """
        try:
            return await self._server(await self._leader(topic)).ask(request, kind)
        except ClientError:
            self.forget(topic)
            raise

    def forget(self, topic: str | None) -> None:
        self._known.pop(topic, None)

    async def _ask_any(self, request: m.Message, kind: type[Reply]) -> Reply:
        """Send a request to one address after another, until one answers."""
        refusal: MlogError | None = None
        failure: ClientError | None = None
        for address in self._addresses:
            try:
                return await self._server(address).ask(request, kind)
            except MlogError as error:
                refusal = error
            except ClientError as error:
                failure = error
        # A refusal is more informative than a server that does not answer.
        worst = refusal or failure
        assert worst is not None
        raise worst

    async def _leader(self, topic: str | None) -> Address:
        known = self._known.get(topic)
        if known is not None:
            return known
        async with self._finding:
            # Another call may have found it in the meantime.
            known = self._known.get(topic)
            if known is None:
                known = self._known[topic] = await self._find(topic)
            return known

    async def _find(self, topic: str | None) -> Address:
        if topic is None:
            raft = await self._ask_any(m.FindRaftLeader(), m.FindRaftLeaderResp)
            text = raft.raft_leader_addr
        else:
            found = await self._ask_any(m.FindTopicLeader(topic=topic), m.FindTopicLeaderResp)
            text = found.leader_addr
        try:
            return parse_address(text)
        except ConfigError:
            raise NotLeaderError(
                ErrorCode.RAFT_LEADER_UNAVAILABLE, f"the leader has no address: {text!r}"
            ) from None

    def _server(self, address: Address) -> Server:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(address, self._settings, self._scratch)
        return server

    def close(self) -> None:
        self._is_closed = True
        for server in self._servers.values():
            server.close(ClientClosedError("the client was closed"))


class MlogError(ClientError):
    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class TopicNotFoundError(MlogError):
    retriable = True


class NotLeaderError(MlogError):
    retriable = True


class NoDataError(MlogError): ...


class CommitRefusedError(MlogError): ...


class TopicExistsError(MlogError): ...


class TooFewNodesError(MlogError): ...


class AckModeError(MlogError): ...


class CatchUpTimeoutError(MlogError):
    is_ambiguous = True


_CLASSES: Final[dict[int, type[MlogError]]] = {
    ErrorCode.TOPIC_NOT_FOUND: TopicNotFoundError,
    ErrorCode.NOT_TOPIC_LEADER: NotLeaderError,
    ErrorCode.RAFT_LEADER_UNAVAILABLE: NotLeaderError,
    ErrorCode.READ_OFFSET: NoDataError,
    ErrorCode.COMMIT_OFFSET: CommitRefusedError,
    ErrorCode.TOPIC_EXISTS: TopicExistsError,
    ErrorCode.NOT_ENOUGH_NODES: TooFewNodesError,
    ErrorCode.INVALID_ACK_MODE: AckModeError,
    ErrorCode.TIMEOUT_CATCH_UP: CatchUpTimeoutError,
}


def error_of(reply: RPCError) -> MlogError:
    return _CLASSES.get(reply.code, MlogError)(reply.code, reply.message)
