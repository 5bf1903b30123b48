"""TLS without sockets: certificates, a peer in memory, and transports that a test reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import cast

from dragoman.certificates import Authority, Pair, write_pair
from dragoman.log_limiter import LogLimiter
from dragoman.net.admission import MemoryBudget
from dragoman.net.channel import log
from dragoman.net.tls.connection import TlsConnection, TlsEnd
from dragoman.net.tls.handshakes import Handshakes
from dragoman.testing.sim.scheduler import SimScheduler
from worlds.broker import FakeTransport

#: Authorities and pairs are made once a run.
_authority = cache(Authority.create)


def authority(name: str = "first") -> Authority:
    return _authority(name)


@cache
def server_pair() -> Pair:
    return authority().server(["localhost", "127.0.0.1"])


@cache
def client_pair(user: str, days: float, name: str) -> Pair:
    return authority(name).client(user, days=days)


class TlsFiles:
    """The files of a server and of its clients, in a directory of the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = str(directory / "ca.pem")
        self.write_ca("first")
        self.certificate, self.key = write_pair(str(directory), "server", server_pair())

    def write_ca(self, *names: str) -> None:
        certificates = b"".join(authority(each).pair.certificate for each in names)
        (self.directory / "ca.pem").write_bytes(certificates)

    def client(self, user: str, days: float = 10, name: str = "first") -> tuple[str, str]:
        """Certificate and key of a user; paths differ by what they hold."""
        return write_pair(str(self.directory), f"{user}-{name}", client_pair(user, days, name))

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a node with this certificate, whose listeners are off."""
        return {
            "ssl.certificate.file": self.certificate,
            "ssl.key.file": self.key,
            "ssl.ca.file": self.ca,
        }


def server_context(files: TlsFiles, clients: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 1
    if clients is not ssl.CERT_NONE:
        context.load_verify_locations(files.ca)
        context.verify_mode = clients
    return context


def client_context(
    files: TlsFiles, pair: tuple[str, str] | None = None, newest: str = "TLSv1_3"
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    context.maximum_version = ssl.TLSVersion[newest]
    if pair is not None:
        context.load_cert_chain(*pair)
    return context


class MemoryPeer:
    """The client's end of a TLS connection."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost", session=session
        )

    def handshake(self, received: bytes = b"") -> bytes:
        """Bytes to send; the client's handshake is complete when there are no more."""
        self._incoming.write(received)
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        if data:
            self.tls.write(data)
        return self._outgoing.read()

    def end(self) -> bytes:
        """A close_notify."""
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """Empty at the end. Raises `ssl.SSLError` for an alert."""
        self._incoming.write(received)
        found = bytearray()
        while True:
            try:
                data = self.tls.read(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return bytes(found)
            if not data:
                return bytes(found)
            found += data


class Above(asyncio.BufferedProtocol):
    """The protocol of a connection: it records."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray(64 << 10)
        self.received = bytearray()
        self.reads: list[int] = []
        self.calls: list[str] = []
        #: Called with each read.
        self.on_read: Callable[[], None] = lambda: None
        self.stays_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.calls.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]
        self.reads.append(nbytes)
        self.on_read()

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.stays_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")


class TlsRig:
    """A server whose connections are on transports of the test."""

    def __init__(self, context: ssl.SSLContext | None, budget_bytes: int = 64 << 20) -> None:
        self.scheduler = SimScheduler()
        self.budget = MemoryBudget(budget_bytes)
        self.handshakes = Handshakes(self.budget, self.scheduler)
        self.context = context
        self.allows_plaintext = False
        self.refusal = ""
        self.counted: list[tuple[str, bool]] = []
        self.wall_ms = 0
        self.end = TlsEnd(
            self.handshakes,
            lambda: self.context,
            allows_plaintext=lambda: self.allows_plaintext,
            refusal=lambda _address, _transport: self.refusal,
            counted=lambda address, is_open: self.counted.append((address, is_open)),
            wall_ms=lambda: self.wall_ms,
            limiter=LogLimiter(log, self.scheduler),
        )

    def connect(self) -> Connected:
        return Connected(self)


class Connected:
    """One connection of a rig, seen from below."""

    def __init__(self, rig: TlsRig) -> None:
        self.rig = rig
        self.above = Above()
        self.connection = TlsConnection(rig.end, lambda: self.above, rig.scheduler)  # type: ignore[arg-type]
        self.transport = Below(lambda: self.connection.connection_lost(None))
        self.transport.channel = self.connection  # type: ignore[assignment]
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def receive(self, data: bytes, at_once: int = 1 << 16) -> None:
        """Bytes from the peer, in pieces, each in a loop turn of its own."""
        while data and not self.transport.is_closed:
            count = self.receive_now(data[:at_once])
            data = data[count:]
            self.rig.scheduler.run_ready()

    def receive_now(self, data: bytes) -> int:
        """One read. Returns how many of the bytes the connection has taken."""
        protocol = self.transport.protocol or self.connection
        buffer = protocol.get_buffer(-1)
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        return count

    def take(self) -> bytes:
        """What the peer has been sent since the last call."""
        sent = bytes(self.transport.sent)
        self.transport.sent.clear()
        return sent

    def shake_hands(self, peer: MemoryPeer, at_once: int = 1 << 16) -> None:
        flight = peer.handshake()
        while flight:
            self.receive(flight, at_once)
            flight = peer.handshake(self.take())
        # A ticket for the next session.
        peer.decrypt(self.take())


class Below(FakeTransport):
    """A transport that may get another protocol."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._was_lost = False

        def lost() -> None:
            if not self._was_lost:
                self._was_lost = True
                on_lost()

        super().__init__(lost, ("127.0.0.1", 9093))
        self.protocol: Above | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, Above)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol | None:
        return self.protocol

    def is_closing(self) -> bool:
        return self.is_closed
