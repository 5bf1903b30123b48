"""Connections between the nodes of a cluster: messages, and requests with replies in any order.

Each node dials every other one and sends its requests over that connection; replies come back on
it. Requests of other nodes arrive on the connections that they dialled, on the listener `peer`. A
lost connection is dialled again while the node is a peer, after increasing pauses.

A connection begins with a HELLO that identifies the caller, and with proofs that both nodes are who
they say, where the settings demand them (`peer_handshake.py`, inside TLS). A caller of another
cluster, of an unsupported version, with this node's own id or without a proof is refused and
logged. Strangers, whose HELLO or proof is still missing, are few and get little time and memory:
however many there are, a node that calls is accepted. Everything is bounded: past the bound
messages are dropped, which their senders must expect anyway, and requests fail.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias, cast

import msgspec

from dragoman.errors import (
    ClusterError,
    ConfigError,
    DecodeError,
    DragomanError,
    NotSentError,
    RemoteProtocolError,
)
from dragoman.framing import FrameReader, Scratch
from dragoman.limits import (
    PEER_CONNECTIONS_MAX,
    PEER_FRAME_BYTES_MAX,
    PEER_HELLO_BYTES_MAX,
    PEER_HELLO_TIMEOUT_S,
    PEER_NONCE_BYTES,
    PEER_REPLACEMENT_S,
    PEER_REQUESTS_MAX,
    PEER_RETRY_MAX_S,
    PEER_RETRY_MIN_S,
    PEER_STRANGERS_MAX,
    PEER_TLS_TIMEOUT_S,
    PEER_UNACKNOWLEDGED_S,
    PEER_UNSENT_BYTES_MAX,
)
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, keep_alive
from dragoman.net.peer_frames import Arrived, Hello, Kind, frame, take_apart
from dragoman.net.peer_handshake import CalledHandshake, CallingHandshake
from dragoman.net.peer_security import OpenPeers, PeerSecurity, evidence_of
from dragoman.types import Buffer
from dragoman.world import Handle, Random

log = logging.getLogger("dragoman.peers")
#: The number of the answer to a HELLO, which is sent only to refuse it.
_WELCOME = 0
#: The first byte of a connection with TLS: a handshake record. No frame between nodes is so large
#: that its size begins with it.
_TLS_HANDSHAKE = 0x16
_DEMANDING = "the settings demand more of connections between nodes now"
#: Linux only. Elsewhere the system's own time-out applies.
_TCP_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)


class PeerAnswer(msgspec.Struct, frozen=True):
    header: memoryview
    body: memoryview


#: Receives the answer or an error: the outcome is then unknown, unless the error says that the
#: request was not sent.
Answered: TypeAlias = Callable[[PeerAnswer | ClusterError], None]
#: A reply's header and the pieces of its body; or an error, which refuses.
Reply: TypeAlias = Callable[[bytes | DragomanError, Sequence[Buffer]], None]


class PeerService(Protocol):
    """Serves requests of other nodes. Raises `DragomanError` to refuse."""

    def message(self, node: int, header: memoryview) -> None: ...

    def request(self, node: int, header: memoryview, body: memoryview, reply: Reply) -> None: ...


class PeerConnections:
    """The peer connections of this node."""

    def __init__(
        self,
        hello: Callable[[], Hello],
        loop: asyncio.AbstractEventLoop,
        random: Random,
        budget: MemoryBudget,
        security: PeerSecurity | None = None,
        *,
        connect_timeout_s: float = 1.0,
    ) -> None:
        """`hello` returns the current HELLO of this node."""
        self.hello = hello
        self.security: PeerSecurity = OpenPeers() if security is None else security
        self.budget = budget
        #: The shared receive buffer, used by one connection at a time.
        self.scratch = Scratch()
        #: The loop's own, unless a test replaces it to cut nodes off.
        self.open_connection = loop.create_connection
        self._loop = loop
        self._random = random
        self._connect_timeout_s = connect_timeout_s
        self._services: dict[int, PeerService] = {}
        self._lines: dict[int, _Line] = {}
        self._sessions: dict[PeerSession, None] = {}
        #: Sessions without a HELLO yet, the oldest first.
        self._strangers: dict[PeerSession, None] = {}
        #: Whether callers with TLS have been reported since the settings last changed.
        self._is_tls_reported = False
        #: Called when a node can be sent to, and when it cannot any more.
        self.on_connected: list[Callable[[int], None]] = []
        self.on_lost: list[Callable[[int], None]] = []
        #: Called when a connection to another node is refused.
        self.on_refused: list[Callable[[int], None]] = []
        #: Called when the last connection that another node dialled is lost.
        self.on_caller_lost: list[Callable[[int], None]] = []
        #: Called with each node that has been recognised, or refused because it has not: its id as
        #: it says, its address, and the reason of a refusal.
        self.on_judged: list[Callable[[int, str, str], None]] = []

    def serve(self, service: int, server: PeerService) -> None:
        assert service not in self._services
        self._services[service] = server

    def session(self, channel: Channel) -> PeerSession:
        """The session of an accepted connection on the listener `peer`."""
        if len(self._strangers) >= PEER_STRANGERS_MAX:
            # Nodes identify themselves at once. Refusing the newest connection instead would let
            # strangers keep nodes out.
            self._least_wanted().give_up(f"{PEER_STRANGERS_MAX} others wait, too")
        session = PeerSession(self, channel)
        self._sessions[session] = None
        self._strangers[session] = None
        return session

    def give_way(self) -> bool:
        """Close one connection without a HELLO; False: there is none."""
        if not self._strangers:
            return False
        self._least_wanted().give_up("its descriptor is needed")
        return True

    def _least_wanted(self) -> PeerSession:
        """The oldest stranger of the address that has most of them: a flood from one address does
        not push out nodes at others.
        """
        held = Counter(each.peer_host for each in self._strangers)
        return max(self._strangers, key=lambda each: held[each.peer_host])

    def set_peers(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Keep connections to these nodes, and to no others."""
        for node in [each for each in self._lines if each not in addresses]:
            self._lines.pop(node).close()
        for node, address in addresses.items():
            line = self._lines.get(node)
            if line is None:
                self._lines[node] = _Line(self, node, address)
            else:
                line.address = address

    def is_connected(self, node: int) -> bool:
        line = self._lines.get(node)
        return line is not None and line.link is not None

    def is_calling(self, node: int) -> bool:
        """Whether that node has a connection to this one."""
        return any(each.node == node for each in self._sessions)

    def directory_of(self, node: int) -> str:
        """The data directory in the HELLO of that node's newest connection."""
        found = [each.directory for each in self._sessions if each.node == node]
        return found[-1] if found else ""

    def send(self, node: int, service: int, header: bytes) -> None:
        """Send without a guarantee of delivery."""
        line = self._lines.get(node)
        if line is not None and line.link is not None:
            line.link.send(frame(Kind.MESSAGE, service, 0, header))

    def request(
        self,
        node: int,
        service: int,
        header: bytes,
        answered: Answered,
        *,
        timeout_s: float,
        body: Sequence[Buffer] = (),
    ) -> None:
        line = self._lines.get(node)
        if line is None or line.link is None:
            answered(NotSentError(f"node {node} is not connected"))
        else:
            line.link.request(service, header, body, answered, timeout_s)

    def disconnect(self, node: int) -> None:
        """End the connections with a node as a network does that fails; both nodes dial again."""
        line = self._lines.get(node)
        if line is not None and line.link is not None:
            line.link.abort()
        for session in [each for each in self._sessions if each.node == node]:
            session.give_up("the network is cut")

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    # ---- callbacks of lines and sessions

    def dial(self, line: _Line) -> None:
        task = self._loop.create_task(self._dial(line))
        line.dialling = task

    async def _dial(self, line: _Line) -> None:
        link = _Link(self, line, self._loop)
        try:
            context = self.security.client_context() if line.uses_tls else None
            if context is None:
                async with asyncio.timeout(self._connect_timeout_s):
                    await self.open_connection(lambda: link, *line.address)
            else:
                async with asyncio.timeout(PEER_TLS_TIMEOUT_S):
                    # Certificates name nodes, and are not compared with addresses.
                    await self.open_connection(
                        lambda: link, *line.address, ssl=context, server_hostname=""
                    )
        except (OSError, TimeoutError, ConfigError) as error:
            link.abort()
            if not link.is_made:
                # Otherwise its end is reported when the transport is gone.
                line.not_connected(error)

    def new_nonce(self) -> bytes:
        return self._random.getrandbits(8 * PEER_NONCE_BYTES).to_bytes(PEER_NONCE_BYTES, "big")

    def recheck(self) -> None:
        """Replace connections that the settings of the moment would not accept. The node that has
        dialled one dials again, and recognises the other then; the old connection answers what it
        was asked before, within a bound.
        """
        self._is_tls_reported = False
        try:
            policy = self.security.policy()
        except ConfigError as error:
            log.error("%s; connections to other nodes stay as they are", error)
            return
        is_tls, is_proven = self.security.tls == "required", policy.authentication == "required"

        def is_refused(end: _Link | PeerSession) -> bool:
            return (is_tls and not end.is_encrypted) or (is_proven and not end.is_authenticated)

        for session in [*self._sessions]:
            if is_refused(session):
                session.retire()
        for line in self._lines.values():
            if line.link is not None and is_refused(line.link):
                line.replace()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        return self._loop.call_later(seconds, callback)

    def time(self) -> float:
        return self._loop.time()

    def jitter(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.5, 1.0)

    def connected(self, node: int) -> None:
        for callback in self.on_connected:
            callback(node)

    def lost(self, node: int) -> None:
        for callback in self.on_lost:
            callback(node)

    def refused(self, node: int) -> None:
        for callback in self.on_refused:
            callback(node)

    def service(self, number: int) -> PeerService:
        found = self._services.get(number)
        if found is None:
            raise ClusterError(f"unknown service {number}; a node of another release?")
        return found

    def welcome(self, session: PeerSession) -> None:
        """Accept the caller of a session. Raises `RemoteProtocolError` when there are too many."""
        if len(self._sessions) - len(self._strangers) >= PEER_CONNECTIONS_MAX:
            raise RemoteProtocolError(f"there are {PEER_CONNECTIONS_MAX} connections already")
        self._strangers.pop(session, None)

    def tls_begun(self, host: str) -> None:
        """A caller begins TLS, which this node does not have. Strangers can do that at will, and
        the other nodes do every second: reported once.
        """
        if self._is_tls_reported:
            return
        self._is_tls_reported = True
        log.warning(
            "%s calls this node with TLS, and this node uses none between nodes: if the other nodes"
            " require it, write listener.peer.tls, listener.peer.authentication and the files that"
            " they need into the settings of this node, as the others have them",
            host,
        )

    def judged(self, node: int, host: str, refusal: str) -> None:
        for callback in self.on_judged:
            callback(node, host, refusal)

    def session_closed(self, session: PeerSession) -> None:
        if session not in self._sessions:
            # This node has given it up before.
            return
        del self._sessions[session]
        self._strangers.pop(session, None)
        node = session.node
        if node is not None and not self.is_calling(node):
            for callback in self.on_caller_lost:
                callback(node)


