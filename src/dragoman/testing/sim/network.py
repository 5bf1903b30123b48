"""`SimNetwork`: connections between loops, with the faults of real ones.

Bytes leave in pieces, each with a delay of its own, and arrive in order; a piece may be cut
anywhere. Between two hosts a direction can be cut: what is sent then stays on its way, as with
packets that are sent again and again, until the cut is healed or, after `patience_s`, the sender's
connection fails. New connections over a cut time out. Faults:

    cut(a, b)                 from a to b nothing arrives any more; the other direction works
    reset(a, b)               connections between the hosts fail at both ends, mid-frame or not
    a process that crashes    its peers see resets at once, or, when the machine went (`silently`),
                              nothing until what they send has gone unanswered for `patience_s`

Transports have asyncio's interface as far as the package uses it, with its bounds on unsent bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

import msgspec

from dragoman.limits import SIM_RECEIVE_BYTES_MAX

_FIRST_PORT = 40_000
_HIGH_WATER = 64 << 10


class World(Protocol):
    """The network's view of the world: time and randomness."""

    @property
    def now(self) -> float: ...

    @property
    def random(self) -> Random: ...

    def at(self, when: float, event: Callable[[], None]) -> None: ...

    def after(self, seconds: float, event: Callable[[], None]) -> None: ...


