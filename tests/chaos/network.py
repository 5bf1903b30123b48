"""The network between the nodes, in user space: it can be cut, one way or both, and reset.

Each node is reached by the others through a proxy. A connection begins with the caller's name, so
the proxy knows between which two nodes it is and which way its bytes go. A way that is cut is not
read: no byte is lost and nothing is closed, not even when a process ends, as if packets were
dropped and sent again. What was on its way arrives when the way is open again, however late.

Needs no privileges. One thing is milder than in a network that drops packets: a new connection is
made over a way that is cut, and only then silent.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

from dragoman.net.peer_frames import read_hello, take_apart

#: From a node to a node.
Way: TypeAlias = tuple[int, int]
_SIZE_BYTES = 4
_READ_BYTES = 1 << 16
_PATIENCE_S = 30.0
#: Closing such a socket resets the connection.
_RESETTING = struct.pack("ii", 1, 0)


class _Connection:
    """From a node, through the proxy, to another."""

    def __init__(
        self, way: Way, caller: asyncio.StreamWriter, called: asyncio.StreamWriter
    ) -> None:
        self.nodes = frozenset(way)
        self.ends = (caller, called)

    def reset(self) -> None:
        for end in self.ends:
            if not end.is_closing():
                found: socket.socket = end.get_extra_info("socket")
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETTING)
                end.transport.abort()


class Network:
    """Proxies on a loop and a thread of their own; methods are for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        #: Where the proxies listen, also while their nodes are down, and what is behind them.
        self._ports: dict[int, int] = {}
        self._behind: dict[int, str] = {}
        self._servers: dict[int, asyncio.Server] = {}
        #: Ways that are cut, and the waiters for them to open.
        self._cut: dict[Way, asyncio.Event] = {}
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()

    def close(self) -> None:
        async def work() -> None:
            for server in self._servers.values():
                server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            # What was aborted is closed.
            await asyncio.sleep(0)

        self._do(work())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    # ---- nodes

    def place(self, node: int, port: int, behind: str) -> None:
        """A node that listens at `behind` is reached by the others at that port of loopback."""
        self._ports[node] = port
        self._behind[node] = behind

    def up(self, node: int) -> None:
        async def work() -> None:
            if node not in self._servers:
                self._servers[node] = await asyncio.start_server(
                    lambda reader, writer: self._accepted(node, reader, writer),
                    "127.0.0.1",
                    self._ports[node],
                )

        self._do(work())

    def down(self, node: int) -> None:
        """The node's port refuses connections."""

        async def work() -> None:
            server = self._servers.pop(node, None)
            if server is not None:
                server.close()

        self._do(work())

    # ---- faults

    def cut(self, ways: Iterable[Way]) -> None:
        async def work() -> None:
            for way in ways:
                self._cut.setdefault(way, asyncio.Event())

        self._do(work())

    def heal(self) -> None:
        async def work() -> None:
            opened, self._cut = self._cut, {}
            for event in opened.values():
                event.set()

        self._do(work())

    def reset(self, one: int, other: int) -> None:
        async def work() -> None:
            for each in list(self._connections):
                if each.nodes == {one, other}:
                    each.reset()

        self._do(work())

    # ---- on the loop

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)  # type: ignore[arg-type]

    def _accepted(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = self._loop.create_task(self._serve(node, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            # Ends that break are what this is for.
            with suppress(OSError, asyncio.IncompleteReadError):
                size = await reader.readexactly(_SIZE_BYTES)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                way = (read_hello(take_apart(bytearray(frame))).node_id, node)
                await self._open(way)
                host, _, port = self._behind[node].rpartition(":")
                answers, behind = await asyncio.open_connection(host, int(port))
                behind.write(size + frame)
                await self._connect(_Connection(way, writer, behind), way, reader, answers)
        finally:
            writer.transport.abort()

    async def _connect(
        self,
        connection: _Connection,
        way: Way,
        reader: asyncio.StreamReader,
        answers: asyncio.StreamReader,
    ) -> None:
        """Until both ways have ended."""
        caller, called = connection.ends
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(way, reader, called))
                both.create_task(self._pass_on(way[::-1], answers, caller))
        finally:
            self._connections.discard(connection)
            called.transport.abort()

    async def _pass_on(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                await self._open(way)
                writer.write(data)
                await writer.drain()
        await self._open(way)
        with suppress(OSError):
            writer.write_eof()

    async def _open(self, way: Way) -> None:
        while way in self._cut:
            await self._cut[way].wait()
