"""Requests to name servers and brokers by address, over connections that are opened on first use.

A server's request goes to the handler registered for its code; without a handler it is refused.
This module retries nothing. An `Identity` has the client's id and generates message ids; requests
are signed with the client's keys (spec, 8.2 and 11).

    unique id   IPv4 4 bytes, process 2, class loader 4, ms since the month began 4, counter 2

Random numbers take the place of the process and of Java's class loader.

The settings of a client and the forms of servers' addresses are here too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from struct import Struct
from typing import Final, TypeAlias

from dragoman.client_core import addresses
from dragoman.client_core.addresses import Address, parse_address
from dragoman.client_core.channel import Channel
from dragoman.client_core.connection import (
    KeptConnection,
    RetrySettings,
    dial,
    require_positive_numbers,
)
from dragoman.client_core.credentials import AccessKey, resolved
from dragoman.client_core.errors import ClientClosedError, ClientError, ConnectionLostError
from dragoman.errors import ConfigError, DragomanError
from dragoman.framing import Scratch
from dragoman.limits import ROCKETMQ_CLIENT_LATE_REPLIES_MAX, ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX
from dragoman.protocols.rocketmq.client.errors import refusal
from dragoman.protocols.rocketmq.codec import Command, Connection, decode, encode_parts
from dragoman.protocols.rocketmq.constants import (
    IS_ONE_WAY,
    IS_RESPONSE,
    VERSION,
    Response,
    Serialization,
)
from dragoman.protocols.rocketmq.signatures import signed
from dragoman.types import Buffer
from dragoman.world import Clock, Random

log = logging.getLogger("dragoman.client.rocketmq")

_OPAQUE_MASK: Final = 0x7FFFFFFF

Fields: TypeAlias = Mapping[str, str | int | bool | None]
#: Answers a request of the server with this address. None sends no response.
Answer: TypeAlias = Callable[[str, Command], Awaitable[Command | None]]


class Link(Channel[Command]):
    """A connection: requests in both directions, responses in any order."""

    def __init__(
        self,
        address: str,
        *,
        scratch: Scratch,
        loop: asyncio.AbstractEventLoop,
        in_flight_max: int,
        on_request: Callable[[Link, Command], None],
        on_lost: Callable[[ClientError], None] = lambda _error: None,
    ) -> None:
        super().__init__(
            address, protocol="RocketMQ", loop=loop, in_flight_max=in_flight_max, on_lost=on_lost
        )
        self._reader = Connection(scratch).reader
        self._on_request = on_request
        self._opaque = 0
        #: The number of requests that timed out since the last byte was received.
        self._late_replies = 0

    async def request(self, command: Command, timeout_s: float) -> Command | None:
        """Send a request and return the response, or None for a one-way request.

        Raises `EncodeError`, `ConnectionLostError`, `RequestTimeoutError`.
        """
        return await self.ask(lambda: self._send(command), timeout_s)

    def _send(self, command: Command) -> int | None:
        self._opaque = command.opaque = (self._opaque + 1) & _OPAQUE_MASK
        self.write(command)
        return None if command.is_one_way else command.opaque

    def write(self, command: Command) -> None:
        """Send a command without waiting for a response. Raises `EncodeError`."""
        if self.is_open:
            assert self._transport is not None
            # An empty last buffer stays in asyncio's transport, which then never closes.
            self._transport.writelines([each for each in encode_parts(command) if each])

    @property
    def local_ip(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if name else ""

    # ---- callbacks of the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def take(self, count: int) -> None:
        self._late_replies = 0
        for frame in self._reader.buffer_updated(count):
            command = decode(frame)
            if not command.is_response:
                self._on_request(self, command)
            elif command.opaque in self._waiting:
                self.deliver(command.opaque, command)
            # Without a pending request, the response is late and is dropped.

    def late(self) -> None:
        """Count a late response. One does not close the connection, because responses may come in
        any order.
        """
        self._late_replies += 1
        if self._late_replies >= ROCKETMQ_CLIENT_LATE_REPLIES_MAX:
            reason = f"connection to {self.address} was closed: the server does not respond"
            self.close(ConnectionLostError(reason))


class _Server(KeptConnection[Link]):
    """The connection to one address."""

    def __init__(self, remoting: Remoting, address: str) -> None:
        super().__init__(parse_address(address))
        self._remoting = remoting

    async def _open(self) -> Link:
        return await self._remoting.dial(self.address)


def _resolved(signer: AccessKey | None) -> AccessKey | None:
    """The credentials with what their references name. Raises `ConfigError`."""
    if signer is None:
        return None
    token = signer.security_token
    return AccessKey(signer.access_key, resolved(signer.secret), token and resolved(token))


class Remoting:
    """The connections of a client, by address. One event loop owns them."""

    def __init__(self, settings: ClientSettings, identity: Identity) -> None:
        self.settings = settings
        self.identity = identity
        self._signer = _resolved(settings.signer)
        self._scratch = Scratch()
        #: Connections by address. They are never removed, because brokers are few.
        self._servers: dict[str, _Server] = {}
        self._answers: dict[int, Answer] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # ---- requests

    async def call(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Send a request and return the response. Raises `RocketmqError` if the server
        refuses it.
        """
        response = await self.request(address, code, fields, body, timeout_s=timeout_s)
        if response.code != Response.SUCCESS:
            raise refusal(response, address)
        return response

    async def request(
        self,
        address: str,
        code: int,
        fields: Fields | None = None,
        body: Buffer = b"",
        *,
        timeout_s: float | None = None,
    ) -> Command:
        """Send a request and return the response, which may be a refusal. Fields that are None are
        omitted.
        """
        command = self._command(code, fields, body)
        link = await self._connected(address)
        response = await link.request(command, timeout_s or self.settings.request_timeout_s)
        assert response is not None
        return response

    async def send_one_way(
        self, address: str, code: int, fields: Fields | None = None, body: Buffer = b""
    ) -> None:
        """Send a request without a response; returns when its bytes are written."""
        command = self._command(code, fields, body)
        command.flag = IS_ONE_WAY
        await (await self._connected(address)).request(command, self.settings.request_timeout_s)

    def _command(self, code: int, fields: Fields | None, body: Buffer) -> Command:
        texts = {
            name: ("true" if value else "false") if isinstance(value, bool) else str(value)
            for name, value in (fields or {}).items()
            if value is not None
        }
        signer = self._signer
        if signer is not None:
            texts = signed(
                texts,
                body,
                access_key=signer.access_key,
                secret_key=signer.secret,
                security_token=signer.security_token,
                version=VERSION,
            )
        serialization = self.settings.serialization
        return Command(code=code, fields=texts, body=body, serialization=serialization)

    def broker(self, address: str) -> str:
        """The address to connect to for a broker that is registered with this address."""
        return vip_address(address) if self.settings.vip_channel else address

    # ---- connections

    async def _connected(self, address: str) -> Link:
        server = self._servers.get(address)
        if server is None:
            if self._is_closed:
                raise ClientClosedError("the client was closed")
            server = self._servers[address] = _Server(self, address)
        return await server.connected()

    async def dial(self, address: Address) -> Link:
        """A new connection. Raises `UnreachableError`."""

        settings = self.settings
        link = await dial(
            address, partial(self._link, address), settings.connect_timeout_s, tls=settings.tls
        )
        if not self._is_closed:
            self.identity.seen_from(link.local_ip)
        return link

    def _link(self, address: Address, loop: asyncio.AbstractEventLoop) -> Link:
        return Link(
            str(address),
            scratch=self._scratch,
            loop=loop,
            in_flight_max=self.settings.in_flight_max,
            on_request=self._requested,
        )

    async def close(self) -> None:
        """Cancel the handlers of servers' requests, and close all connections."""
        self._is_closed = True
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        for server in self._servers.values():
            server.close(ClientClosedError("the client was closed"))
        # Sockets are closed in the next loop turn, which must run before the loop may stop.
        await asyncio.sleep(0)

    # ---- requests of servers

    def on_request(self, code: int, answer: Answer) -> None:
        """Register the handler for requests of servers with this code."""
        self._answers[code] = answer

    def _requested(self, link: Link, request: Command) -> None:
        answer = self._answers.get(request.code)
        if answer is None:
            text = f"request type {request.code} not supported"
            self._reply(link, request, Response.REQUEST_CODE_NOT_SUPPORTED, text)
        elif len(self._answering) >= ROCKETMQ_CLIENT_SERVER_REQUESTS_MAX:
            self._reply(link, request, Response.SYSTEM_BUSY, "too many requests at once")
        else:
            task = asyncio.create_task(self._answer(link, request, answer))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, link: Link, request: Command, answer: Answer) -> None:
        try:
            response = await answer(link.address, request)
        except DragomanError as error:
            log.info("request %d of %s: %s", request.code, link.address, error)
            self._reply(link, request, Response.SYSTEM_ERROR, str(error))
        else:
            if response is not None:
                self._send_back(link, request, response)

    def _reply(self, link: Link, request: Command, code: int, remark: str) -> None:
        self._send_back(link, request, Command(code=code, remark=remark))

    def _send_back(self, link: Link, request: Command, response: Command) -> None:
        if request.is_one_way:
            return
        response.opaque = request.opaque
        response.flag = IS_RESPONSE
        response.serialization = request.serialization
        try:
            link.write(response)
        except DragomanError as error:
            log.info("answer to %s: %s", link.address, error)


