"""A listener whose connections another process accepts.

The node binds the address and waits for the first connection. Then it starts the process, which
inherits the socket and accepts that connection and all later ones; the node does not touch them.
When the process ends, because it was idle for long enough, the node waits for the next connection.
A connection that arrives while the process ends stays in the socket's queue, and starts the next.

    bound ── first connection ──> process runs ── ends ──> bound
                                       └── fails ──> connections are refused for a time ──> bound

    standard input     one line to start with; its end means that the node stops, or is gone
    standard output    a byte now and then: the process is alive
    standard error     its log

A process that is silent for a minute is killed: nobody else would accept its connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from dragoman.config.listeners import Address, Listener
from dragoman.errors import DragomanError
from dragoman.net.listener import AddressTakenError, OpenListener
from dragoman.net.process_log import leveled

log = logging.getLogger("dragoman.server")
#: After a failure, connections are refused for so long; longer after each further one.
PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
#: A process that ends sooner has not done its work, whatever its status.
_LIFE_MIN_S: Final = 1.0
#: How long the process may take to end when the node stops.
_END_S: Final = 3.0
_SILENCE_S: Final = 60.0
_LINE_BYTES_MAX: Final = 64 << 10
#: Connections that are refused in one turn of the loop.
_REFUSED_PER_TURN: Final = 64
#: A process of a node that was killed ends soon, and leaves the address.
_BIND_TRIES: Final = 20
_BIND_INTERVAL_S: Final = 0.05


class Program(NamedTuple):
    #: The command, given the descriptor of the socket.
    command: Callable[[int], Sequence[str]]
    #: The line on its input. Raises `DragomanError` when the process cannot do its work.
    start: Callable[[], bytes]
    environment: Callable[[], Mapping[str, str]]


class ProcessListener(OpenListener):
    def __init__(
        self,
        listener: Listener,
        bound: socket.socket,
        program: Program,
        loop: asyncio.AbstractEventLoop,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self.listener = listener
        self.bound = Address(listener.bind.host, bound.getsockname()[1])
        self._socket = bound
        self._program = program
        self._loop = loop
        self._silence_s = silence_s
        self._running: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._is_closed = False
        self._pause_s = PAUSE_S
        #: Why the last process failed; empty: it did not.
        self._failure = ""
        self._resume: asyncio.TimerHandle | None = None
        self._killer: asyncio.TimerHandle | None = None

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def failure(self) -> str:
        """Why the last process failed, if no other one runs; empty: it did not."""
        return "" if self._process is not None else self._failure

    async def serve(self) -> None:
        self._wait()

    def pause(self) -> None:
        """Start no process any more. One that runs continues."""
        if not self._is_closed:
            self._loop.remove_reader(self._socket.fileno())
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None

    def close(self) -> None:
        """Release the port, and have the process end."""
        if self._is_closed:
            return
        self.pause()
        self._is_closed = True
        self._socket.close()
        if self._process is not None:
            self._end(self._process)

    async def closed(self) -> None:
        """Returns when the process has ended. Call `close` first."""
        assert self._is_closed
        if self._running is not None:
            await asyncio.wait((self._running,))

    # ---- waiting

    def _wait(self) -> None:
        self._resume = None
        if not self._is_closed:
            self._loop.add_reader(self._socket.fileno(), self._wanted)

    def _wanted(self) -> None:
        self.pause()
        self._running = self._loop.create_task(self._run())
        self._running.add_done_callback(self._check)

    def _check(self, running: asyncio.Task[None]) -> None:
        fault = None if running.cancelled() else running.exception()
        if fault is not None:
            log.error("listener %s: its process was lost", self.name, exc_info=fault)
            self._failed("it was lost")

    def _failed(self, reason: str) -> None:
        """Refuse connections for a while, which would hang otherwise."""
        self._failure = reason
        if self._is_closed:
            return
        self._loop.add_reader(self._socket.fileno(), self._refuse)
        self._resume = self._loop.call_later(self._pause_s, self._wait)
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)

    def _refuse(self) -> None:
        try:
            # The process shares this flag with the node, and may have changed it.
            self._socket.setblocking(False)
            for _ in range(_REFUSED_PER_TURN):
                self._socket.accept()[0].close()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            # Without descriptors none can be refused, and trying on takes all of the processor.
            self._loop.remove_reader(self._socket.fileno())

    # ---- the process

    async def _run(self) -> None:
        if self._is_closed:
            return
        try:
            line = self._program.start()
            self._process = process = await self._spawn()
        except (OSError, DragomanError) as error:
            log.error("listener %s: its process could not be started: %s", self.name, error)
            self._failed(f"it could not be started: {error}")
            return
        log.info("listener %s: its process has started", self.name, extra={"pid": process.pid})
        began = self._loop.time()
        try:
            self._begin(process, line)
            status = await self._attend(process)
        finally:
            self._process = None
            if self._killer is not None:
                self._killer.cancel()
                self._killer = None
            # asyncio has no other way to close a pipe that was not read to its end.
            process._transport.close()  # type: ignore[attr-defined]
        self._ended(process.pid, status, self._loop.time() - began)

    def _begin(self, process: Process, line: bytes) -> None:
        if self._is_closed:
            # The node has begun to stop in the meantime.
            self._end(process)
            return
        assert process.stdin is not None
        # A process that has ended already says by its status why.
        with suppress(OSError, RuntimeError):
            process.stdin.write(line + b"\n")

    async def _spawn(self) -> Process:
        descriptor = self._socket.fileno()
        return await asyncio.create_subprocess_exec(
            *self._program.command(descriptor),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LINE_BYTES_MAX,
            pass_fds=(descriptor,),
            env=dict(self._program.environment()),
            # A signal from the node's terminal goes to the node only.
            start_new_session=True,
        )

    async def _attend(self, process: Process) -> int:
        """The status with which the process ends."""
        watching = self._loop.create_task(self._watch(process))
        reading = self._loop.create_task(self._read_log(process))
        try:
            status = await process.wait()
            # What it has started may keep the pipes open.
            await asyncio.wait((reading,), timeout=_LIFE_MIN_S)
        finally:
            watching.cancel()
            reading.cancel()
            await asyncio.gather(watching, reading, return_exceptions=True)
        return status

    async def _watch(self, process: Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                async with asyncio.timeout(self._silence_s):
                    if not await process.stdout.read(_LINE_BYTES_MAX):
                        return
        except TimeoutError:
            log.error("listener %s: its process does not answer, and is killed", self.name)
            _kill(process)

    async def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                line = b"(a line that is too long was left out)\n"
            if not line:
                return
            level, text = leveled(line.decode(errors="replace").rstrip())
            if text:
                log.log(level, "listener %s: %s", self.name, text)

    def _end(self, process: Process) -> None:
        """End the process by the end of its input, or else by a signal."""
        assert process.stdin is not None
        process.stdin.close()
        self._killer = self._loop.call_later(_END_S, _kill, process)

    def _ended(self, pid: int, status: int, lived_s: float) -> None:
        if self._is_closed:
            return
        fields = {"pid": pid, "status": status}
        if status == 0 and lived_s >= _LIFE_MIN_S:
            log.info("listener %s: its process has ended", self.name, extra=fields)
            self._pause_s = PAUSE_S
            self._failure = ""
            self._wait()
            return
        if lived_s > _PAUSE_MAX_S:
            self._pause_s = PAUSE_S
        log.error("listener %s: its process failed", self.name, extra=fields)
        self._failed(f"it ended with status {status} after {lived_s:.0f} s")


def _kill(process: Process) -> None:
    # The operating system may have reused the id of a process that has ended.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def bind(listener: Listener, loop: asyncio.AbstractEventLoop, backlog: int) -> socket.socket:
    """A socket that listens. Raises `AddressTakenError`."""
    host, port = listener.bind.host, listener.bind.port
    for tries_left in reversed(range(_BIND_TRIES)):
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            bound = socket.create_server((host, port), family=found[0][0], backlog=backlog)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and tries_left:
                await asyncio.sleep(_BIND_INTERVAL_S)
                continue
            raise AddressTakenError(
                f"listener {listener.name}: cannot bind {listener.bind}: {error.strerror or error}"
            ) from None
        break
    bound.setblocking(False)
    return bound
