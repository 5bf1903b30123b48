"""A real broker inside the test process, gone when the test is over.

    with EphemeralBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    async with EphemeralBroker(storage="directory") as broker:
        ...

It runs on an event loop of its own in a thread of its own, so it works beside any other loop, and
clients reach it over loopback TCP exactly as they would a broker in production. Ports are free
ones. Nothing touches the disk with `storage="memory"` (the default); `"directory"` keeps a
directory, a temporary one unless `directory` is given, with the full durability of a node.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from typing import Literal, Self, TypeVar

from dragoman.config.layers import Assignment, Flags, load
from dragoman.config.settings import Settings
from dragoman.process import open_data_directory
from dragoman.server import Node
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.world import Background, Disk, SystemClock, system_random

Result = TypeVar("Result")
_START_SECONDS_MAX = 60.0


class EphemeralBroker:
    """Start with `start` or as a context manager; a stopped one may be started again.

    `settings` are the keys of `dragoman serve --set`. A broker with `storage="directory"` keeps
    its data over `restart`, and over `stop` and `start` when it was given the directory; one in
    memory forgets it.
    """

    def __init__(
        self,
        *,
        storage: Literal["memory", "directory"] = "memory",
        directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        listeners: tuple[str, ...] = ("kafka", "http"),
    ) -> None:
        self._storage = storage
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

    # ---- addresses

    def address(self, listener: str) -> str:
        """`HOST:PORT` of an open listener; stays the same over `stop` and `start`."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def bootstrap_servers(self) -> str:
        return self.address("kafka")

    @property
    def http_url(self) -> str:
        return f"http://{self.address('http')}"

    @property
    def data_directory(self) -> str:
        """Where the data is, for a broker with `storage="directory"`."""
        if self._directory is None:
            raise ValueError("this broker keeps nothing on disk")
        return self._directory

    # ---- life

    def start(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("the broker is running")
        self._loop = asyncio.new_event_loop()
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
        """As `kill -9` would: nobody is told anything. What was acknowledged is kept, with a
        directory, for the next `start`.
        """
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
        )
        # The ports beside a port that the system has chosen are others', today or after a restart.
        node.listeners.serves_vip = False
        await node.start()
        self._node = node
        self._ports = {each.name: each.bound.port for each in node.listeners.opened}

    def _settings(self) -> Settings:
        durability = "os" if self._storage == "memory" else "fsync"
        given = {"durability": durability, **self._overrides}
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
            memory = self._memory if self._memory is not None else MemoryDisk()
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