class _Line:
    """The connection to a node, dialled again whenever it is lost."""

    def __init__(self, connections: PeerConnections, node: int, address: tuple[str, int]) -> None:
        self.node = node
        self.address = address
        #: The open connection, if any, and the one on which the nodes are recognising each other.
        self.link: _Link | None = None
        self.begun: _Link | None = None
        #: Connections that others have replaced, while requests on them are unanswered.
        self.retired: dict[_Link, None] = {}
        #: Whether the node is being called although there is, or was, an open connection.
        self._is_replacing = False
        self.dialling: asyncio.Task[None] | None = None
        self._connections = connections
        self._pause_s = PEER_RETRY_MIN_S
        self._connected_at = 0.0
        self._refusal = ""
        self._timer: Handle | None = None
        self._is_closed = False
        self._is_reported = False
        #: Whether the last attempt has shown that the node has no TLS (yet).
        self._lacks_tls = False
        connections.dial(self)

    @property
    def uses_tls(self) -> bool:
        match self._connections.security.tls:
            case "optional":
                return not self._lacks_tls
            case requirement:
                return requirement == "required"

    def connected(self, link: _Link) -> None:
        if self._is_closed:
            link.abort()
            return
        self.begun = None
        replaced, self.link = self.link, link
        self._is_replacing = False
        self._connected_at = self._connections.time()
        self._is_reported = False
        if replaced is None:
            self._connections.connected(self.node)
        else:
            self.retired[replaced] = None
            replaced.retire()

    def replace(self) -> None:
        """Call the node again: the settings no longer accept the open connection, which serves
        until there is another one, for a time.
        """
        if self._is_replacing or self.link is None:
            return
        self._is_replacing = True
        self.link.end_soon()
        self._lacks_tls = False
        self._dial_soon()

    def not_connected(self, error: Exception) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.info("node %d at %s:%d: %s", self.node, *self.address, error or "timed out")
        if isinstance(error, ConnectionRefusedError):
            self._connections.refused(self.node)
        elif self._connections.security.tls == "optional" and not self._lacks_tls:
            self._lacks_tls = True
            self._dial_soon()
            return
        self._lacks_tls = False
        self._dial_later()

    def turned_away(self, why: str) -> None:
        if why != self._refusal:
            self._refusal = why
            log.error("node %d refuses calls from this one: %s", self.node, why)

    def lost(self) -> None:
        """An open connection is gone."""
        self.link = None
        # The node may have TLS by now.
        self._lacks_tls = False
        self._connections.lost(self.node)
        if self._is_replacing:
            # It is being called.
            return
        if self._connections.time() - self._connected_at < PEER_RETRY_MAX_S:
            # Perhaps refused; it would be again.
            self._dial_later()
        else:
            # At once, to find out whether the process has ended.
            self._pause_s = PEER_RETRY_MIN_S
            self._dial_soon()

    def not_recognised(self, why: str) -> None:
        """A connection has ended before the nodes had recognised each other."""
        if why and why != self._refusal:
            self._refusal = why
            log.error("node %d at %s:%d is not called: %s", self.node, *self.address, why)
        self.begun = None
        self._lacks_tls = False
        self._dial_later()

    def _dial_soon(self) -> None:
        if not self._is_closed:
            self._timer = self._connections.call_later(0, lambda: self._connections.dial(self))

    def _dial_later(self) -> None:
        if self._is_closed:
            return
        self._timer = self._connections.call_later(
            self._connections.jitter(self._pause_s), lambda: self._connections.dial(self)
        )
        self._pause_s = min(2 * self._pause_s, PEER_RETRY_MAX_S)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self.dialling is not None:
            self.dialling.cancel()
        for link in (self.link, self.begun, *self.retired):
            if link is not None:
                link.abort()


