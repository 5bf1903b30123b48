"""The listeners of a node: they are opened, served, and closed here.

A connection belongs to one listener from the moment it is accepted (`Channel.listener`). All
connections of one protocol on one listener share a `Service`, because replies name the addresses of
the listener that the client used. Only on `any` do listener and protocol differ. A protocol is
loaded with its first listener, or with its first client on `any`.

Connections of clients and of nodes have budgets of their own for memory and descriptors, so that
replication continues when clients have used up theirs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.config.consistency import connections_by_address
from dragoman.config.listeners import (
    Address,
    Listener,
    ListenerSecurity,
    base_name,
    same_label,
)
from dragoman.config.settings import Settings
from dragoman.errors import ConfigError
from dragoman.limits import (
    CONNECTION_CLOSE_GRACE_S,
    DESCRIPTORS_LEFT_BY_CLIENTS,
    DESCRIPTORS_LEFT_BY_HTTP,
    DESCRIPTORS_LEFT_BY_NODES,
    HTTP_CLOSE_GRACE_S,
    IDLE_SWEEP_INTERVAL_S,
    LISTEN_BACKLOG,
)
from dragoman.log_limiter import LogLimiter
from dragoman.net.admission import (
    ConnectionCaps,
    ConnectionCount,
    DescriptorShare,
    MemoryBudget,
)
from dragoman.net.channel import Channel, Channels, Session
from dragoman.net.listener import (
    ACCEPT_TURNS,
    AddressTakenError,
    Closed,
    OpenListener,
    open_listener,
)
from dragoman.net.loop_lag import LoopLag
from dragoman.net.operator_socket import CONSOLE_NAME, OperatorSocket, open_operator_socket
from dragoman.net.requests import Requests
from dragoman.net.stalled import StalledPeers
from dragoman.net.tls.contexts import ListenerContext, TlsContexts
from dragoman.net.tls.handshakes import Handshakes
from dragoman.operating_system import child_environment, open_files_max
from dragoman.outcome import ignore
from dragoman.protocols import service
from dragoman.protocols.service import Service
from dragoman.world import Clock, Handle, HostNames, PlainFiles

if TYPE_CHECKING:
    from dragoman.api.connection import HttpConnection
    from dragoman.api.listener import HttpListener
    from dragoman.api.operations import NodeView
    from dragoman.net.peer_connections import PeerConnections

log = logging.getLogger("dragoman.server")


class _Served(NamedTuple):
    """Where the parts of a protocol are, as `module:name`."""

    service: str
    session: str
    #: Returns whether clients can use a topic of this name. Empty: they can use any.
    is_visible: str


_PROTOCOLS = {
    "kafka": _Served(
        "dragoman.protocols.kafka.handlers.service:KafkaService",
        "dragoman.protocols.kafka.handlers.session:KafkaSession",
        "dragoman.protocols.kafka.handlers.resources:is_visible",
    ),
    "cursus": _Served(
        "dragoman.protocols.cursus.handlers.service:CursusService",
        "dragoman.protocols.cursus.handlers.session:CursusSession",
        "dragoman.protocols.cursus.handlers.policy:is_expressible",
    ),
    "minibroker": _Served(
        "dragoman.protocols.minibroker.handlers.service:MinibrokerService",
        "dragoman.protocols.minibroker.handlers.session:MinibrokerSession",
        "",
    ),
    "mlog": _Served(
        "dragoman.protocols.mlog.handlers.service:MlogService",
        "dragoman.protocols.mlog.handlers.session:MlogSession",
        "dragoman.protocols.mlog.handlers.topics:is_expressible",
    ),
    "rocketmq": _Served(
        "dragoman.protocols.rocketmq.handlers.service:RocketmqService",
        "dragoman.protocols.rocketmq.handlers.session:RocketmqSession",
        "dragoman.protocols.rocketmq.handlers.names:is_expressible",
    ),
}
#: Listeners whose clients may stay silent indefinitely. Cursus itself closes those without a
#: stream.
_NEVER_IDLE = ("any", "cursus", "minibroker", "peer")
#: Listeners whose replies name the addresses of another listener, if that one is open.
_ADVERTISES = {"rocketmq": "rocketmq-broker"}
#: RocketMQ clients before 4.5.1 connect to this many ports below the broker's, to what they call
#: the VIP channel.
_VIP_DISTANCE = 2
_VIP = "rocketmq-vip"
#: Listeners whose clients get message ids with this node's address in them.
_HAVE_ADDRESSES_IN_IDS = frozenset({"rocketmq", "rocketmq-broker", "any"})


class Core(service.Core, Protocol):
    """What listeners need from the broker, besides what the services need."""

    host_names: HostNames
    work: WorkQueue

    @property
    def settings(self) -> Settings:
        """The settings with the changes that were made at run time."""
        ...


class Listeners:
    """Opens one listener after the other; `serve` then accepts connections on all of them."""

    def __init__(
        self,
        broker: Core,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        peers: PeerConnections | None,
        peer_budget: MemoryBudget,
        *,
        unopened_files: Callable[[], int],
        http_view: Callable[[], NodeView],
        plain_files: PlainFiles,
    ) -> None:
        """`unopened_files` counts the files that the log may still open, each a descriptor.
        `http_view` is the HTTP API's view of the node. `plain_files` has the certificates.
        """
        self._broker = broker
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._peers = peers
        #: Closes a connection on the listener `peer`, if one may go.
        self._give_way = None if peers is None else peers.give_way
        self._unopened_files = unopened_files
        self._http_view = http_view
        self._http: HttpListener | None = None
        #: The socket of the machine's administrator. It has a server of its own, so that clients of
        #: the other listeners cannot keep the administrator out.
        self._operator_http: HttpListener | None = None
        self._operator_socket: OperatorSocket | None = None
        #: The same for the console, whose process reaches the node by it.
        self._console_http: HttpListener | None = None
        self._console_socket: OperatorSocket | None = None
        self._console_directory = ""
        self.budget = MemoryBudget(settings.memory_budget_bytes)
        self._peer_budget = peer_budget
        self._connections = ConnectionCount(self._connection_caps)
        self._connection_log = LogLimiter(logging.getLogger("dragoman.net"), loop)
        self.opened: list[OpenListener] = []
        #: Open connections by the listener that accepted them.
        self.channels: dict[str, Channels] = {}
        #: By the listener whose addresses the replies name, and by protocol.
        self.services: dict[tuple[str, str], Service[Core]] = {}
        #: Whether RocketMQ clients before 4.5.1 are served (`_VIP_DISTANCE`).
        self.serves_vip = True
        self._sessions_on_any = {name: partial(self._session_on_any, name) for name in _PROTOCOLS}
        self._accepts_clients = True
        self._stalled = StalledPeers(self.budget, self.channels, loop)
        self.contexts = TlsContexts(plain_files, clock, loop)
        self.handshakes = Handshakes(self.budget, loop)
        self.loop_lag = LoopLag(
            loop, clock, lambda: sum(each.bytes_in for each in self.channels.values())
        )
        self._sweeper: Handle | None = None
        #: The rules that name the owners of certificates, when connections were last examined.
        self._mapping_rules = settings.ssl_principal_mapping_rules

    # ---- opening

    async def open_all(self) -> None:
        """Bind the addresses of all listeners. Raises `ConfigError` that names every address that
        cannot be bound, and what to type: clients would reach another program there.
        """
        taken: dict[str, AddressTakenError] = {}
        for listener in self._settings.listeners:
            opening = self._open_console if listener.base == "console" else self.open
            try:
                await opening(listener)
            except AddressTakenError as error:
                taken[listener.name] = error
        if taken:
            remedy = _remedy(list(taken), has_others=bool(self.opened))
            raise ConfigError(f"{'; '.join(map(str, taken.values()))}; {remedy}")

    async def open(self, listener: Listener) -> None:
        """Bind the listener's address. Raises `AddressTakenError`, and `ConfigError` for
        certificates that cannot be used.
        """
        if self._settings.listener_security(listener.name).tls != "off":
            self._context(listener.name).load()
        factory = self._factory(listener)
        opened = await open_listener(listener, self._loop, factory, LISTEN_BACKLOG)
        self.opened.append(opened)
        if opened.advertised is not None and listener.base in _HAVE_ADDRESSES_IN_IDS:
            # The look-up is finished by the time the first client needs it.
            self._broker.host_names.ipv4(opened.advertised.host)

    async def open_operator_socket(self, directory: str) -> None:
        """Bind the administrator's socket in the data directory. A node without it serves its
        clients all the same: some file systems have no sockets.
        """
        from dragoman.api.origin import operator_origin

        http = self._http_listener(DESCRIPTORS_LEFT_BY_NODES, "operator")
        try:
            self._operator_socket = await open_operator_socket(
                directory, self._loop, http.factory(operator_origin), LISTEN_BACKLOG
            )
        except ConfigError as error:
            log.warning("%s; the node has no socket for its administrator", error)
        else:
            self._operator_http = http

    async def _open_console(self, listener: Listener) -> None:
        """Bind the address at which a process of its own serves browsers. Raises
        `AddressTakenError`, and `ConfigError` for certificates that cannot be used.
        """
        # Imported here: few nodes in tests have a console.
        from dragoman.net.process_listener import ProcessListener, Program, bind

        if self._settings.listener_security(listener.name).tls != "off":
            self._context(listener.name).load()
        bound = await bind(listener, self._loop, LISTEN_BACKLOG)
        program = Program(_console_command, self._console_start, _console_environment)
        self.opened.append(ProcessListener(listener, bound, program, self._loop))

    def _console_start(self) -> bytes:
        """The line that the process of the console is started with. Raises `ConfigError`."""
        if self._console_socket is None:
            raise ConfigError("the node has no socket for it in its data directory")
        # Imported here: most nodes never start a console.
        import msgspec

        from dragoman.api.console_access import console_settings

        return msgspec.json.encode(
            console_settings(
                self.opened,
                self._broker.settings,
                self._console_directory,
                self._http_view().own_names(),
            )
        )

    async def open_console_socket(self, directory: str) -> None:
        """Bind the socket by which the console's process reaches the node, if there is a console.
        Its clients have a server of their own, so that they keep no others out.
        """
        console = next((each for each in self.opened if each.listener.base == "console"), None)
        if console is None:
            return
        from dragoman.api.origin import console_origin

        http = self._http_listener(DESCRIPTORS_LEFT_BY_HTTP, "console")
        origin_of = partial(
            console_origin, self._console_security(console), self._console_login_obstacle
        )
        try:
            self._console_socket = await open_operator_socket(
                directory, self._loop, http.factory(origin_of), LISTEN_BACKLOG, CONSOLE_NAME
            )
        except ConfigError as error:
            log.warning("%s; the node has no console", error)
        else:
            self._console_http = http
            self._console_directory = os.path.abspath(directory)

    def _console_security(self, console: OpenListener) -> Callable[[], ListenerSecurity]:
        # Imported here: with the first request from a console.
        configured = self._security(console.name)
        is_exposed = not console.bound.is_loopback

        def current() -> ListenerSecurity:
            from dragoman.api.console_access import console_security

            is_required = is_exposed or bool(self._broker.image.users)
            return console_security(configured(), is_required=is_required)

        return current

    def _console_login_obstacle(self) -> str:
        from dragoman.api.console_access import NO_USERS

        return "" if self._broker.image.users else NO_USERS

    async def serve(self) -> None:
        """Accept connections on every open listener, and watch them from now on."""
        for opened in self.opened:
            await opened.serve()
        for each in (self._operator_socket, self._console_socket):
            if each is not None:
                await each.serve()
        await self._open_vip()
        self.sweep()
        self._stalled.watch()
        self.contexts.watch()
        self.loop_lag.watch()

    async def _open_vip(self) -> None:
        """Open the VIP port last, so that it takes no port configured for another listener. A port
        that the system has chosen has no VIP port: the system may give the port below to another
        process.
        """
        broker = self.find("rocketmq-broker")
        if broker is None or not self.serves_vip or broker.listener.bind.port <= _VIP_DISTANCE:
            return
        address = Address(broker.bound.host, broker.bound.port - _VIP_DISTANCE)
        vip = Listener(name=_VIP, bind=address)
        factory = self._factory(broker.listener)
        opened = None
        try:
            opened = await open_listener(vip, self._loop, factory, LISTEN_BACKLOG)
            await opened.serve()
        except (ConfigError, OSError) as error:
            if opened is not None:
                opened.close()
            text = (
                "%s; RocketMQ clients of before 4.5.1, which connect to %s, do not find this node"
            )
            log.warning(text, error, address)
        else:
            self.opened.append(opened)

    def requests(self) -> list[Requests[Any]]:
        """The counts of requests of every service."""
        return [each.requests for each in self.services.values()]

    @property
    def subscriber_count(self) -> int:
        """Subscriptions to which the node pushes records."""
        return sum(each.subscriber_count for each in self.services.values())

    def find(self, name: str) -> OpenListener | None:
        return next((each for each in self.opened if each.name == name), None)

    def http_connections(self) -> Iterator[HttpConnection]:
        """Those of all listeners with HTTP, and of the sockets of administrator and console."""
        for each in (self._http, self._operator_http, self._console_http):
            if each is not None:
                yield from each.connections()

    # ---- the sessions of a listener's connections

    def _factory(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        name = listener.name
        match listener.base:
            case "http":
                return self._http_factory(name)
            case "peer":
                assert self._peers is not None
                return self._channel_factory(name, self._peers.session)
            case "any":
                return self._channel_factory(name, self._detection_session)
            case _ if listener.protocol in _PROTOCOLS:
                return self._channel_factory(name, self._sessions(name, listener.protocol))
            case _:
                raise ConfigError(f"listener {name!r} has no server in this release")

    def _http_factory(self, name: str) -> Callable[[], asyncio.BaseProtocol]:
        from dragoman.api.origin import listener_origin

        if self._http is None:
            self._http = self._http_listener(DESCRIPTORS_LEFT_BY_HTTP, "http")
        security = self._security(name)
        make = self._http.factory(
            partial(
                listener_origin,
                security,
                lambda: self._broker.settings.ssl_principal_mapping_rules,
            )
        )
        descriptors = self._http.descriptors

        def refusal(address: str, transport: asyncio.BaseTransport) -> str:
            is_left = descriptors.admits(transport)
            return self._connections.refusal(address) if is_left else "too many files are open"

        return self._with_tls(name, make, security, refusal)

    def _http_listener(self, descriptors_left: int, name: str) -> HttpListener:
        # Cheap: what serves HTTP is imported with the first connection.
        from dragoman.api.listener import HttpListener

        return HttpListener(
            self._http_view,
            self._clock,
            self._loop,
            name=name,
            descriptor_max=self._descriptor_max(descriptors_left),
            give_way=self._give_way,
        )

    def _with_tls(
        self,
        name: str,
        make: Callable[[], asyncio.BaseProtocol],
        security: Callable[[], ListenerSecurity],
        refusal: Callable[[str, asyncio.BaseTransport], str],
    ) -> Callable[[], asyncio.BaseProtocol]:
        """The factory of a listener's connections, with TLS below them where it is on. `refusal`
        says why a connection is refused before its handshake, if it is.
        """

        @cache
        def encrypted() -> Callable[[], asyncio.BaseProtocol]:
            # Imported here: few nodes have TLS.
            from dragoman.net.tls.connection import TlsConnection, TlsEnd

            end = TlsEnd(
                self.handshakes,
                self._context(name).current,
                allows_plaintext=lambda: security().tls != "required",
                refusal=refusal,
                counted=self._count_handshake if base_name(name) != "peer" else _not_counted,
                wall_ms=self._clock.wall_ms,
                limiter=self._connection_log,
            )
            return lambda: TlsConnection(end, make, self._loop)

        return lambda: make() if security().tls == "off" else encrypted()()

    def _count_handshake(self, address: str, is_open: bool) -> None:
        """Handshakes count as connections of their clients."""
        if is_open:
            self._connections.opened(address)
        else:
            self._connections.closed(address)

    def _context(self, name: str) -> ListenerContext:
        return self.contexts.of(name, lambda: self._broker.settings.listener_tls(name))

    def _sessions(self, listener: str, protocol: str) -> Callable[[Channel], Session]:
        """The factory of sessions for a protocol on a listener."""
        base = base_name(listener)
        advertised = same_label(listener, _ADVERTISES.get(base, base))
        if all(each.name != advertised for each in self._settings.listeners):
            advertised = listener
        known = self.services.get((advertised, protocol))
        if known is None:
            make_service = _load(_PROTOCOLS[protocol].service)
            known = make_service(self._broker, self.budget, self._advertised(advertised))
            known.advertised_listener = advertised
            self.services[advertised, protocol] = known
        make_session: Callable[..., Session] = _load(_PROTOCOLS[protocol].session)
        return partial(make_session, service=known)

    def _detection_session(self, channel: Channel) -> Session:
        """The session of a connection on `any`, whose protocol is not known yet."""
        # Imported here: few nodes have this listener.
        from dragoman.net.detection import DetectionSession

        timeout_s = self._broker.settings.any_detection_timeout_ms / 1000
        return DetectionSession(channel, self._sessions_on_any, self._loop, timeout_s)

    def _session_on_any(self, protocol: str, channel: Channel) -> Session:
        return self._sessions(channel.listener, protocol)(channel)

    def _advertised(self, name: str) -> Callable[[Channel], tuple[str, int]]:
        """The host and port of this node in replies to a client: those of the named listener."""

        def advertised(channel: Channel) -> tuple[str, int]:
            opened = self.find(name)
            if opened is None:
                # The listener's own port was taken; the client reached the node at this address.
                return channel.local_address
            return opened.address_for(channel.local_address)

        return advertised

    def _channel_factory(
        self, name: str, make_session: Callable[[Channel], Session]
    ) -> Callable[[], asyncio.BaseProtocol]:
        is_for_clients = name != "peer"
        if name not in self.channels:
            self.channels[name] = Channels(
                self.budget if is_for_clients else self._peer_budget,
                self._loop,
                listener=name,
                closes_idle=base_name(name) not in _NEVER_IDLE,
                security=self._broker.settings.listener_security(name),
                connections=self._connections if is_for_clients else None,
                descriptors=DescriptorShare(
                    self._descriptor_max(
                        DESCRIPTORS_LEFT_BY_CLIENTS if is_for_clients else DESCRIPTORS_LEFT_BY_NODES
                    ),
                    None if is_for_clients else self._give_way,
                ),
                limiter=self._connection_log,
            )
        channels = self.channels[name]

        def channel() -> asyncio.BaseProtocol:
            if is_for_clients and not self._accepts_clients:
                return Closed()
            return Channel(channels, make_session, self._loop)

        return self._with_tls(name, channel, lambda: channels.security, channels.refusal)

    def _security(self, listener: str) -> Callable[[], ListenerSecurity]:
        """What a listener demands, by the settings of the moment."""
        known = self._settings
        security = known.listener_security(listener)

        def current() -> ListenerSecurity:
            nonlocal known, security
            settings = self._broker.settings
            if settings is not known:
                known, security = settings, settings.listener_security(listener)
            return security

        return current

    def security_of(self, opened: OpenListener) -> ListenerSecurity:
        """What an open listener demands at the moment."""
        name = "rocketmq-broker" if opened.name == _VIP else opened.name
        return self._broker.settings.listener_security(name)

    # ---- bounds

    def _descriptor_max(self, left: int) -> Callable[[], int]:
        """The highest descriptor that a connection may have: `left` of them are reserved for
        others, in addition to the files that the log may still open. The limit of the process may
        be raised while it runs.
        """

        def highest() -> int:
            most = open_files_max()
            reserved = max(left, most // 8) if left == DESCRIPTORS_LEFT_BY_CLIENTS else left
            # Even with very few descriptors, some connections are accepted.
            kept = max(most - reserved, most // 2)
            return kept - min(self._unopened_files(), most // 4)

        return highest

    def _connection_caps(self) -> ConnectionCaps:
        settings = self._broker.settings
        return ConnectionCaps(
            settings.max_connections,
            settings.max_connections_per_ip,
            connections_by_address(settings),
        )

    def accept_clients(self, accepts: bool) -> None:
        """A node whose disk is full cannot apply metadata, so it does not know the new leaders of
        its partitions. Disconnect its clients, which then ask other nodes.
        """
        self._accepts_clients = accepts
        if not accepts:
            for name, channels in self.channels.items():
                if name != "peer":
                    channels.abort_all()

    def sweep(self) -> None:
        """Close idle connections, now and periodically."""
        settings = self._broker.settings
        own_idle_ms = {"mlog": settings.mlog_connections_max_idle_ms}
        for name, channels in self.channels.items():
            idle_ms = own_idle_ms.get(base_name(name), settings.connections_max_idle_ms)
            if idle_ms >= 0:
                channels.close_idle(self._loop.time() - idle_ms / 1000)
        self._sweeper = self._loop.call_later(IDLE_SWEEP_INTERVAL_S, self.sweep)

    def reexamine(self) -> None:
        """Settings have changed: close the connections that would not be accepted now, or whose
        callers would be others. Many are examined over several loop turns.
        """
        rules = self._broker.settings.ssl_principal_mapping_rules
        has_new_names, self._mapping_rules = rules != self._mapping_rules, rules
        demands = self._broker.settings.listener_security
        due = [
            examine
            for name, channels in self.channels.items()
            for examine in channels.reexamine(demands(name), has_new_names=has_new_names)
        ]
        if due:
            self._broker.work.run(_in_steps(due)).then(ignore)

    def send_replies(self) -> None:
        """Flush replies to acknowledged writes at once, not in the next loop turn."""
        for channels in self.channels.values():
            channels.send_all()

    # ---- addresses and names

    def addresses(self) -> dict[str, str]:
        """Addresses at which other nodes and their clients reach each listener. For a listener on
        all interfaces, the host is that of this node in the cluster.
        """
        own = self._settings.cluster_nodes.get(self._settings.node_id)
        if own is None:
            own = next((each.advertised for each in self.opened if each.name == "peer"), None)
        found: dict[str, str] = {}
        for opened in self.opened:
            address = opened.advertised
            if address is None and own is not None:
                address = Address(own.host, opened.bound.port)
            if address is not None:
                found[opened.name] = str(address)
        return found

    def hidden_from(self, topic: str) -> tuple[str, ...]:
        """Protocols that this node serves and whose clients cannot name the topic."""
        served = {each.protocol for each in self._settings.listeners}
        return tuple(
            protocol
            for protocol, parts in _PROTOCOLS.items()
            if parts.is_visible
            and (protocol in served or "any" in served)
            and not _load(parts.is_visible)(topic)
        )

    def describe(self) -> list[str]:
        """A line for each listener, as `serve` prints them."""
        lines = []
        for opened in self.opened:
            # Replies never name the VIP port: clients derive it from the broker's.
            if opened.name != _VIP:
                advertised = opened.advertised or "the address each client came in on"
                lines.append(f"{opened.name} on {opened.bound}, advertised as {advertised}")
        return lines

    # ---- closing

    def stop_watching(self) -> None:
        """Stop closing idle and stalled connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stalled.stop()
        self.loop_lag.stop()
        self.contexts.stop()
        self.handshakes.stop()

    async def stop_accepting(self) -> None:
        """Close every port and socket. Accepted connections stay, and are served."""
        if self._operator_socket is not None:
            self._operator_socket.close()
        for listener in self.opened:
            listener.pause()
        await _accepted()
        for listener in self.opened:
            listener.close()
        await _accepted()
        # A console finishes the requests of its browsers, for which it needs its socket.
        for listener in self.opened:
            await listener.closed()
        self.close()

    def close(self) -> None:
        """Close every port and socket at once."""
        for each in (self._operator_socket, self._console_socket):
            if each is not None:
                each.close()
        self._operator_socket = self._console_socket = None
        for listener in self.opened:
            listener.close()

    async def close_connections(self) -> None:
        """Give peers a moment to receive their last replies, then abort their connections."""
        self.handshakes.give_up_all("the node stops")
        began = self._clock.monotonic()
        all_https = (self._http, self._operator_http, self._console_http)
        https = [each for each in all_https if each is not None]
        count = sum(len(each.open) for each in self.channels.values())
        count += sum(each.connection_count for each in https)
        for channels in self.channels.values():
            channels.close_all()
        for http in https:
            await http.close(HTTP_CLOSE_GRACE_S)
        await self._connections_gone()
        ms = round((self._clock.monotonic() - began) * 1000)
        log.info("connections closed", extra={"connections": count, "ms": ms})

    async def abort_connections(self) -> None:
        self.handshakes.give_up_all("the node stops")
        for channels in self.channels.values():
            channels.abort_all()
        await self._connections_gone()
        for listener in self.opened:
            await listener.closed()

    async def _connections_gone(self) -> None:
        for channels in self.channels.values():
            emptied = asyncio.Event()
            channels.on_empty = emptied.set
            if not channels.open:
                continue
            try:
                async with asyncio.timeout(CONNECTION_CLOSE_GRACE_S):
                    await emptied.wait()
            except TimeoutError:
                log.warning("%d connections did not take their last replies", len(channels.open))
                channels.abort_all()
                await emptied.wait()


async def _accepted() -> None:
    """Returns when accepted connections have reached their protocols."""
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)


def _console_command(descriptor: int) -> Sequence[str]:
    # -P: nothing is imported from the node's working directory.
    return sys.executable, "-P", "-m", "dragoman.console", str(descriptor)


def _console_environment() -> dict[str, str]:
    return child_environment(os.environ)


def _in_steps(due: list[Callable[[], None]]) -> Steps[None]:
    for each in due:
        each()
        yield 1


def _not_counted(_address: str, _is_open: bool) -> None:
    """Connections between nodes are not counted."""


def _remedy(names: list[str], *, has_others: bool) -> str:
    """What to type when the addresses of these listeners are taken, and whether others are open."""
    other = (
        f"`--listen {names[0]}=HOST:PORT` for another address, which opens only listeners that are "
        "given one"
    )
    # A node of a cluster cannot do without its listener for other nodes.
    off = " ".join(f"--listen {each}=off" for each in names if each != "peer")
    if not off or not has_others:
        return f"type {other}"
    return f"type `{off}` to start without {'it' if len(names) == 1 else 'them'}, or {other}"


def _load(path: str) -> Any:
    """The object that `module:name` refers to, imported on first use."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
