"""A node in this process, over real sockets, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

from dragoman.config.settings import Settings
from dragoman.operating_system import SystemClock, system_random
from dragoman.server import Node
from dragoman.testing.memory import MemoryDisk
from dragoman.testing.sim.background import ImmediateBackground
from dragoman.world import Disk
from protocols.kafka_socket import KafkaSocket

Result = TypeVar("Result")


class Running:
    """A node on an event loop in a thread of its own."""

    def __init__(
        self,
        make_loop: Callable[[], asyncio.AbstractEventLoop],
        configured: Settings,
        disk: Disk | None = None,
    ) -> None:
        self.loop = make_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.disk = disk if disk is not None else MemoryDisk()
        self._settings = configured
        self.is_stopped = False
        try:
            self.node = self.call(self._open)
        except BaseException:
            self._end()
            raise

    async def _open(self) -> Node:
        node = Node(
            self._settings,
            self.loop,
            disk=self.disk,
            background=ImmediateBackground(self.disk, self.loop),
            clock=SystemClock(),
            random=system_random(),
        )
        await node.start()
        return node

    def call(self, work: Callable[[], Coroutine[None, None, Result]]) -> Result:
        return asyncio.run_coroutine_threadsafe(work(), self.loop).result(60)

    def look(self, at: Callable[[], Result]) -> Result:
        """What the loop's thread sees, between two callbacks."""

        async def seen() -> Result:
            return at()

        return self.call(seen)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Let the loop turn until something is so; the test's time-out is the bound."""

        async def turn() -> None:
            while not is_so():
                await asyncio.sleep(0)

        self.call(turn)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.listeners.opened[0].bound.port}"

    def connect(self, **more: int) -> KafkaSocket:
        return KafkaSocket(self.address, **more)

    def stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self.call(self.node.stop)
            self._end()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