class ProcessLoop(Protocol):
    """The event loop of one process on one host."""

    @property
    def host(self) -> str: ...

    @property
    def is_halted(self) -> bool:
        """Whether the process has crashed, so that its callbacks never run again."""
        ...

    def create_future(self) -> asyncio.Future[Any]: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Delays in seconds, and rates per piece that is sent."""

    delay_min_s: float = 0.0001
    delay_max_s: float = 0.002
    slow_rate: float = 0.0
    slow_max_s: float = 0.5
    #: A piece is split in two, which arrive one after the other.
    split_rate: float = 0.1
    #: The connection fails at this piece, of which some arrives.
    reset_rate: float = 0.0
    #: Time after which a sender of undelivered bytes, or a caller over a cut, gives up.
    patience_s: float = 10.0


class SimNetwork:
    def __init__(self, world: World, faults: NetworkFaults | None = None) -> None:
        self._world = world
        self.faults = faults if faults is not None else NetworkFaults()
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._cuts: set[tuple[str, str]] = set()
        #: Hosts without power, which do not even refuse connections.
        self._dark: set[str] = set()
        self._next_port = _FIRST_PORT
        #: Every connection that is open at an end.
        self._pipes: dict[SimTransport, None] = {}

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def isolate(self, host: str, others: list[str]) -> None:
        for other in others:
            self.cut(host, other)
            self.cut(other, host)

    def heal(self) -> None:
        self._cuts.clear()
        for transport in list(self._pipes):
            transport.deliver_soon()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def is_silent(self, source: str, target: str) -> bool:
        """Whether no packet from there arrives."""
        return self.is_cut(source, target) or target in self._dark

    def reset(self, a: str, b: str) -> None:
        for transport in list(self._pipes):
            if {transport.loop.host, transport.peer.loop.host} == {a, b}:
                transport.fail(ConnectionResetError("connection reset"))

    def crashed(self, loop: ProcessLoop, *, silently: bool) -> None:
        for address in [key for key, each in self._listeners.items() if each.loop is loop]:
            del self._listeners[address]
        if silently:
            self._dark.add(loop.host)
        for transport in [each for each in self._pipes if each.loop is loop]:
            self._pipes.pop(transport, None)
            transport.is_gone = True
            if not silently:
                error = ConnectionResetError("reset by peer")
                self._world.after(self.delay(), partial(transport.peer.fail, error))

    def delay(self) -> float:
        faults, random = self.faults, self._world.random
        if faults.slow_rate and random.random() < faults.slow_rate:
            return random.uniform(0.0, faults.slow_max_s)
        return random.uniform(faults.delay_min_s, faults.delay_max_s)

    # ---- connections

    def listen(
        self,
        loop: ProcessLoop,
        factory: Callable[[], Any],
        host: str,
        port: int,
        *,
        start_serving: bool = True,
    ) -> SimServer:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        address = (loop.host, port)
        if address in self._listeners:
            raise OSError(98, "Address already in use")
        self._dark.discard(loop.host)
        server = self._listeners[address] = SimServer(self, loop, factory, (host, port))
        server.is_serving = start_serving
        return server

    def forget(self, server: SimServer) -> None:
        address = (server.loop.host, server.address[1])
        # A later process may listen at the address by now.
        if self._listeners.get(address) is server:
            del self._listeners[address]

    async def connect(
        self, loop: ProcessLoop, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, Any]:
        connected: asyncio.Future[None] = loop.create_future()
        protocol = factory()
        transport = SimTransport(self, self._world, loop, protocol)

        def arrived() -> None:
            if connected.done() or loop.is_halted:
                return
            is_cut = self.is_cut(loop.host, host) or self.is_cut(host, loop.host)
            if is_cut or host in self._dark:
                self._world.after(self.faults.patience_s, timed_out)
                return
            server = self._listeners.get((host, port))
            if server is None or not server.is_serving or server.loop.is_halted:
                connected.set_exception(ConnectionRefusedError(111, "Connection refused"))
                return
            self._join(transport, server, (host, port))
            connected.set_result(None)

        def timed_out() -> None:
            if not connected.done():
                connected.set_exception(TimeoutError("connect timed out"))

        self._world.after(self.delay(), arrived)
        await connected
        return transport, protocol  # type: ignore[return-value]

    def _join(self, ours: SimTransport, server: SimServer, address: tuple[str, int]) -> None:
        self._next_port += 1
        name = (ours.loop.host, self._next_port)
        theirs = SimTransport(self, self._world, server.loop, server.factory())
        ours.join(theirs, name, address)
        theirs.join(ours, address, name)
        for each in (ours, theirs):
            self._pipes[each] = None
            each.loop.call_soon(each.protocol.connection_made, each)

    def closed(self, transport: SimTransport) -> None:
        self._pipes.pop(transport, None)


class SimServer:
    """The result of `create_server`."""

    def __init__(
        self,
        network: SimNetwork,
        loop: ProcessLoop,
        factory: Callable[[], Any],
        address: tuple[str, int],
    ) -> None:
        self.loop = loop
        self.factory = factory
        self.address = address
        self._network = network
        self.is_serving = False

    @property
    def sockets(self) -> list[_ListeningSocket]:
        return [_ListeningSocket(self.address)]

    async def start_serving(self) -> None:
        self.is_serving = True

    def get_loop(self) -> _NoReaders:
        return _NoReaders()

    def close(self) -> None:
        self._network.forget(self)


class _ListeningSocket:
    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def fileno(self) -> int:
        return -1


class _NoReaders:
    def remove_reader(self, _descriptor: int) -> None: ...


class SimTransport:
    """One end of a connection. Sent bytes wait at this end until they arrive."""

    def __init__(self, network: SimNetwork, world: World, loop: ProcessLoop, protocol: Any) -> None:
        self.loop = loop
        self.protocol = protocol
        self.peer: SimTransport = self
        #: Whether the process or machine at this end has crashed, without a notice to the peer.
        self.is_gone = False
        self._network = network
        self._world = world
        self._names: tuple[tuple[str, int], tuple[str, int]] = (("", 0), ("", 0))
        #: Pieces in flight to the peer, with their times of arrival.
        self._on_way: deque[tuple[float, bytes]] = deque()
        self._unsent = 0
        self._high = _HIGH_WATER
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        #: Whether the connection has failed: nothing arrives, and both ends are about to notice.
        self._is_breaking = False
        self._ends = False
        self._stuck_since: float | None = None

    def join(self, peer: SimTransport, local: tuple[str, int], remote: tuple[str, int]) -> None:
        self.peer = peer
        self._names = (local, remote)

    # ---- asyncio's interface

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"sockname": self._names[0], "peername": self._names[1]}
        return known.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        self._high = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or self._is_breaking or not data:
            return
        self._send(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.peer.deliver_soon()

    def close(self) -> None:
        """Written bytes still arrive."""
        if not self._is_closing and not self.loop.is_halted:
            self._is_closing = True
            self._ends = True
            self.deliver_soon()

    def abort(self) -> None:
        self._is_closing = True
        self._on_way.clear()
        if not self._is_lost and not self.loop.is_halted:
            self._lose(None)
            if not self._network.is_cut(self.loop.host, self.peer.loop.host):
                error = ConnectionResetError("connection reset by peer")
                self._world.after(self._network.delay(), lambda: self.peer.fail(error))

    # ---- bytes in flight

    def _send(self, data: bytes) -> None:
        faults, random = self._network.faults, self._world.random
        pieces = [data]
        if len(data) > 1 and random.random() < faults.split_rate:
            middle = random.randrange(1, len(data))
            pieces = [data[:middle], data[middle:]]
        if faults.reset_rate and random.random() < faults.reset_rate:
            pieces = [data[: random.randrange(len(data))]]
            self._is_breaking = True
            self._world.after(faults.delay_max_s, self._break)
        for piece in pieces:
            earliest = self._on_way[-1][0] if self._on_way else 0.0
            arrival = max(earliest, self._world.now + self._network.delay())
            self._on_way.append((arrival, piece))
            self._unsent += len(piece)
            self._world.at(arrival, self._deliver)
        if self._unsent > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self.loop.call_soon(self._pause_writing)

    def _break(self) -> None:
        self.fail(ConnectionResetError("connection reset"))
        self.peer.fail(ConnectionResetError("connection reset"))

    def deliver_soon(self) -> None:
        self._world.after(self._network.delay(), self._deliver)

    def _deliver(self) -> None:
        """Deliver arrived bytes, if the peer is alive, reachable and reading."""
        peer = self.peer
        if self._is_lost and not self._ends:
            return
        if self._network.is_silent(self.loop.host, peer.loop.host):
            self._wait_for_an_answer()
            return
        if peer.is_gone:
            # Another process is there now, or none: the system does not know the connection.
            if self._on_way or self._ends:
                self.fail(ConnectionResetError("connection reset by peer"))
            return
        self._stuck_since = None
        while self._on_way and self._on_way[0][0] <= self._world.now:
            if peer._is_lost:
                # A host that does not know the connection answers with a reset.
                self.fail(ConnectionResetError("connection reset by peer"))
                return
            if not peer._is_reading:
                break
            _, piece = self._on_way.popleft()
            self._unsent -= len(piece)
            peer.loop.call_soon(peer._receive, piece)
        if self._is_writing_paused and self._unsent <= self._high // 4:
            self._is_writing_paused = False
            self.loop.call_soon(self._resume_writing)
        if self._ends and not self._on_way and not self._is_lost:
            self._lose(None)
            peer.loop.call_soon(peer._peer_closed)

    def _wait_for_an_answer(self) -> None:
        if not self._on_way and not self._ends:
            return
        patience = self._network.faults.patience_s
        if self._stuck_since is None:
            self._stuck_since = self._world.now
            self._world.after(patience, self._deliver)
        elif self._world.now - self._stuck_since >= patience:
            self.fail(TimeoutError("connection timed out"))

    # ---- this end's protocol

    def _receive(self, piece: bytes) -> None:
        if self._is_lost or self.is_gone:
            return
        if not hasattr(self.protocol, "get_buffer"):
            self.protocol.data_received(piece)
            return
        view = memoryview(piece)
        while view and not self._is_lost:
            buffer = self.protocol.get_buffer(SIM_RECEIVE_BYTES_MAX)
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self.protocol.buffer_updated(count)
            view = view[count:]

    def _peer_closed(self) -> None:
        if not self._is_lost and not self.is_gone and not self.protocol.eof_received():
            self._on_way.clear()
            self._lose(None)

    def fail(self, error: Exception) -> None:
        """The connection is dead at this end."""
        if not self._is_lost and not self.is_gone:
            self._is_closing = True
            self._on_way.clear()
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self._is_lost = True
        self._network.closed(self)
        self.loop.call_soon(self.protocol.connection_lost, error)

    def _pause_writing(self) -> None:
        if not self._is_lost and self._is_writing_paused:
            self.protocol.pause_writing()

    def _resume_writing(self) -> None:
        if not self._is_lost:
            self.protocol.resume_writing()