_ID: Final = Struct(">4BHIIH")
_ANY_IP: Final = "127.0.0.1"


class Identity:
    def __init__(self, clock: Clock, random: Random, instance: str = "") -> None:
        self._clock = clock
        self._process = random.getrandbits(16)
        self._loader = random.getrandbits(32)
        self._counter = random.getrandbits(16)
        self._instance = instance or f"{self._process:04x}{self._loader:08x}"
        self._ip = ""

    def seen_from(self, ip: str) -> None:
        """Set the client's IP address to the local address of its first connection."""
        self._ip = self._ip or ip

    @property
    def client_id(self) -> str:
        """The client's id at brokers. It is final once a connection was opened."""
        return f"{self._ip or _ANY_IP}@{self._instance}"

    def unique_id(self) -> str:
        """A new id for a message."""
        self._counter = (self._counter + 1) & 0xFFFF
        now_ms = self._clock.wall_ms()
        return unique_id(self._ip, self._process, self._loader, since_month(now_ms), self._counter)


def unique_id(ip: str, process: int, loader: int, month_ms: int, counter: int) -> str:
    numbers = [int(each) if each.isdigit() else 256 for each in ip.split(".")]
    if len(numbers) != 4 or max(numbers) > 255:
        # An IPv6 address does not fit. The other parts make the id unique.
        numbers = [int(each) for each in _ANY_IP.split(".")]
    return _ID.pack(*numbers, process, loader, month_ms, counter).hex().upper()


