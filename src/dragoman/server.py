"""The composition root: puts a node together, runs it, and takes it down.

The only module that knows every concrete class. `Node` is also what the in-process broker for tests
and the simulator build on: it is given its disk, clock, randomness and loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.broker.broker import Broker
from dragoman.captures.processes import CaptureProcesses
from dragoman.captures.service import Captures
from dragoman.config.listeners import Address, Listener
from dragoman.config.settings import Settings, connections_by_address, etcd_addresses
from dragoman.errors import ConfigError, CorruptionError, DragomanError
from dragoman.limits import (
    CONNECTION_CLOSE_GRACE_S,
    DESCRIPTORS_LEFT_BY_CLIENTS,
    DESCRIPTORS_LEFT_BY_HTTP,
    DESCRIPTORS_LEFT_BY_NODES,
    ETCD_CLOSE_GRACE_S,
    HAND_OVER_TIMEOUT_S,
    HTTP_CLOSE_GRACE_S,
    IDLE_SWEEP_INTERVAL_S,
    LISTEN_BACKLOG,
    OPEN_SEGMENTS_MAX,
    SPARE_FILES,
)
from dragoman.log.node import NODE_FILE
from dragoman.log.store import Durability, LogStore
from dragoman.log_limiter import LogLimiter
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import Channel, Channels, Session
from dragoman.net.connections import ConnectionCaps, ConnectionCount
from dragoman.net.detection import DetectionSession
from dragoman.net.future import future_of
from dragoman.net.hosts import CachedHostNames, look_up_beside
from dragoman.net.listener import ACCEPT_TURNS, Closed, OpenListener, open_listener
from dragoman.net.peer_connections import PeerConnections
from dragoman.net.peer_frames import VERSION_MIN, Hello
from dragoman.net.stalled import StalledPeers
from dragoman.peers import Peers
from dragoman.protocols.kafka.handlers.consumer_protocol import KafkaGroupDialect
from dragoman.protocols.service import Service
from dragoman.replication.replica import Acknowledge
from dragoman.world import (
    Background,
    Clock,
    Disk,
    Handle,
    Random,
    RealDisk,
    SystemClock,
    allow_open_files,
    open_files_max,
    system_random,
)

if TYPE_CHECKING:
    from dragoman.net.http_client import HttpClient

log = logging.getLogger("dragoman.server")
#: The protocols that clients speak: what all connections of one share, and one connection. They are
#: loaded with the first listener of the protocol, or the first client of `any` that speaks it.
_SERVICES = {
    "kafka": "dragoman.protocols.kafka.handlers.service:KafkaService",
    "cursus": "dragoman.protocols.cursus.handlers.service:CursusService",
    "minibroker": "dragoman.protocols.minibroker.handlers.service:MinibrokerService",
    "mlog": "dragoman.protocols.mlog.handlers.service:MlogService",
    "rocketmq": "dragoman.protocols.rocketmq.handlers.service:RocketmqService",
}
_SESSIONS = {
    "kafka": "dragoman.protocols.kafka.handlers.session:KafkaSession",
    "cursus": "dragoman.protocols.cursus.handlers.session:CursusSession",
    "minibroker": "dragoman.protocols.minibroker.handlers.session:MinibrokerSession",
    "mlog": "dragoman.protocols.mlog.handlers.session:MlogSession",
    "rocketmq": "dragoman.protocols.rocketmq.handlers.session:RocketmqSession",
}
#: What says of a topic's name whether clients of a protocol can use it. minibroker's can use any.
_NAMES = {
    "kafka": "dragoman.protocols.kafka.handlers.resources:is_visible",
    "cursus": "dragoman.protocols.cursus.handlers.policy:is_expressible",
    "mlog": "dragoman.protocols.mlog.handlers.topics:is_expressible",
    "rocketmq": "dragoman.protocols.rocketmq.handlers.names:is_expressible",
}
#: Listeners whose clients may listen for ever without sending anything. Cursus closes those that
#: have no stream by itself.
_NEVER_IDLE = ("any", "cursus", "minibroker", "peer")
#: Listeners that are not called like the protocol that is spoken on them.
_PROTOCOLS = {"rocketmq-broker": "rocketmq"}
#: Listeners whose clients are told to connect to another one, when that is there.
_TOLD_INSTEAD = {"rocketmq": "rocketmq-broker"}
#: Old clients of RocketMQ connect to this many ports below the one they are told, which they call
#: the VIP channel.
_VIP_DISTANCE = 2
_VIP = "rocketmq-vip"
#: Listeners whose clients get message ids with this node's address in them.
_HAVE_ADDRESSES_IN_IDS = frozenset({"rocketmq", "rocketmq-broker", "any"})
#: Nodes among themselves have this part of the memory budget, in addition to it.
_PEER_BUDGET_SHARE = 4


class Node:
    """One node: a log, a broker, and the listeners through which clients reach it."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        *,
        disk: Disk,
        background: Background,
        clock: Clock,
        random: Random,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
    ) -> None:
        """Opens the data directory. Raises `DirectoryInUseError`, `FormatError`, `OSError`."""
        self.settings = settings
        self.clock = clock
        self._loop = loop
        nodes = settings.cluster_nodes
        # Beside what clients may use: replication goes on when they have used up theirs.
        self.peer_budget = MemoryBudget(
            settings.memory_budget_bytes // _PEER_BUDGET_SHARE, bounds_working=False
        )
        connections = PeerConnections(self._hello, loop, random, self.peer_budget)
        self.peers = Peers(connections, self._addresses, nodes)
        self._etcd = _etcd_client(settings, loop)
        self.store = LogStore(
            disk,
            background,
            loop,
            clock,
            random,
            Durability(settings.durability),
            open_segments_max=open_segments_max,
        )
        try:
            self.broker = Broker(
                self.store,
                settings,
                loop,
                clock,
                random,
                dialect=KafkaGroupDialect(),
                links=self.peers if settings.is_clustered else None,
                etcd=self._etcd,
            )
        except BaseException:
            self.store.abandon()
            raise
        self.broker.host_names = CachedHostNames(loop, look_up_beside(loop.call_soon_threadsafe))
        self.broker.on_fatal = self._fatal
        self.broker.after_commit = self._send_replies
        self.broker.topics.on_created = self._created
        self.captures = Captures(
            self.broker.context,
            self.broker.partitions,
            self.broker.topics,
            self.broker.changes,
            self.broker.coordination.transactions.coordinator,
            self.broker.rpc,
        )
        self.broker.attach(self.captures)
        self.capture_processes = CaptureProcesses(loop, self._kafka_address, _spool(disk))
        if settings.listeners:
            self.captures.runner = self.capture_processes
        self.budget = MemoryBudget(settings.memory_budget_bytes)
        self.connections = ConnectionCount(self._connection_caps)
        self._log_of_connections = LogLimiter(logging.getLogger("dragoman.net"), loop)
        self.channels: dict[str, Channels] = {}
        self._stalled = StalledPeers(self.budget, self.channels, loop)
        #: By listener and protocol, which are two names only on `any`.
        self.services: dict[tuple[str, str], Service[Broker]] = {}
        self.listeners: list[OpenListener] = []
        #: Set when the node cannot go on; the reason is in `failure`.
        self.failed = asyncio.Event()
        self.failure: OSError | DragomanError | None = None
        self.started_at = clock.monotonic()
        #: Whether old RocketMQ clients find the broker at their port, too (`_VIP_DISTANCE`).
        self.serves_vip = True
        self._http: object = None
        self._serves_clients = True
        self.broker.cluster.replication.on_room = self._room_changed
        self._sweeper: Handle | None = None

    # ---- start

    async def start(self) -> None:
        """Recover, register, open the listeners. Raises `ConfigError` for one that cannot open.

        A start that fails lets go of the data directory and of what was opened.
        """
        try:
            await future_of(self.broker.load())
            self.broker.recover()
            # Where they are is told to the others; they serve when the cluster knows this node.
            for listener in self.settings.listeners:
                await self._open(listener)
            await self._join()
            for opened in self.listeners:
                await opened.serve()
            await self._open_vip()
        except (Exception, asyncio.CancelledError):
            self._give_up()
            # What was cancelled ends.
            await asyncio.sleep(0)
            raise
        self._sweep()
        self._stalled.watch()

    async def _join(self) -> None:
        started = self._called_back(self.broker.start)
        if self.settings.is_clustered:
            peer = next(each for each in self.listeners if each.name == "peer")
            await peer.serve()
            self.peers.begin(self.broker)
        await started

    def _called_back(self, begin: Callable[[Acknowledge], None]) -> asyncio.Future[None]:
        """Begun now; whoever wants to wait for it can."""
        finished: asyncio.Future[None] = self._loop.create_future()

        def done(error: DragomanError | None) -> None:
            if finished.done():
                # Told to stop meanwhile.
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)

        begin(done)
        return finished

    def _give_up(self) -> None:
        self.captures.kill_all()
        for listener in self.listeners:
            listener.close()
        self.peers.connections.close()
        if self.broker.is_recovered:
            self.broker.stop()
            self.store.close()
        else:
            # The journal may hold records that were not replayed: a clean stop would forget them.
            self.broker.quorum.fail()
            self.store.abandon()
        if self._etcd is not None:
            self._etcd.close()

    async def _open(self, listener: Listener) -> None:
        factory = self._factory(listener)
        try:
            opened = await open_listener(listener, self._loop, factory, LISTEN_BACKLOG)
        except ConfigError as error:
            if listener.explicit:
                raise
            log.warning("%s; not opened (use --listen %s=off to silence)", error, listener.name)
            return
        self.listeners.append(opened)
        if opened.advertised is not None and listener.name in _HAVE_ADDRESSES_IN_IDS:
            # Begun here, so that the first client finds it done.
            self.broker.host_names.ipv4(opened.advertised.host)

    async def _open_vip(self) -> None:
        """After the others: a port that was asked for is not taken from whoever asked.

        A port that the system has chosen has neighbours that it has promised to others.
        """
        broker = self._opened("rocketmq-broker")
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
            self.listeners.append(opened)

    def _opened(self, name: str) -> OpenListener | None:
        return next((each for each in self.listeners if each.name == name), None)

    def _factory(self, listener: Listener) -> Callable[[], asyncio.BaseProtocol]:
        match listener.name:
            case "http":
                return self._http_factory()
            case "peer":
                return self._channel_factory("peer", self.peers.connections.session)
            case "any":
                return self._channel_factory("any", self._routing())
            case name:
                protocol = _PROTOCOLS.get(name, name)
                if protocol not in _SERVICES:
                    raise ConfigError(f"listener {name!r} has no server in this release")
                return self._channel_factory(name, self._service(protocol, name))

    def _service(self, protocol: str, listener: str) -> Callable[[Channel], Session]:
        """What makes the sessions of a protocol's clients that come in on a listener."""
        told = _TOLD_INSTEAD.get(listener, listener)
        if all(each.name != told for each in self.settings.listeners):
            told = listener
        service = self.services.get((told, protocol))
        if service is None:
            make = _load(_SERVICES[protocol])
            service = make(self.broker, self.budget, self._advertised(told))
            service.listener = told
            self.services[told, protocol] = service
        make_session: Callable[..., Session] = _load(_SESSIONS[protocol])
        return partial(make_session, service=service)

    def _routing(self) -> Callable[[Channel], Session]:
        """Replies advertise the listener that a client came in on, also when that is `any`."""
        made: dict[str, Callable[[Channel], Session]] = {}

        def service(protocol: str, channel: Channel) -> Session:
            if protocol not in made:
                made[protocol] = self._service(protocol, "any")
            return made[protocol](channel)

        services = {protocol: partial(service, protocol) for protocol in _SERVICES}

        def session(channel: Channel) -> Session:
            timeout_s = self.broker.settings.any_detection_timeout_ms / 1000
            return DetectionSession(channel, services, self._loop, timeout_s)

        return session

    def _channel_factory(
        self, name: str, make_session: Callable[[Channel], Session]
    ) -> Callable[[], asyncio.BaseProtocol]:
        closes_idle = name not in _NEVER_IDLE
        is_for_clients = name != "peer"
        if name not in self.channels:
            self.channels[name] = Channels(
                self.budget if is_for_clients else self.peer_budget,
                self._loop,
                closes_idle=closes_idle,
                connections=self.connections if is_for_clients else None,
                descriptor_max=self._descriptor_max(
                    DESCRIPTORS_LEFT_BY_CLIENTS if is_for_clients else DESCRIPTORS_LEFT_BY_NODES
                ),
                give_way=None if is_for_clients else self.peers.connections.give_way,
                limiter=self._log_of_connections,
            )
        channels = self.channels[name]

        def protocol() -> asyncio.BaseProtocol:
            if is_for_clients and not self._serves_clients:
                return Closed()
            return Channel(channels, make_session, self._loop)

        return protocol

    def _descriptor_max(self, left: int) -> Callable[[], int]:
        """The highest descriptor that a connection may have which leaves so many to others, and
        those of the files that the log may open later.
        """
        most = open_files_max()
        if left == DESCRIPTORS_LEFT_BY_CLIENTS:
            left = max(left, most // 8)
        # However few there are, some connections are taken.
        kept = max(most - left, most // 2)
        return lambda: kept - min(self.store.files.unopened, most // 4)

    def _connection_caps(self) -> ConnectionCaps:
        settings = self.broker.settings
        return ConnectionCaps(
            settings.max_connections,
            settings.max_connections_per_ip,
            connections_by_address(settings),
        )

    def _room_changed(self, has_room: bool) -> None:
        """A node whose disk is full cannot even learn who leads now what it led: clients are to ask
        the others.
        """
        self._serves_clients = has_room
        if not has_room:
            for name, channels in self.channels.items():
                if name != "peer":
                    channels.abort_all()

    def _advertised(self, name: str) -> Callable[[Channel], tuple[str, int]]:
        """What a client of that listener is told to connect to."""

        def advertised(channel: Channel) -> tuple[str, int]:
            opened = self._opened(name)
            if opened is None:
                # Its port was taken; on the one that the client has found it is served as well.
                return channel.local_address
            return opened.address_for(channel.local_address)

        return advertised

    def _hello(self) -> Hello:
        node = self.store.node
        return Hello(
            node_id=self.settings.node_id,
            incarnation=node.incarnation,
            cluster_id=self.broker.image.cluster_id,
            directory=node.directory_id,
            version_min=VERSION_MIN,
        )

    def _addresses(self) -> dict[str, str]:
        """Where others reach the listeners; a listener on all addresses is reached where the other
        nodes reach this one.
        """
        own = self.settings.cluster_nodes.get(self.settings.node_id)
        if own is None:
            own = next((each.advertised for each in self.listeners if each.name == "peer"), None)
        found: dict[str, str] = {}
        for opened in self.listeners:
            address = opened.advertised
            if address is None and own is not None:
                address = Address(own.host, opened.bound.port)
            if address is not None:
                found[opened.name] = str(address)
        return found

    def _kafka_address(self) -> str:
        """Where a process on this machine finds Kafka's protocol; empty: nowhere."""
        opened = self._opened("kafka") or self._opened("any")
        if opened is None:
            return ""
        if opened.bound.is_wildcard:
            return str(
                Address("::1" if ":" in opened.bound.host else "127.0.0.1", opened.bound.port)
            )
        return str(opened.bound)

    def hidden_from(self, topic: str) -> tuple[str, ...]:
        """Protocols that this node serves and whose clients cannot name the topic."""
        opened = {each.name for each in self.settings.listeners}
        served = {_PROTOCOLS.get(name, name) for name in opened}
        return tuple(
            protocol
            for protocol, says in _NAMES.items()
            if (protocol in served or "any" in opened) and not _load(says)(topic)
        )

    def _created(self, topic: str) -> None:
        hidden = self.hidden_from(topic)
        if hidden:
            log.info("topic %r is hidden from clients of %s", topic, ", ".join(hidden))

    def mlog_events(self) -> list[bytes]:
        """The metadata as the events that a cluster of mlog would have agreed on."""
        from dragoman.protocols.mlog.handlers.metadata_events import encode_event, events_of

        return list(map(encode_event, events_of(self.broker.image)))

    def _http_factory(self) -> Callable[[], asyncio.BaseProtocol]:
        # Cheap: what serves HTTP is imported with the first connection.
        from dragoman.api.listener import HttpListener
        from dragoman.api.node import BrokerView

        self._http = http = HttpListener(
            BrokerView(self),
            self.clock,
            self._loop,
            descriptor_max=self._descriptor_max(DESCRIPTORS_LEFT_BY_HTTP),
            give_way=self.peers.connections.give_way,
        )
        return http.protocol

    def _send_replies(self) -> None:
        """What a commit has acknowledged leaves at once, not with the next loop turn."""
        for channels in self.channels.values():
            channels.send_all()

    def _sweep(self) -> None:
        settings = self.broker.settings
        own_idle_ms = {"mlog": settings.mlog_connections_max_idle_ms}
        for name, channels in self.channels.items():
            idle_ms = own_idle_ms.get(name, settings.connections_max_idle_ms)
            if idle_ms >= 0:
                channels.close_idle(self._loop.time() - idle_ms / 1000)
        self._sweeper = self._loop.call_later(IDLE_SWEEP_INTERVAL_S, self._sweep)

    # ---- stop

    def _fatal(self, error: OSError | DragomanError) -> None:
        self.failure = error
        self.failed.set()

    async def stop(self) -> None:
        """Answer everybody, make everything durable, close. The next start is instant."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stalled.stop()
        await self._end_captures()
        await self._hand_over()
        for stop_accepting in (OpenListener.pause, OpenListener.close):
            for listener in self.listeners:
                stop_accepting(listener)
            for _ in range(ACCEPT_TURNS):
                await asyncio.sleep(0)
        self.broker.stop()
        self.peers.connections.close()
        if self._etcd is not None:
            # The lease is given back, and others need not wait for its end.
            await self._etcd.finish(ETCD_CLOSE_GRACE_S)
        for channels in self.channels.values():
            channels.close_all()
        if self._http is not None:
            from dragoman.api.listener import HttpListener

            assert isinstance(self._http, HttpListener)
            await self._http.close(HTTP_CLOSE_GRACE_S)
        await self._connections_gone()
        # What was cancelled ends.
        await asyncio.sleep(0)
        self.store.close()

    async def abandon(self) -> None:
        """As if the process were killed: nothing is said, answered or made durable."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stalled.stop()
        self.captures.kill_all()
        await self.capture_processes.closed()
        self.store.abandon()
        if self._etcd is not None:
            self._etcd.close()
        self.broker.cluster.stop()
        self.peers.connections.close()
        for listener in self.listeners:
            listener.close()
        for channels in self.channels.values():
            channels.abort_all()
        await self._connections_gone()
        # What was cancelled ends.
        await asyncio.sleep(0)

    async def _end_captures(self) -> None:
        """While this node can still take their last transactions."""
        await future_of(self.captures.stop_all())
        await self.capture_processes.closed()

    async def _hand_over(self) -> None:
        """While clients are still served: who leads what is known to them before this node goes."""
        if not self.settings.is_clustered or self.failure is not None or not self.broker.is_ready:
            return
        try:
            async with asyncio.timeout(HAND_OVER_TIMEOUT_S):
                await future_of(self.broker.cluster.hand_over())
        except TimeoutError:
            log.warning("no other node has taken over what this node leads")

    async def _connections_gone(self) -> None:
        """Peers get a moment to take their last replies; those that do not are cut off."""
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

    def describe_listeners(self) -> list[str]:
        lines = []
        for opened in self.listeners:
            if opened.name == _VIP:
                # Nobody is told of it: clients that want it find it by themselves.
                continue
            advertised = opened.advertised or "the address each client came in on"
            lines.append(f"{opened.name} on {opened.bound}, advertised as {advertised}")
        return lines


def run(settings: Settings, announce: Callable[[str], None]) -> int:
    """Run a node until a signal; returns the exit status. Start-up faults are raised.

    0 after a clean stop, 1 when the log or the metadata failed, 130 when a second signal forced
    the end.
    """
    import uvloop

    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_serve(settings, loop, announce))
    finally:
        loop.close()


async def _serve(
    settings: Settings, loop: asyncio.AbstractEventLoop, announce: Callable[[str], None]
) -> int:
    from dragoman.log.flusher import Flusher

    stopping = asyncio.Event()

    def stop_requested() -> None:
        if stopping.is_set():
            log.warning("forced to stop; the next start will recover")
            os._exit(130)
        stopping.set()

    allow_open_files()
    disk = open_data_directory(settings.data)
    try:
        node = Node(
            # Others on this machine, such as Spark, are told where the data is.
            msgspec.structs.replace(settings, data=disk.root),
            loop,
            disk=disk,
            background=Flusher(disk.root, loop),
            clock=SystemClock(),
            random=system_random(),
            # Where few are allowed, the log leaves most of them to others.
            open_segments_max=min(OPEN_SEGMENTS_MAX, open_files_max() // 4),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_requested)
        if not await _started(node, stopping):
            return _exit_status(node)
    except (OSError, CorruptionError) as error:
        cure = _cure(settings, error) if isinstance(error, CorruptionError) else ""
        raise ConfigError(f"data directory {settings.data}: {error}{cure}") from error
    _calm_garbage_collector()
    for line in node.describe_listeners():
        announce(line)
    announce("ready")
    await _first_of(stopping, node.failed)
    await node.stop()
    return _exit_status(node)


async def _started(node: Node, stopping: asyncio.Event) -> bool:
    """False: the node was told to stop, or its log failed, while it waited for the others."""
    starting = asyncio.ensure_future(node.start())
    ended = asyncio.ensure_future(_first_of(stopping, node.failed))
    await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
    is_started = starting.done()
    for each in (starting, ended):
        each.cancel()
    await asyncio.wait((starting, ended))
    if is_started:
        starting.result()
    return is_started


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)


def _load(place: str) -> Any:
    """What `module:name` stands for; imported when it is first needed."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _exit_status(node: Node) -> int:
    if node.failure is not None:
        log.critical("stopped: %s", node.failure)
        return 1
    return 0


async def work_offline(settings: Settings, work: Callable[[Broker, Acknowledge], None]) -> None:
    """Do something with a data directory that no node uses: a node without listeners does it.

    Raises what the work ends with, and `ConfigError`, `DirectoryInUseError`, `FormatError`.
    """
    from dragoman.log.flusher import Flusher

    loop = asyncio.get_running_loop()
    disk = open_data_directory(settings.data)
    node = Node(
        msgspec.structs.replace(settings, data=disk.root, listeners=()),
        loop,
        disk=disk,
        background=Flusher(disk.root, loop),
        clock=SystemClock(),
        random=system_random(),
    )
    await node.start()
    finished: asyncio.Future[DragomanError | None] = loop.create_future()
    try:
        work(node.broker, finished.set_result)
        error = await finished
    finally:
        await node.stop()
    if error is not None:
        raise error


def _etcd_client(settings: Settings, loop: asyncio.AbstractEventLoop) -> HttpClient | None:
    """The way to etcd, for a node whose metadata is there."""
    if settings.metadata_quorum != "etcd":
        return None
    # Only such nodes pay for it.
    from dragoman.net.http_client import HttpClient

    return HttpClient(etcd_addresses(settings), loop)


def _spool(disk: Disk) -> str:
    """The directory in which captures spool transactions that are too large for memory."""
    if isinstance(disk, RealDisk):
        return os.path.join(disk.root, "spool")
    return os.path.join(tempfile.gettempdir(), f"dragoman-spool-{os.getpid()}-{id(disk)}")


def _cure(settings: Settings, error: CorruptionError) -> str:
    """What helps a node that damage keeps from starting. In a cluster, others have all it had."""
    if len(settings.cluster) < 2:
        data = settings.data
        if error.path == NODE_FILE:
            return (
                f"; put it back from a backup, or run `dragoman log adopt {data}`, which makes "
                "another from what is there"
            )
        return (
            f"; `dragoman log verify {data}` lists all damage, `dragoman log repair {data}` mends"
        )
    number = settings.node_id
    return (
        f"; the other nodes have it: `dragoman cluster remove {number} --keep-replicas`, start "
        f"with an empty directory, `dragoman cluster add {number}@{settings.cluster_nodes[number]}`"
    )


def _calm_garbage_collector() -> None:
    """What was made at start stays; a busy loop makes few cycles and many short-lived values."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def open_data_directory(path: str) -> RealDisk:
    """Raises `ConfigError` when the directory cannot be made or written."""
    try:
        disk = RealDisk(path, min(SPARE_FILES, open_files_max() // 8))
    except OSError as error:
        raise ConfigError(f"data directory {path}: {error.strerror or error}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"data directory {path} is not writable")
    return disk
