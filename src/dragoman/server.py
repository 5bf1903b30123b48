"""The composition root: puts a node together, runs it, and takes it down.

The only module that knows every concrete class. `Node` is also what the in-process broker for tests
and the simulator build on: it is given its disk, clock, randomness and loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from dragoman.api.node_lists import OwnLists
from dragoman.api.node_service import serve_other_nodes
from dragoman.broker.broker import Broker, audit_file_of
from dragoman.captures.kafka_access import local_access
from dragoman.captures.logins import CaptureLogins
from dragoman.captures.processes import CaptureProcesses
from dragoman.captures.rights import CaptureAuthorizer
from dragoman.captures.service import Captures
from dragoman.config.consistency import etcd_addresses, etcd_has_tls
from dragoman.config.settings import Settings
from dragoman.data_directory import SPOOL
from dragoman.errors import DragomanError
from dragoman.limits import (
    ETCD_CLOSE_GRACE_S,
    HAND_OVER_TIMEOUT_S,
    HISTORY_DELAY_S,
    HISTORY_PAUSE_S,
    OPEN_SEGMENTS_MAX,
)
from dragoman.listeners import Listeners
from dragoman.log.store import Durability, LogStore
from dragoman.net.admission import MemoryBudget
from dragoman.net.future import future_of
from dragoman.net.hosts import CachedHostNames, look_up_beside
from dragoman.net.token_key_source import fetch_beside
from dragoman.operating_system import RealDisk, RealPlainFiles, RealSecrets
from dragoman.protocols.kafka.handlers.consumer_protocol import KafkaGroupDialect
from dragoman.security.access import Caller, Principal
from dragoman.security.audit import AUDIT_FILE, AuditFile, login
from dragoman.security.authorizer import NODE_KIND
from dragoman.security.passwords import PasswordHasher
from dragoman.security.secrets import ClusterKeys
from dragoman.world import (
    Background,
    Clock,
    Disk,
    DiskSecrets,
    Handle,
    PlainFiles,
    Random,
    SecretSource,
)

if TYPE_CHECKING:
    import ssl

    from dragoman.api.metrics.node import NodeMetrics
    from dragoman.api.operations import NodeView
    from dragoman.cluster.etcd.calls import Gateway
    from dragoman.net.http_client import HttpClient
    from dragoman.net.peer_frames import Hello
    from dragoman.peers import Peers
    from dragoman.telemetry.history.recorder import Recorder

log = logging.getLogger("dragoman.server")
#: What the history imports, each in a turn of the loop of its own.
_OF_HISTORY: Final = (
    "dragoman.telemetry.catalogue",
    "dragoman.telemetry.history.figures",
    "dragoman.telemetry.snapshot",
    "dragoman.telemetry.history.ring",
    "dragoman.telemetry.history.sampler",
    "dragoman.telemetry.history.files",
    "dragoman.telemetry.history.recorder",
    "dragoman.api.metrics.log",
    "dragoman.api.metrics.lag",
    "dragoman.api.metrics.replicas",
    "dragoman.api.metrics.node",
)
_OVER: Final = object()
#: Connections between nodes have this share of the memory budget, in addition to the budget.
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
        plain_files: PlainFiles | None = None,
        hasher: PasswordHasher | None = None,
    ) -> None:
        """Opens the data directory. Passwords are hashed inline by default.

        Raises `DirectoryInUseError`, `FormatError`, `OSError`.
        """
        self.settings = settings
        self.clock = clock
        self.started_at = clock.monotonic()
        self.started_at_wall_ms = clock.wall_ms()
        #: Set when the node cannot continue; the reason is in `failure`.
        self.failed = asyncio.Event()
        #: Whether other nodes or clients may know this node. Until then, a directory that was new
        #: may be forgotten.
        self.is_known = False
        self.failure: OSError | DragomanError | None = None
        self._view: NodeView | None = None
        self._own_lists: OwnLists | None = None
        self._metrics: NodeMetrics | None = None
        #: None until a moment after the start.
        self.history: Recorder | None = None
        self._history_steps: Iterator[None] = iter(())
        self._history_timer: Handle | None = None
        self._loop = loop
        self.peer_budget = MemoryBudget(
            settings.memory_budget_bytes // _PEER_BUDGET_SHARE, bounds_working=False
        )
        source = _secret_source(disk)
        #: None: this node neither calls other nodes nor serves them.
        self.peers = self._made_peers(loop, random, source)
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
        secrets = ClusterKeys(source, settings.cluster_key_file, random)
        try:
            self.broker = Broker(
                self.store,
                settings,
                loop,
                clock,
                random,
                dialect=KafkaGroupDialect(),
                links=self.peers if settings.is_clustered else None,
                etcd=_etcd_gateway(self._etcd, settings, secrets.resolve),
                hasher=hasher,
                secret_source=source,
                audit_file=_audit_file(settings, disk),
            )
        except BaseException:
            self.store.abandon()
            raise
        connections = None if self.peers is None else self.peers.connections
        if connections is not None:
            self.broker.on_reconfigured.append(connections.recheck)
        self.listeners = Listeners(
            self.broker,
            settings,
            loop,
            clock,
            connections,
            self.peer_budget,
            unopened_files=lambda: self.store.files.unopened,
            http_view=self._http_view,
            plain_files=plain_files if plain_files is not None else RealPlainFiles(),
        )
        self.broker.on_reconfigured.append(self.listeners.reexamine)
        self.broker.host_names = CachedHostNames(loop, look_up_beside(loop.call_soon_threadsafe))
        self.broker.logins.fetch_keys = fetch_beside(loop.call_soon_threadsafe, clock)
        self.broker.on_fatal = self._fatal
        self.broker.after_commit = self.listeners.send_replies
        self.broker.topics.on_created = self._created
        self.broker.cluster.replication.on_room = self.listeners.accept_clients
        authorizer = CaptureAuthorizer(self.broker.image, self.broker.authorizer)
        self.broker.authorizer = self.broker.context.authorizer = authorizer
        self.captures = Captures(
            self.broker.context,
            self.broker.partitions,
            self.broker.topics,
            self.broker.changes,
            self.broker.coordination.transactions.coordinator,
            self.broker.rpc,
            self.broker.keys,
            self.broker.cluster_key,
            self.broker,
        )
        self.broker.attach(self.captures)
        serve_other_nodes(
            self.broker, self.broker.leader_queues, lambda: self.history, self.own_lists
        )
        logins = CaptureLogins(self.broker.image, self.broker.keys, random)
        self.broker.logins.processes = logins
        self.capture_processes = CaptureProcesses(
            loop,
            lambda: local_access(self.listeners.opened, self.broker.settings),
            _spool(disk),
            self.broker.keys.resolve,
            logins.credentials,
        )
        if settings.listeners:
            self.captures.runner = self.capture_processes

    def _made_peers(
        self, loop: asyncio.AbstractEventLoop, random: Random, source: SecretSource
    ) -> Peers | None:
        settings = self.settings
        has_listener = any(each.base == "peer" for each in settings.listeners)
        if not settings.is_clustered and not has_listener:
            return None
        # Imported here: a node on its own starts without them.
        from dragoman.net.peer_connections import PeerConnections
        from dragoman.net.peer_security import ConfiguredPeers
        from dragoman.peers import Peers

        security = ConfiguredPeers(
            lambda: self.broker.settings, partial(source.read, is_private=True)
        )
        connections = PeerConnections(self._hello, loop, random, self.peer_budget, security)
        connections.on_judged.append(self._node_judged)
        return Peers(connections, self._addresses, settings.cluster_nodes)

    # ---- start

    async def start(self) -> None:
        """Recover, register, open the listeners. Raises `ConfigError` for one that cannot open.

        A start that fails releases the data directory and closes what was opened.
        """
        try:
            await future_of(self.broker.load())
            self.broker.recover()
            # The addresses are part of the registration, so the listeners are bound before it. They
            # serve once the cluster knows this node.
            await self.listeners.open_all()
            if isinstance(self.store.disk, RealDisk):
                await self.listeners.open_operator_socket(self.store.disk.root)
                await self.listeners.open_console_socket(self.store.disk.root)
            self.is_known = self.settings.is_clustered or self._etcd is not None
            await self._join()
            self.is_known = True
            await self.listeners.serve()
            self._history_steps = self._begin_history()
            self._history_timer = self._loop.call_later(HISTORY_DELAY_S, self._prepare_history)
        except (Exception, asyncio.CancelledError):
            self._give_up()
            # Let cancelled tasks end.
            await asyncio.sleep(0)
            raise

    def _begin_history(self) -> Iterator[None]:
        """In many turns of the loop: importing takes a few milliseconds."""
        for module in _OF_HISTORY:
            import_module(module)
            yield
        from dragoman.telemetry.history.recorder import Recorder

        self.history = Recorder(
            self.metrics.own,
            self.store.disk,
            self._loop,
            self.clock,
            lambda: self.store.is_disk_full,
            self.started_at,
        )
        self.history.begin()

    def _prepare_history(self) -> None:
        if next(self._history_steps, _OVER) is not _OVER:
            self._history_timer = self._loop.call_later(HISTORY_PAUSE_S, self._prepare_history)

    def _stop_history(self) -> None:
        if self._history_timer is not None:
            self._history_timer.cancel()
        if self.history is not None:
            self.history.stop()

    async def _join(self) -> None:
        # Begins now, and ends once peers are connected.
        started = future_of(self.broker.start())
        if self.settings.is_clustered and self.peers is not None:
            peer = self.listeners.find("peer")
            assert peer is not None
            self.broker.expect_settings()
            await peer.serve()
            self.peers.begin(self.broker)
        await started
        if self.settings.is_clustered:
            self.broker.settings_known()

    def _give_up(self) -> None:
        self._stop_history()
        self.captures.kill_all()
        self.listeners.close()
        self._close_peers()
        if self.broker.is_recovered:
            self.broker.stop()
            self.store.close()
        else:
            # The journal may hold records that were not replayed; a clean stop would discard them.
            self.broker.quorum.fail()
            self.store.abandon()
        if self._etcd is not None:
            self._etcd.close()

    # ---- what the parts ask of each other

    def _hello(self) -> Hello:
        from dragoman.net.peer_frames import VERSION_MIN, Hello

        node = self.store.node
        return Hello(
            node_id=self.settings.node_id,
            incarnation=node.incarnation,
            cluster_id=self.broker.image.cluster_id,
            directory=node.directory_id,
            version_min=VERSION_MIN,
        )

    def _addresses(self) -> dict[str, str]:
        return self.listeners.addresses()

    @property
    def metrics(self) -> NodeMetrics:
        if self._metrics is None:
            # Imported here: a node starts without them.
            from dragoman.api.metrics.node import NodeMetrics

            self._metrics = NodeMetrics(self)
        return self._metrics

    def own_lists(self) -> OwnLists:
        """What this node alone knows, for the HTTP API of any node."""
        if self._own_lists is None:
            # Imported here: most nodes are never asked.
            from dragoman.api.connections import ConnectionService
            from dragoman.api.damage import DamageService
            from dragoman.api.delayed import DelayedService
            from dragoman.api.pipelines import PipelineReports

            self._own_lists = OwnLists(
                ConnectionService(self.broker, self.listeners, self.clock),
                DamageService(self.broker),
                DelayedService(self.broker),
                PipelineReports(self.clock, self.broker),
            )
        return self._own_lists

    def _http_view(self) -> NodeView:
        """Shared by the listeners with HTTP: each shows the pipelines that report to another."""
        if self._view is None:
            # Imported here: only nodes with a connection by HTTP need it.
            from dragoman.api.node import BrokerView

            self._view = BrokerView(self)
        return self._view

    def _created(self, topic: str) -> None:
        hidden = self.listeners.hidden_from(topic)
        if hidden:
            log.info("topic %r is hidden from clients of %s", topic, ", ".join(hidden))

    def mlog_events(self) -> list[bytes]:
        """The metadata as events of an mlog cluster."""
        from dragoman.protocols.mlog.handlers.metadata_events import encode_event, events_of

        return list(map(encode_event, events_of(self.broker.image)))

    def _node_judged(self, node: int, host: str, refusal: str) -> None:
        caller = Caller(Principal(NODE_KIND, str(node)), host)
        event = login("peer", caller, "peer", succeeded=not refusal, reason=refusal)
        self.broker.audit.record(event)

    def _fatal(self, error: OSError | DragomanError) -> None:
        self.failure = error
        self.failed.set()

    # ---- stop

    async def stop(self) -> None:
        """Answer every request, make everything durable, close. The next start is instant."""
        self._stop_history()
        self.listeners.stop_watching()
        # Before the log stops, so that captures can commit their last transactions.
        await future_of(self.captures.stop_all())
        await self.capture_processes.closed()
        await self._hand_over()
        await self.listeners.stop_accepting()
        self.broker.stop()
        self._close_peers()
        if self._etcd is not None:
            # Revokes the etcd lease, so that the other nodes need not wait until it expires.
            await self._etcd.finish(ETCD_CLOSE_GRACE_S)
        await self.listeners.close_connections()
        # Let cancelled tasks end.
        await asyncio.sleep(0)
        self.store.close()

    def _close_peers(self) -> None:
        if self.peers is not None:
            self.peers.connections.close()

    async def _hand_over(self) -> None:
        """Hand the leaderships over while clients are still served: when this node stops, its
        clients know the new leaders.
        """
        if not self.settings.is_clustered or self.failure is not None or not self.broker.is_ready:
            return
        led, began = self.broker.cluster.replication.led_count, self.clock.monotonic()
        try:
            async with asyncio.timeout(HAND_OVER_TIMEOUT_S):
                await future_of(self.broker.cluster.hand_over())
        except TimeoutError:
            log.warning("no other node has taken over the partitions that this node leads")
        else:
            fields = {"partitions": led, "ms": round((self.clock.monotonic() - began) * 1000)}
            log.info("leaderships handed over", extra=fields)

    async def abandon(self) -> None:
        """Simulate a killed process: no request is answered, nothing more is made durable."""
        self._stop_history()
        self.listeners.stop_watching()
        self.captures.kill_all()
        await self.capture_processes.closed()
        self.store.abandon()
        if self._etcd is not None:
            self._etcd.close()
        self.broker.cluster.stop()
        self._close_peers()
        self.listeners.close()
        await self.listeners.abort_connections()
        # Let cancelled tasks end.
        await asyncio.sleep(0)


def _etcd_client(settings: Settings, loop: asyncio.AbstractEventLoop) -> HttpClient | None:
    """The client of the etcd that holds the metadata, if an etcd holds it."""
    if settings.metadata_quorum != "etcd":
        return None
    # Imported here: other nodes start without it.
    from dragoman.net.http_client import HttpClient

    return HttpClient(etcd_addresses(settings), loop, tls=_etcd_tls(settings))


def _etcd_tls(settings: Settings) -> Callable[[], ssl.SSLContext] | None:
    if not etcd_has_tls(settings):
        return None
    from dragoman.net.tls.contexts import client_context

    return partial(
        client_context,
        settings.metadata_etcd_ca_file,
        settings.metadata_etcd_certificate_file,
        settings.metadata_etcd_key_file,
        "TLS with etcd",
    )


def _etcd_gateway(
    client: HttpClient | None, settings: Settings, resolve: Callable[[str], str]
) -> Gateway | None:
    """How the metadata reaches its etcd; `resolve` reads a secret that is stored elsewhere."""
    if client is None or not settings.metadata_etcd_user:
        return client
    from dragoman.cluster.etcd.authentication import AuthenticatedGateway, Credentials

    def credentials() -> Credentials:
        password = resolve(settings.metadata_etcd_password)
        return Credentials(settings.metadata_etcd_user, password)

    return AuthenticatedGateway(client, credentials)


def _secret_source(disk: Disk) -> SecretSource:
    return RealSecrets(disk.root) if isinstance(disk, RealDisk) else DiskSecrets(disk)


def _audit_file(settings: Settings, disk: Disk) -> AuditFile:
    directory, _, name = settings.audit_log_file.rpartition("/")
    if not isinstance(disk, RealDisk):
        return audit_file_of(settings, disk)
    # A disk of its own, for another directory, and so that only this user can read the file.
    path = os.path.join(disk.root, directory) if name else disk.root
    return audit_file_of(settings, RealDisk(path, file_mode=0o600), name or AUDIT_FILE)


def _spool(disk: Disk) -> str:
    """The directory in which captures spool transactions that are too large for memory."""
    if isinstance(disk, RealDisk):
        return os.path.join(disk.root, SPOOL)
    # Imported here: only tests have other disks.
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"dragoman-spool-{os.getpid()}-{id(disk)}")
