"""Requests to the HTTP API of a node, on connections that are kept.

A console that a node has started uses the socket in the node's data directory, and says with each
request which browser asks. Any other uses a URL.

h11 parses and writes the bytes. An answer is read in pieces, so that streams of events pass through
as they come.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from dragoman import __version__
from dragoman.api.origin import BROWSER
from dragoman.console.errors import NodeUnreachableError, OverloadedError
from dragoman.net.operator_socket import CONSOLE_NAME, socket_address

CONNECT_TIMEOUT_S: Final = 5.0
#: Until the head of an answer is there: some operations wait for a majority of nodes.
ANSWER_TIMEOUT_S: Final = 65.0
#: Requests at once, and how long one more waits: a node has connections to keep for others.
CONNECTIONS_MAX: Final = 128
_TURN_TIMEOUT_S: Final = 10.0
_IDLE_CONNECTIONS_MAX: Final = 16
_READ_BYTES: Final = 1 << 16

Headers = Sequence[tuple[str, str]]
#: Whom a request to the node is for, as its header `BROWSER` says it. Set for each request of a
#: browser, so that none can go without.
BROWSER_OF_REQUEST: ContextVar[str] = ContextVar("browser", default="")


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection

    def end(self) -> None:
        """At once: a goodbye of TLS would wait for the node's."""
        self.writer.transport.abort()


class Answer:
    """An answer of a node, whose body is still to be read."""

    def __init__(self, connection: _Connection, response: h11.Response) -> None:
        self._connection = connection
        self.status = response.status_code
        self._headers = {
            name.decode("ascii"): value.decode("latin-1") for name, value in response.headers
        }

    def header(self, name: str) -> str:
        """The value of a header, by its name in small letters; empty when there is none."""
        return self._headers.get(name, "")

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Raises `NodeUnreachableError` when the answer ends early."""
        while True:
            event = await _next_event(self._connection)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def body(self, size_max: int) -> bytes:
        """The whole body. Raises `NodeUnreachableError`, also for a body that is larger."""
        found = bytearray()
        async for chunk in self.chunks():
            found += chunk
            if len(found) > size_max:
                raise NodeUnreachableError(f"the node's answer has more than {size_max} bytes")
        return bytes(found)


class Upstream:
    """The API of a node."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, data: str = "") -> None:
        """`data` is the directory of a node whose socket is used in place of the URL."""
        self.url = url
        self._data = data
        parts = urlsplit("" if data else url)
        assert data or parts.hostname is not None, url
        self._host = parts.hostname or "localhost"
        self._is_encrypted = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_encrypted else 80)
        self._authority = parts.netloc or self._host
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: list[_Connection] = []

    @property
    def is_of_node(self) -> bool:
        """Whether the node examines the browsers of this console itself."""
        return bool(self._data)

    @asynccontextmanager
    async def ask(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> AsyncIterator[Answer]:
        """Send a request. A connection that is not read to the end of its answer is closed.

        Raises `NodeUnreachableError`, and `OverloadedError` when too many requests wait.
        """
        try:
            async with asyncio.timeout(_TURN_TIMEOUT_S):
                await self._turns.acquire()
        except TimeoutError:
            raise OverloadedError("the console is busy with other requests; try again") from None
        try:
            connection, response = await self._exchange(
                method, self._prefix + target, headers, body
            )
            try:
                yield Answer(connection, response)
            finally:
                self._put_back(connection)
        finally:
            self._turns.release()

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for each in idle:
            each.end()

    async def _exchange(
        self, method: str, target: str, headers: Headers, body: bytes
    ) -> tuple[_Connection, h11.Response]:
        # The node may have closed a kept connection by now, perhaps after it had carried out the
        # request: only what changes nothing is sent on one, and repeated.
        while self._idle and method == "GET":
            kept = self._idle.pop()
            try:
                return kept, await self._send(kept, method, target, headers, body)
            except NodeUnreachableError:
                kept.end()
            except BaseException:
                kept.end()
                raise
        made = await self._connect()
        try:
            return made, await self._send(made, method, target, headers, body)
        except BaseException:
            made.end()
            raise

    async def _connect(self) -> _Connection:
        tls = (self._tls or ssl.create_default_context()) if self._is_encrypted else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if self._data:
                    with socket_address(self._data, CONSOLE_NAME) as address:
                        reader, writer = await asyncio.open_unix_connection(address)
                else:
                    reader, writer = await asyncio.open_connection(self._host, self._port, ssl=tls)
        except (OSError, TimeoutError) as error:
            reason = str(error) or "no answer"
            raise NodeUnreachableError(f"the node cannot be reached: {reason}") from None
        return _Connection(reader, writer, h11.Connection(h11.CLIENT))

    async def _send(
        self, connection: _Connection, method: str, target: str, headers: Headers, body: bytes
    ) -> h11.Response:
        sent = [("host", self._authority), ("user-agent", f"dragoman-console/{__version__}")]
        if self._data:
            sent.append((BROWSER, BROWSER_OF_REQUEST.get()))
        if body:
            sent.append(("content-length", str(len(body))))
        request = h11.Request(method=method, target=target, headers=[*sent, *headers])
        http = connection.http
        pieces = [http.send(request), http.send(h11.Data(data=body)) if body else b""]
        pieces.append(http.send(h11.EndOfMessage()))
        connection.writer.write(b"".join(each for each in pieces if each))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                # A node that refuses a request early may close before it has read the whole.
                with suppress(ConnectionError):
                    await connection.writer.drain()
                while True:
                    event = await _next_event(connection)
                    if isinstance(event, h11.Response):
                        return event
        except TimeoutError:
            raise NodeUnreachableError("the node does not answer") from None

    def _put_back(self, connection: _Connection) -> None:
        http = connection.http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        if is_done and len(self._idle) < _IDLE_CONNECTIONS_MAX:
            http.start_next_cycle()
            self._idle.append(connection)
        else:
            connection.end()


async def _next_event(connection: _Connection) -> h11.Event:
    """Raises `NodeUnreachableError`."""
    try:
        while True:
            event = connection.http.next_event()
            if event is h11.NEED_DATA:
                connection.http.receive_data(await connection.reader.read(_READ_BYTES))
            elif isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed):
                return event
            else:
                raise NodeUnreachableError("the node has closed the connection")
    except (OSError, h11.RemoteProtocolError) as error:
        raise NodeUnreachableError(f"the connection to the node was lost: {error}") from None