class _Link(asyncio.BufferedProtocol):
    """A connection that this node dialled: sends requests, receives replies."""

    def __init__(
        self, connections: PeerConnections, line: _Line, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connections = connections
        self._line = line
        self._loop = loop
        self._reader = FrameReader(PEER_FRAME_BYTES_MAX, connections.scratch)
        #: Bytes of the budget held by an incomplete reply.
        self._receiving = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[Answered, Handle]] = {}
        self._last_number = 0
        self._is_lost = False
        self._handshake: CallingHandshake | None = None
        #: Runs until the handshake is done.
        self._timer: Handle | None = None
        #: Why the other node is not taken for the one that this node calls.
        self._objection = ""
        self.is_encrypted = False
        #: Runs once the settings no longer accept the connection.
        self._end: Handle | None = None
        self._is_retired = False

    def send(self, pieces: list[Buffer]) -> bool:
        """False: dropped, because too much is unsent already."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > PEER_UNSENT_BYTES_MAX:
            return False
        # An empty last buffer stays in asyncio's transport, which then never closes.
        transport.writelines([each for each in pieces if each])
        return True

    def request(
        self,
        service: int,
        header: bytes,
        body: Sequence[Buffer],
        answered: Answered,
        timeout_s: float,
    ) -> None:
        node = self._line.node
        if len(self._waiting) >= PEER_REQUESTS_MAX:
            answered(NotSentError(f"node {node} has too many unanswered requests"))
            return
        self._last_number = self._last_number % 0xFFFFFFFF + 1
        number = self._last_number
        try:
            pieces = frame(Kind.REQUEST, service, number, header, body)
        except ClusterError as error:
            answered(NotSentError(str(error)))
            return
        if not self.send(pieces):
            answered(NotSentError(f"node {node} does not receive what is sent"))
            return
        timer = self._loop.call_later(timeout_s, self._expire, number, timeout_s)
        self._waiting[number] = (answered, timer)

    def _expire(self, number: int, timeout_s: float) -> None:
        answered, _ = self._waiting.pop(number)
        answered(ClusterError(f"node {self._line.node} did not answer within {timeout_s:g} s"))
        self._close_if_answered()

    def end_soon(self) -> None:
        """Close within a bound."""
        self._end = self._connections.call_later(
            PEER_REPLACEMENT_S, lambda: self.give_up(_DEMANDING)
        )

    def retire(self) -> None:
        """Another connection has taken its place: close it once all its requests are answered."""
        self._is_retired = True
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if self._is_retired and not self._waiting and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _notice_silence(self._transport.get_extra_info("socket"))
        self.is_encrypted = transport.get_extra_info("ssl_object") is not None
        connections = self._connections
        self._line.begun = self
        self._timer = connections.call_later(PEER_HELLO_TIMEOUT_S, self._expire_handshake)
        try:
            self._handshake = CallingHandshake(
                connections.security.policy(),
                evidence_of(transport.get_extra_info("ssl_object")),
                self._line.node,
                connections.hello(),
                connections.new_nonce,
            )
        except (RemoteProtocolError, ConfigError) as error:
            self._object(str(error))
            return
        self._transport.writelines(self._handshake.begin())
        self._take_up()

    @property
    def is_made(self) -> bool:
        """Whether there was a connection."""
        return self._transport is not None

    @property
    def is_authenticated(self) -> bool:
        return self._handshake is not None and self._handshake.is_authenticated

    def _take_up(self) -> None:
        """Begin to send requests, once the handshake is done."""
        if self._handshake is not None and self._handshake.is_done and self._timer is not None:
            if self._connections.security.tls == "required" and not self.is_encrypted:
                self._object("the settings have changed while it was called")
                return
            self._timer.cancel()
            self._timer = None
            self._line.connected(self)

    def _object(self, why: str) -> None:
        self._objection = why
        self.abort()

    def _expire_handshake(self) -> None:
        self._object(f"it has not proven who it is within {PEER_HELLO_TIMEOUT_S:g} s")

    def give_up(self, why: str) -> None:
        log.info("closing the connection to node %d: %s", self._line.node, why)
        self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        buffer = self._reader.get_buffer()
        self._charge()
        return buffer

    def _charge(self) -> None:
        pending = self._reader.pending_bytes
        if pending != self._receiving:
            change, self._receiving = pending - self._receiving, pending
            self._connections.budget.change(change)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for data in self._reader.buffer_updated(nbytes):
                self._deliver(take_apart(data))
            if self._timer is not None and self._reader.announced_bytes > PEER_HELLO_BYTES_MAX:
                raise DecodeError(f"{self._reader.announced_bytes} bytes from an unknown node")
        except RemoteProtocolError as error:
            if self._timer is None:
                log.warning("closing the connection to node %d: %s", self._line.node, error)
            self._object(str(error))
        self._charge()

    def _deliver(self, arrived: Arrived) -> None:
        if arrived.kind is Kind.REFUSAL and arrived.number == _WELCOME:
            self._line.turned_away(str(arrived.header, "utf-8", "replace"))
            return
        if self._handshake is not None and not self._handshake.is_done:
            answer = self._handshake.received(arrived)
            if answer and self._transport is not None:
                self._transport.writelines(answer)
            self._take_up()
            return
        waiting = self._waiting.pop(arrived.number, None)
        if waiting is None:
            # The request has timed out.
            return
        answered, timer = waiting
        timer.cancel()
        if arrived.kind is Kind.REPLY:
            answered(PeerAnswer(arrived.header, arrived.body))
        elif arrived.kind is Kind.REFUSAL:
            answered(ClusterError(str(arrived.header, "utf-8", "replace")))
        else:
            raise DecodeError(f"{arrived.kind.name} in place of a reply")
        self._close_if_answered()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._is_lost:
            return
        self._is_lost = True
        self._reader.forget()
        self._charge()
        node = self._line.node
        self._line.retired.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        waiting, self._waiting = self._waiting, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._line.not_recognised(self._objection)
        elif self._line.link is self:
            self._line.lost()
        for answered, timer in waiting.values():
            timer.cancel()
            answered(ClusterError(f"connection to node {node} was lost; the outcome is unknown"))


def _notice_silence(connected: socket.socket | None) -> None:
    """Detect a machine that lost its power or its address."""
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # The connection may be lost already, which is about to be reported.
    with suppress(OSError):
        keep_alive(connected)
        if _TCP_USER_TIMEOUT is not None:
            patience_ms = round(PEER_UNACKNOWLEDGED_S * 1000)
            connected.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, patience_ms)


class PeerSession:
    """A connection that another node dialled: receives requests, sends replies."""

    def __init__(self, connections: PeerConnections, channel: Channel) -> None:
        self._connections = connections
        self._channel = channel
        self._reader = FrameReader(PEER_FRAME_BYTES_MAX, connections.scratch)
        #: The caller, once it is identified.
        self.node: int | None = None
        self.directory = ""
        self._handshake: CalledHandshake | None = None
        self._is_retired = False
        self._is_begun = False
        self._timer = connections.call_later(PEER_HELLO_TIMEOUT_S, self._expire)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._reader.get_buffer(size_hint)

    @property
    def pending_bytes(self) -> int:
        return self._reader.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        return 0

    def buffer_updated(self, count: int) -> None:
        if not self._is_begun:
            self._begin()
        for data in self._reader.buffer_updated(count):
            self._received(take_apart(data))
        announced = self._reader.announced_bytes
        if self.node is None and announced > PEER_HELLO_BYTES_MAX:
            raise DecodeError(f"{announced} bytes from a node that has not said who it is")

    def _begin(self) -> None:
        """The first bytes have arrived. Raises `DecodeError` for TLS."""
        self._is_begun = True
        if self._connections.scratch.data[0] == _TLS_HANDSHAKE and not self.is_encrypted:
            self._connections.tls_begun(self.peer_host)
            raise DecodeError("it begins with TLS, which this node does not use between nodes")

    def writable(self) -> None: ...

    def ended(self) -> None: ...

    @property
    def is_due(self) -> bool:
        # A node that half-closes is gone.
        return False

    def reexamine(self, *, must_log_in_anew: bool) -> None:
        """`PeerConnections.recheck` examines connections between nodes."""

    def closed(self) -> None:
        self._timer.cancel()
        self._reader.forget()
        self._connections.session_closed(self)

    @property
    def peer_host(self) -> str:
        return self._channel.peer_address[0]

    @property
    def is_encrypted(self) -> bool:
        return self._channel.is_encrypted

    @property
    def is_authenticated(self) -> bool:
        return self._handshake is not None and self._handshake.is_authenticated

    def give_up(self, why: str) -> None:
        who = "a node that has not said who it is" if self.node is None else f"node {self.node}"
        self._channel.complain(f"{who}: {why}")
        self._channel.abort()
        # Transports report their end later, and further bytes may arrive until then.
        self._connections.session_closed(self)

    def retire(self) -> None:
        """The settings no longer accept the connection: close it within a bound, in which its
        caller replaces it.
        """
        if self.node is None:
            self.give_up(_DEMANDING)
        elif not self._is_retired:
            self._is_retired = True
            self._timer = self._connections.call_later(
                PEER_REPLACEMENT_S, lambda: self.give_up(_DEMANDING)
            )

    def _expire(self) -> None:
        self.give_up(f"not within {PEER_HELLO_TIMEOUT_S:g} s")

    def _received(self, arrived: Arrived) -> None:
        if self.node is None:
            try:
                self._greet(arrived)
            except RemoteProtocolError as error:
                # For the log of the calling node, where its operator looks.
                text = str(error).encode("utf-8", "replace")
                self._channel.send(frame(Kind.REFUSAL, 0, _WELCOME, text))
                raise
            return
        match arrived.kind:
            case Kind.MESSAGE:
                self._connections.service(arrived.service).message(self.node, arrived.header)
            case Kind.REQUEST:
                self._handle(self.node, arrived)
            case _:
                raise DecodeError(f"{arrived.kind.name} from a node that was sent no request")

    def _handle(self, node: int, arrived: Arrived) -> None:
        def reply(header: bytes | DragomanError, body: Sequence[Buffer] = ()) -> None:
            if not isinstance(header, DragomanError):
                try:
                    pieces = frame(Kind.REPLY, arrived.service, arrived.number, header, body)
                except ClusterError as error:
                    # The reply is too large; its sender, perhaps in the middle of a commit, must
                    # not fail.
                    header = error
            if isinstance(header, DragomanError):
                text = str(header).encode("utf-8", "replace")
                pieces = frame(Kind.REFUSAL, arrived.service, arrived.number, text)
            self._channel.send(pieces)

        try:
            service = self._connections.service(arrived.service)
            service.request(node, arrived.header, arrived.body, reply)
        except RemoteProtocolError:
            raise
        except DragomanError as error:
            reply(error)

    def _greet(self, arrived: Arrived) -> None:
        """Continue the handshake with the caller. Raises `RemoteProtocolError`."""
        handshake = self._handshake
        if handshake is None:
            connections = self._connections
            try:
                policy = connections.security.policy()
            except ConfigError as error:
                # The caller learns no names of files. Strangers can cause the line: it is limited.
                self._channel.complain(f"no node is accepted: {error}")
                raise RemoteProtocolError("the settings of this node are not usable") from None
            evidence, hello = evidence_of(self._channel.tls), connections.hello()
            handshake = CalledHandshake(policy, evidence, hello, connections.new_nonce)
            self._handshake = handshake
        try:
            answer = handshake.received(arrived)
        except RemoteProtocolError as error:
            if handshake.claims is not None:
                self._connections.judged(handshake.claims, self.peer_host, str(error))
            raise
        if handshake.caller is not None:
            self._connections.welcome(self)
            if handshake.is_authenticated:
                self._connections.judged(handshake.caller.node_id, self.peer_host, "")
            # An identified node counts as working, since its messages get no replies.
            self._channel.is_working = True
            self._timer.cancel()
            self.node = handshake.caller.node_id
            self.directory = handshake.caller.directory
        if answer:
            self._channel.send(answer)
