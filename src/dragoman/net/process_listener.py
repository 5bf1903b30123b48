"""A listener whose connections another process accepts.

The node binds the address and waits for the first connection. Then it starts the process, which
inherits the socket and accepts that connection and all later ones; the node does not touch them.
When the process ends, because it was idle for long enough or failed, the node waits for the next
connection.

    bound ── first connection ──> process runs ── ends ──> bound
                                       └── fails ──> connections are refused for a time ──> bound

The process gets one line on its standard input; the end of that input means that the node stops.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from dragoman.config.listeners import Address, Listener
from dragoman.net.listener import AddressTakenError, OpenListener

log = logging.getLogger("dragoman.server")
#: After a failure, connections are refused for so long; longer after each further one.
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
#: How long the process may take to end when the node stops.
_END_S: Final = 3.0
_LINE_BYTES_MAX: Final = 64 << 10


class ProcessListener(OpenListener):
    def __init__(
        self,
        listener: Listener,
        bound: socket.socket,
        command: Callable[[int], Sequence[str]],
        start: Callable[[], bytes],
        environment: Callable[[], dict[str, str]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`command` runs the process, given the descriptor of the socket; `start` gives the line on
        its input.
        """
        self.listener = listener
        host, port = bound.getsockname()[:2]
        self.bound = Address(host, port)
        self._socket = bound
        self._command = command
        self._start = start
        self._environment = environment
        self._loop = loop
        self._running: asyncio.Task[None] | None = None
        self._is_closed = False
        self._pause_s = _PAUSE_S

    async def serve(self) -> None:
        self._wait()

    def pause(self) -> None:
        self._loop.remove_reader(self._socket.fileno())

    def close(self) -> None:
        """Release the port, and have the process end."""
        if self._is_closed:
            return
        self._is_closed = True
        self.pause()
        self._socket.close()
        if self._running is not None:
            self._running.cancel()

    async def closed(self) -> None:
        """Returns when the process has ended."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    # ---- the process

    def _wait(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._socket.fileno(), self._wanted)

    def _wanted(self) -> None:
        self.pause()
        self._running = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command(self._socket.fileno()),
                stdin=PIPE,
                stderr=PIPE,
                limit=_LINE_BYTES_MAX,
                pass_fds=(self._socket.fileno(),),
                env=self._environment(),
                # A signal from the node's terminal goes to the node only.
                start_new_session=True,
            )
        except OSError as error:
            log.error("listener %s: its process could not be started: %s", self.name, error)
            self._refuse()
            return
        log.info("listener %s: its process has started", self.name, extra={"process": process.pid})
        began = self._loop.time()
        try:
            assert process.stdin is not None
            process.stdin.write(self._start() + b"\n")
            await self._read_log(process)
            status = await process.wait()
        finally:
            await _end(process)
        if not self._is_closed:
            self._ended(process.pid, status, self._loop.time() - began)

    def _ended(self, pid: int, status: int, lived_s: float) -> None:
        self._running = None
        if status == 0:
            log.info("listener %s: its process has ended", self.name, extra={"process": pid})
            self._pause_s = _PAUSE_S
            self._wait()
            return
        if lived_s > _PAUSE_MAX_S:
            self._pause_s = _PAUSE_S
        log.error(
            "listener %s: its process failed", self.name, extra={"process": pid, "status": status}
        )
        self._refuse()

    def _refuse(self) -> None:
        """Close the connections that wait, which would hang, and try again later."""
        self._running = None
        with suppress(OSError):
            while True:
                self._socket.setblocking(False)
                self._socket.accept()[0].close()
        if not self._is_closed:
            self._loop.call_later(self._pause_s, self._wait)
            self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)

    async def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                line = b"(a line that is too long was left out)"
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                log.warning("listener %s: %s", self.name, text)


async def _end(process: Process) -> None:
    """End the process by the end of its input, or else by a signal."""
    try:
        if process.stdin is not None:
            process.stdin.close()
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    finally:
        # asyncio has no other way to close a pipe that was not read to its end.
        process._transport.close()  # type: ignore[attr-defined]


def bind(listener: Listener, backlog: int) -> socket.socket:
    """A socket that listens. Raises `AddressTakenError`."""
    host, port = listener.bind.host, listener.bind.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise AddressTakenError(
            f"listener {listener.name}: cannot bind {listener.bind}: {error.strerror or error}"
        ) from None
    bound.setblocking(False)
    return bound
