"""Real brokers and clusters inside the test process.

    with EphemeralBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    async with EphemeralBroker(storage="directory") as broker:
        ...

    with EphemeralCluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders"))

    with EphemeralBroker(tls=True) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SSL",
                "ssl.ca.location": broker.ca_file,
            }
        )

Each node runs on an event loop of its own in a thread of its own, so it works beside any other
loop. Clients and other nodes reach it over loopback TCP as they would reach a broker in production,
at free ports.

A broker with `storage="memory"` (the default) touches no disk. `"directory"` keeps a data
directory, a temporary one unless `directory` is given, with the full durability of a node. The
nodes of a cluster have disks in memory that outlive them: a node that is killed and started again
has everything that it acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Literal, Self, TypeVar

from dragoman.broker.administration import Actor
from dragoman.broker.broker import Broker
from dragoman.config.layers import Assignment, Flags, load
from dragoman.config.settings import Settings
from dragoman.data_directory import open_data_directory
from dragoman.net.future import future_of
from dragoman.net.password_hasher import ThreadedHasher
from dragoman.operating_system import SystemClock, system_random
from dragoman.security.access import Caller
from dragoman.security.key_file import KEY_BYTES, format_keys, new_key
from dragoman.security.secrets import KEY_FILE
from dragoman.server import Node
from dragoman.testing.assertions import GroupUnderTest, TopicUnderTest
from dragoman.testing.faults import Cut, Pause, WriteDelay, across
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.world import Background, Disk, DiskSecrets

Result = TypeVar("Result")
_START_SECONDS_MAX = 60.0


async def _create_users(broker: Broker, passwords: Mapping[str, str]) -> None:
    users = broker.access.users
    for name, password in passwords.items():
        if name not in users.known:
            verifiers = await broker.logins.verifiers(name, password)
            await users.create(name, verifiers, Actor(caller=Caller(), protocol="testing"))


class EphemeralBroker:
    """Start with `start` or as a context manager; a stopped one may be started again.

    `settings` are the keys of `dragoman serve --set`. A broker with `storage="directory"` keeps
    its data over `restart`, and over `stop` and `start` when it was given the directory; one in
    memory forgets it. `users` have these passwords. With users, the listeners require a login and
    the users may do everything, unless the settings `authentication` and `super.users` say
    otherwise.
    """

    def __init__(
        self,
        *,
        storage: Literal["memory", "directory"] = "memory",
        directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        listeners: tuple[str, ...] = ("kafka", "http"),
        users: Mapping[str, str] | None = None,
        tls: bool | Literal["optional"] = False,
    ) -> None:
        """With `tls`, all listeners demand TLS, or allow it, with a certificate for `localhost` and
        127.0.0.1 of an authority in `ca_file`. Settings of single listeners go before.
        """
        self._tls = tls
        self._certificates = ""
        self._storage = storage
        self._users = dict(users or {})
        self._directory = directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._overrides = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
        self._listeners = listeners
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._node: Node | None = None
        self._ports: dict[str, int] = {}
        #: Set for a node of a cluster, whose memory outlives it.
        self._memory: MemoryDisk | None = None
        self._write_delay = WriteDelay()
        self._cut = Cut()
        self._pause: Pause | None = None

    # ---- addresses

    def address(self, listener: str) -> str:
        """`HOST:PORT` of an open listener; stays the same over `stop` and `start`."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def bootstrap_servers(self) -> str:
        """`HOST:PORT` for Kafka clients."""
        return self.address("kafka")

    @property
    def http_url(self) -> str:
        """`http://HOST:PORT`, or `https` with `tls`."""
        scheme = "https" if self._tls is True else "http"
        return f"{scheme}://{self.address('http')}"

    @property
    def ca_file(self) -> str:
        """Path of the authority's certificate, which clients of a broker with `tls` trust."""
        return os.path.join(self._certificate_directory, "ca.pem")

    def client_certificate(self, name: str) -> tuple[str, str]:
        """Paths of a certificate with the subject `CN=name`, and of its key."""
        from dragoman.certificates import authority_in, write_pair

        directory = self._certificate_directory
        return write_pair(directory, name, authority_in(directory).client(name))

    @property
    def _certificate_directory(self) -> str:
        """The directory of the broker's certificates; it lives as long as this object."""
        if not self._certificates:
            from dragoman.certificates import authority_in, write_pair

            name = self._certificates = tempfile.mkdtemp(prefix="dragoman-tls-")
            weakref.finalize(self, shutil.rmtree, name, ignore_errors=True)
            write_pair(name, "server", authority_in(name).server(["localhost", "127.0.0.1"]))
        return self._certificates

    def _tls_settings(self) -> dict[str, str]:
        if not self._tls:
            return {}
        directory = self._certificate_directory
        return {
            "tls": "required" if self._tls is True else self._tls,
            "ssl.certificate.file": os.path.join(directory, "server.pem"),
            "ssl.key.file": os.path.join(directory, "server-key.pem"),
            "ssl.ca.file": self.ca_file,
        }

    @property
    def data_directory(self) -> str:
        """The data directory of a broker with `storage="directory"`."""
        if self._directory is None:
            raise ValueError("this broker keeps nothing on disk")
        return self._directory

    # ---- topics and groups

    def topic(self, name: str) -> TopicUnderTest:
        """To create, write, read and assert."""
        return TopicUnderTest(name, self._run)

    def group(self, name: str) -> GroupUnderTest:
        """Offsets and lag, to read and assert."""
        return GroupUnderTest(name, self._run)

    def _run(self, work: Callable[[Broker], Coroutine[None, None, Result]]) -> Result:
        if self._node is None:
            raise RuntimeError("the broker is not running")
        return self._call(work(self._node.broker))

    # ---- faults

    def pause(self) -> None:
        """Hold the broker as SIGSTOP holds a process: connections stay open, and nothing is
        answered until `resume`.
        """
        if self._loop is None or self._pause is not None:
            raise RuntimeError("the broker is not running, or paused already")
        self._pause = Pause(self._loop)

    def resume(self) -> None:
        """End a pause, if there is one."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.end()

    def _cut_off(self, unreachable: Mapping[int, int]) -> None:
        async def cut(_broker: Broker) -> None:
            assert self._node is not None
            assert self._node.peers is not None
            self._cut.change(self._node.peers.connections, unreachable)

        self._run(cut)

    def slow_disk(self, seconds: float) -> None:
        """Let each write take so long from now on; 0 ends it. Only of a broker in memory."""
        if self._storage != "memory":
            raise ValueError("only a disk in memory can be slow")
        self._write_delay.seconds = seconds

    def fill_disk(self) -> None:
        """Leave no room on the disk: writes are refused until a moment after `free_disk`, and
        reads continue. Only of a running broker in memory.
        """
        self._memory_disk().fill()

    def free_disk(self) -> None:
        """Make room again."""
        self._memory_disk().empty()

    def _memory_disk(self) -> MemoryDisk:
        disk = None if self._node is None else self._node.store.disk
        if not isinstance(disk, MemoryDisk):
            raise ValueError("only the disk of a running broker in memory can be full")
        return disk

    # ---- life

    def start(self) -> Self:
        """Returns when the broker serves clients. Raises `ConfigError`, `DirectoryInUseError`."""
        if self._thread is not None:
            raise RuntimeError("the broker is running")
        # The same everywhere: the usual loop of Windows cannot watch sockets.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="dragoman-ephemeral", daemon=True
        )
        self._thread.start()
        try:
            self._call(self._open())
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """A clean stop: clients are answered, data made durable."""
        self.resume()
        if self._thread is None:
            return
        try:
            self._call(self._close())
        finally:
            self._end_loop()
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = self._directory = None

    def kill(self) -> None:
        """Simulate `kill -9`: no request is answered. With a directory, acknowledged records are
        kept for the next `start`.
        """
        self.resume()
        if self._thread is None:
            return
        try:
            self._call(self._die())
        finally:
            self._end_loop()

    def restart(self) -> None:
        """Stop and start again on the same ports and, with a directory, the same data."""
        kept, self._temporary = self._temporary, None
        self.stop()
        self._temporary = kept
        self.start()

    def _call(self, work: Coroutine[None, None, Result]) -> Result:
        assert self._loop is not None
        if self._pause is not None:
            work.close()
            raise RuntimeError("the broker is paused")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS_MAX)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        disk, background = self._open_storage(loop)
        settings = self._settings()
        node = Node(
            settings,
            loop,
            disk=disk,
            background=background,
            clock=SystemClock(),
            random=system_random(),
            hasher=ThreadedHasher(loop.call_soon_threadsafe),
        )
        if node.peers is not None:
            self._cut.attach(node.peers.connections)
        # Ports next to a port chosen by the system may belong to others, now or after a restart.
        node.listeners.serves_vip = False
        await node.start()
        await future_of(_create_users(node.broker, self._users))
        self._node = node
        self._ports = {each.name: each.bound.port for each in node.listeners.opened}

    def _settings(self) -> Settings:
        durability = "os" if self._storage == "memory" else "fsync"
        given = {"durability": durability, **self._tls_settings(), **self._overrides}
        if self._users:
            given.setdefault("authentication", "required")
            given.setdefault("super.users", ";".join(f"User:{name}" for name in self._users))
        if self._directory is not None:
            given["data"] = self._directory
        return load(
            file=None,
            environment={},
            flags=Flags(
                assignments=tuple(
                    Assignment("setting", name, value) for name, value in given.items()
                ),
                listen=tuple(
                    f"{name}=127.0.0.1:{self._ports.get(name, 0)}" for name in self._listeners
                ),
            ),
        ).settings

    def _open_storage(self, loop: asyncio.AbstractEventLoop) -> tuple[Disk, Background]:
        if self._storage == "memory":
            memory = self._memory
            if memory is None:
                memory = MemoryDisk(before_write=self._write_delay)
            return memory, ImmediateBackground(memory, loop)
        from dragoman.log.flusher import Flusher

        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="dragoman-")
            self._directory = self._temporary.name
        disk = open_data_directory(self._directory)
        return disk, Flusher(disk.root, loop)

    async def _close(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.stop()

    async def _die(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            await node.abandon()

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        self._loop = self._thread = None

    # ---- context managers

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)


class EphemeralCluster:
    """Nodes are numbered from 1 and are `EphemeralBroker`s in `nodes`. `settings` are the keys of
    `dragoman serve --set`, for all.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: tuple[str, ...] = ("kafka", "http"),
    ) -> None:
        ports, held = _held_ports(nodes)
        weakref.finalize(self, held.close)
        self._peer_ports = dict(enumerate(ports, 1))
        self._isolated: frozenset[int] = frozenset()
        cluster = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(ports, 1))
        self.nodes: dict[int, EphemeralBroker] = {}
        # As an operator does, so that the cluster can store secrets.
        key = format_keys([new_key(os.urandom(KEY_BYTES + 4))])
        for number in range(1, nodes + 1):
            given = {**(settings or {}), "node.id": str(number), "cluster": cluster}
            node = EphemeralBroker(settings=given, listeners=listeners)
            node._memory = MemoryDisk(before_write=node._write_delay)
            DiskSecrets(node._memory).create(KEY_FILE, key)
            self.nodes[number] = node
        self._running: set[int] = set()

    # ---- addresses

    def addresses(self, listener: str) -> str:
        """`HOST:PORT,HOST:PORT` of a listener on all nodes, running or not."""
        return ",".join(each.address(listener) for each in self.nodes.values())

    @property
    def bootstrap_servers(self) -> str:
        """Those of all nodes, for Kafka clients."""
        return self.addresses("kafka")

    # ---- topics and groups

    def topic(self, name: str) -> TopicUnderTest:
        """To create, write, read and assert, through a running node."""
        return TopicUnderTest(name, self._run)

    def group(self, name: str) -> GroupUnderTest:
        """Offsets and lag, to read and assert, through a running node."""
        return GroupUnderTest(name, self._run)

    def _run(self, work: Callable[[Broker], Coroutine[None, None, Result]]) -> Result:
        return self.nodes[self._any_number()]._run(work)

    # ---- leaders

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition, according to a running node; -1: there is none."""
        image = self._anyone().image
        return image.topics[topic].partitions[partition].leader

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """The leader of a partition, once there is one that is not `other_than`. Raises
        `TimeoutError`.
        """
        deadline = time.monotonic() + _START_SECONDS_MAX
        while (leader := self.leader(topic, partition)) in (-1, other_than):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} is still led by {leader} (-1: by none)")
            time.sleep(0.01)
        return leader

    def controller(self) -> int:
        """The node that leads the metadata; -1: there is none."""
        return self._anyone().quorum.leader

    def _anyone(self) -> Broker:
        node = self.nodes[self._any_number()]._node
        assert node is not None
        return node.broker

    def _any_number(self) -> int:
        """A node that answers, and that is cut off only if all are."""
        answering = [each for each in self._running if self.nodes[each]._pause is None]
        return min(answering, key=lambda each: (each in self._isolated, each))

    # ---- faults

    def pause(self, *numbers: int) -> None:
        """Hold nodes as SIGSTOP holds processes: connections stay open, and nothing is answered."""
        for number in numbers:
            self.nodes[number].pause()

    def resume(self, *numbers: int) -> None:
        """End the pauses of these nodes, or all."""
        for number in numbers or self.nodes:
            self.nodes[number].resume()

    def isolate(self, *numbers: int) -> None:
        """Cut the network between these nodes and the others, in place of an earlier cut. Clients
        still reach all nodes.
        """
        self._isolated = frozenset(numbers)
        cuts = across(numbers, self._peer_ports)
        for number in self._running:
            self.nodes[number]._cut_off(cuts[number])

    def heal(self) -> None:
        """End a cut of the network. The nodes connect again after a moment."""
        self.isolate()

    # ---- life

    def start(self, *numbers: int) -> Self:
        """Start these nodes, or all. The first time, all are needed to found the cluster."""
        self._all(EphemeralBroker.start, numbers or self.nodes)
        self._running.update(numbers or self.nodes)
        if len(self._running) == len(self.nodes):
            self._await_feature_level()
        return self

    def _await_feature_level(self) -> None:
        """Wait until the cluster uses what all its nodes know, a moment after the last has joined:
        before that it refuses captures and users.
        """
        deadline = time.monotonic() + _START_SECONDS_MAX
        image = self._anyone().image
        while image.feature_level < min(image.known_levels().values(), default=0):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster still uses feature level {image.feature_level}")
            time.sleep(0.01)

    def stop(self, *numbers: int) -> None:
        """Clean stops, one after the other: each node hands its leaderships over."""
        for number in numbers or sorted(self._running):
            self._running.discard(number)
            self.nodes[number].stop()

    def kill(self, *numbers: int) -> None:
        """Simulate `kill -9`."""
        self._running.difference_update(numbers)
        self._all(EphemeralBroker.kill, numbers)

    def _all(self, act: Callable[[EphemeralBroker], object], numbers: Iterable[int]) -> None:
        chosen = [self.nodes[number] for number in numbers]
        if chosen:
            with ThreadPoolExecutor(len(chosen)) as pool:
                list(pool.map(act, chosen))

    # ---- context managers

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        # All at once: no node is left to take over.
        self.kill(*self._running)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)


def _held_ports(count: int) -> tuple[list[int], ExitStack]:
    """Ports that the system gives to no others until the stack is closed.

    On Linux sockets stay bound to them, and nodes bind the same ports beside. Elsewhere that is not
    allowed: another process may take a port before its node does.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            if sys.platform == "linux":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
        return ports, stack.pop_all() if sys.platform == "linux" else ExitStack()