def since_month(now_ms: int) -> int:
    """Milliseconds since the start of the month."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(start.timestamp()) * 1000


#: The VIP port of a broker is its port less this number; old clients use it by default.
_VIP_PORT_DISTANCE = 2


class ClientSettings(RetrySettings, frozen=True, kw_only=True):
    """Times are in seconds."""

    connect_timeout_s: float = 3.0
    request_timeout_s: float = 5.0
    operation_timeout_s: float = 30.0
    in_flight_max: int = 1024
    #: The intervals of heartbeats to brokers, and of refreshes of routes.
    heartbeat_s: float = 30.0
    route_refresh_s: float = 30.0
    #: Requests are signed when credentials are set, or the access key and the secret key. The
    #: secrets may be references (`client_core.credentials`).
    credentials: AccessKey | None = None
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    #: Whether to connect to the VIP port of brokers, which is two below their port.
    vip_channel: bool = False
    #: The part of the client id that distinguishes clients of one machine; random by default.
    instance: str = ""
    serialization: Serialization = Serialization.JSON

    def __post_init__(self) -> None:
        require_positive_numbers(self)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key and secret_key: expected both or none")
        if self.access_key and self.credentials is not None:
            raise ConfigError("credentials and access_key: expected one of them")

    @property
    def signer(self) -> AccessKey | None:
        """The credentials, in either form, with their secrets as they were given."""
        if not self.access_key:
            return self.credentials
        return AccessKey(self.access_key, self.secret_key, self.security_token)

    def __repr__(self) -> str:
        # Errors and logs must not show the secret key and the token.
        return f"ClientSettings(instance={self.instance!r}, credentials={self.signer!r})"


def parse_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses in texts, each `HOST:PORT` or several separated by commas or semicolons.

    Raises `ConfigError`.
    """
    return tuple(map(str, addresses.parse_addresses(texts, separators=",;")))


def vip_address(address: str) -> str:
    """The address of the VIP port of a broker. Raises `ConfigError`."""
    host, port = addresses.parse_address(address)
    return str(addresses.Address(host, port - _VIP_PORT_DISTANCE))
