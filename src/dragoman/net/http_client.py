"""HTTP/1.1 requests to one of several equivalent servers, such as the members of an etcd.

All requests go to one server while it answers. When it does not answer, or fails (5xx), later
requests go to the next one, and streams of the previous one end, so that their readers reopen them
at the server that answers. Nothing is retried here: only the caller knows whether that is safe.

Connections are reused. h11 parses and writes the bytes; this module owns sockets, time and bounds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, cast

import h11

from dragoman.config.listeners import Address
from dragoman.errors import ConfigError
from dragoman.limits import ETCD_ANSWER_BYTES_MAX, ETCD_CONNECTIONS_MAX, ETCD_TLS_TIMEOUT_S
from dragoman.outcome import Outcome
from dragoman.world import Handle

if TYPE_CHECKING:
    import ssl


class HttpClient:
    def __init__(
        self,
        addresses: Sequence[Address],
        loop: asyncio.AbstractEventLoop,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        connect_timeout_s: float = 1.0,
    ) -> None:
        """`tls` gives the context of a new connection, and raises `ConfigError` for files that
        cannot be used. None: without TLS.
        """
        self._addresses = list(addresses)
        self._tls = tls
        self._loop = loop
        self._connect_timeout_s = connect_timeout_s
        #: The index of the address that requests go to.
        self._at = 0
        self._idle: list[_Connection] = []
        self._waiting: deque[_Request] = deque()
        self._in_progress: set[_Request] = set()
        self._streams: set[_Stream] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._is_closed = False
        #: Set while no request waits for an answer.
        self._quiet = asyncio.Event()
        self._quiet.set()

    def request(
        self, method: str, path: str, body: bytes, timeout_s: float, *, token: str = ""
    ) -> Outcome[tuple[int, bytes]]:
        """Status and body, or 0 and the reason; never settled before this has returned. `token`
        is the request's authorization.
        """
        request = _Request(self, method, path, body, token)
        request.timer = self._loop.call_later(
            timeout_s, request.lost, f"no answer in {timeout_s} s"
        )
        self._waiting.append(request)
        self._quiet.clear()
        self._serve_next()
        return request.outcome

    def stream(
        self,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        *,
        token: str = "",
    ) -> _Stream:
        """Post, and pass on the answer line by line; `on_end` gets the reason why it ended."""
        stream = _Stream(self, path, body, on_line, on_end, token)
        self._streams.add(stream)
        if self._is_closed:
            self._loop.call_soon(stream.lost, "the connection was closed")
        else:
            self._dial(stream)
        return stream

    async def finish(self, seconds: float) -> None:
        """Close, after at most so many seconds for the answers to earlier requests."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        self.close()

    def close(self) -> None:
        """End all requests and streams without an answer."""
        self._is_closed = True
        for task in self._dialling:
            task.cancel()
        self._drop_idle()
        under_way: list[_Exchange] = [*self._streams, *self._in_progress, *self._waiting]
        for each in under_way:
            each.lost("the connection was closed")

    # ---- connections

    def _serve_next(self) -> None:
        while (
            self._waiting and len(self._in_progress) < ETCD_CONNECTIONS_MAX and not self._is_closed
        ):
            request = self._waiting.popleft()
            self._in_progress.add(request)
            if self._idle:
                self._idle.pop().send(request)
            else:
                self._dial(request)

    def _dial(self, exchange: _Exchange) -> None:
        task = self._loop.create_task(self._connect(exchange, self._at))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _connect(self, exchange: _Exchange, at: int) -> None:
        address = self._addresses[at]
        connection = _Connection(self, at, str(address))
        try:
            await self._open(connection, address)
        except (OSError, TimeoutError, ConfigError) as error:
            connection.abort()
            self.move_on(at)
            exchange.lost(f"{address}: {error or 'timed out'}")
        else:
            connection.send(exchange)

    async def _open(self, connection: _Connection, address: Address) -> None:
        if self._tls is None:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._loop.create_connection(lambda: connection, address.host, address.port)
            return
        context = self._tls()
        async with asyncio.timeout(self._connect_timeout_s + ETCD_TLS_TIMEOUT_S):
            await self._loop.create_connection(
                lambda: connection,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host,
            )

    def move_on(self, at: int) -> None:
        """Use the next server: this one does not answer as it should."""
        if at != self._at or self._is_closed:
            return
        self._at = (at + 1) % len(self._addresses)
        self._drop_idle()
        for stream in list(self._streams):
            stream.lost("its server does not answer")

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.abort()

    # ---- callbacks of exchanges and connections

    def free(self, connection: _Connection) -> None:
        if connection.at == self._at and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.abort()

    def gone(self, connection: _Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def over(self, exchange: _Exchange) -> None:
        if isinstance(exchange, _Stream):
            self._streams.discard(exchange)
        elif isinstance(exchange, _Request):
            self._in_progress.discard(exchange)
            if exchange in self._waiting:
                self._waiting.remove(exchange)
            self._serve_next()
            if not self._in_progress and not self._waiting:
                self._quiet.set()


class _Exchange(Protocol):
    """A request, and what receives its answer."""

    method: str
    path: str
    body: bytes
    #: Its authorization; empty: none.
    token: str
    connection: _Connection | None

    def answered(self, status: int) -> None: ...

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None: ...

    def lost(self, reason: str) -> None: ...

    @property
    def is_over(self) -> bool: ...


class _Request:
    """A request whose answer is collected whole."""

    def __init__(self, client: HttpClient, method: str, path: str, body: bytes, token: str) -> None:
        #: Status and body; status 0 and the reason if no answer came.
        self.outcome: Outcome[tuple[int, bytes]] = Outcome()
        self.method = method
        self.token = token
        self.path = path
        self.body = body
        self.connection: _Connection | None = None
        self.timer: Handle | None = None
        self.is_over = False
        self._client = client
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def answered(self, status: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        self._size += len(data)
        self._pieces.append(data)
        if self._size > ETCD_ANSWER_BYTES_MAX:
            self.lost("the answer is too large")

    def ended(self) -> None:
        if self._status >= 500 and self.connection is not None:
            self._client.move_on(self.connection.at)
        self._finish(self._status, b"".join(self._pieces))

    def lost(self, reason: str) -> None:
        if self.is_over:
            return
        connection = self.connection
        self._finish(0, reason.encode())
        if connection is not None:
            self._client.move_on(connection.at)
            connection.abort()

    def _finish(self, status: int, body: bytes) -> None:
        self.is_over = True
        if self.timer is not None:
            self.timer.cancel()
        self._client.over(self)
        self.outcome.succeed((status, body))


class _Stream:
    """A request whose answer is passed on line by line, without an end."""

    method = "POST"

    def __init__(
        self,
        client: HttpClient,
        path: str,
        body: bytes,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
        token: str,
    ) -> None:
        self.token = token
        self.path = path
        self.body = body
        self.connection: _Connection | None = None
        self.is_over = False
        self._client = client
        self._on_line = on_line
        self._on_end = on_end
        self._status = 0
        #: The beginning of a line that is not complete.
        self._rest = bytearray()

    def answered(self, status: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > ETCD_ANSWER_BYTES_MAX:
            self.lost("a line is too large")
        elif self._status == 200 and b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                if line and not self.is_over:
                    self._on_line(line)

    def ended(self) -> None:
        self.lost(f"status {self._status}: {self._rest[:200].decode('utf-8', 'replace')}")

    def lost(self, reason: str) -> None:
        if not self.is_over:
            self.close()
            self._on_end(reason)

    def close(self) -> None:
        """End the stream, without a callback."""
        self.is_over = True
        self._client.over(self)
        if self.connection is not None:
            self.connection.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, client: HttpClient, at: int, host: str) -> None:
        self.at = at
        self._client = client
        self._host = host
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None

    def send(self, exchange: _Exchange) -> None:
        if exchange.is_over:
            # The request has ended while the connection was made.
            self._client.free(self)
            return
        self._exchange = exchange
        exchange.connection = self
        headers = [
            ("Host", self._host),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(exchange.body))),
        ]
        if exchange.token:
            headers.append(("Authorization", exchange.token))
        request = h11.Request(method=exchange.method, target=exchange.path, headers=headers)
        for event in (request, h11.Data(data=exchange.body), h11.EndOfMessage()):
            data = self._http.send(event)
            if data and self._transport is not None:
                self._transport.write(data)

    def abort(self) -> None:
        """Close at once, and drop what was received."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # ---- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._exchange is not None and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._end(f"{self._host} sent no valid HTTP: {error}")
            self.abort()

    def _take(self, event: object) -> bool:
        """Handle an event. False: h11 has no more for now."""
        exchange = self._exchange
        assert exchange is not None
        if isinstance(event, h11.Response):
            exchange.answered(event.status_code)
        elif isinstance(event, h11.Data):
            exchange.received(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._exchange = None
            self._finish()
            exchange.ended()
        return isinstance(event, h11.Response | h11.InformationalResponse | h11.Data)

    def _finish(self) -> None:
        """The answer is complete: reuse the connection, if both sides agree."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._client.free(self)
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.gone(self)
        self._end(f"connection to {self._host} was lost: {exc or 'closed by the server'}")

    def _end(self, reason: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lost(reason)
