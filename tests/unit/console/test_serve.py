"""Goal: slow and idle clients cost the console nothing for long, and it ends when it is not used,
without losing a connection.

Method: the real server on a socket, with time-outs of milliseconds, and raw clients.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import limits
from dragoman.certificates import Authority, write_pair
from dragoman.config.console import ConsoleSettings
from dragoman.config.settings import TlsOptions
from dragoman.console import serve as module
from dragoman.console import tls as tls_module
from dragoman.console.serve import serve
from dragoman.console.tls import BrowserTls
from dragoman.errors import ConfigError

REQUEST = b"GET /static/app.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Served:
    def __init__(self, listener: socket.socket, stop: asyncio.Event) -> None:
        self.listener = listener
        self.port: int = listener.getsockname()[1]
        self.stop = stop
        self.running: asyncio.Task[None]

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def ask(self, request: bytes = REQUEST, **options: Any) -> bytes:
        reader, writer = await self.connect(**options)
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def served(
    check_s: float = 0.005, server: str = "http://127.0.0.1:1", **settings: Any
) -> AsyncIterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    stop = asyncio.Event()
    made = Served(listener, stop)
    known = ConsoleSettings(server=server, **settings)
    made.running = asyncio.create_task(serve(known, listener.dup(), stop, check_s))
    try:
        async with asyncio.timeout(60):
            yield made
            stop.set()
            await made.running
    finally:
        made.running.cancel()
        listener.close()


async def test_pages_are_served_and_the_node_may_be_away() -> None:
    async with served() as console:
        assert (await console.ask()).startswith(b"HTTP/1.1 200 ")
        session = REQUEST.replace(b"/static/app.js", b"/session")
        answer = await console.ask(session)
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"node_unreachable" in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
async def test_slow_client_is_disconnected(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_REQUEST_SECONDS", 0.05)
    monkeypatch.setattr("dragoman.console.app.HTTP_REQUEST_SECONDS", 0.05)
    async with served() as console:
        answer = await console.ask(sent)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


async def test_browser_that_has_gone_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_GRACE_S", 3600)
    asked = asyncio.Event()

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # It has the request, and does not answer.
        asked.set()
        await reader.read()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(node, "127.0.0.1", 0)
    async with silent:
        address = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with served(server=address) as console:
            reader, writer = await console.connect()
            writer.write(REQUEST.replace(b"/static/app.js", b"/session"))
            await asked.wait()
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()


async def test_head_is_bounded() -> None:
    async with served() as console:
        head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * limits.HTTP_HEADER_BYTES_MAX
        answer = await console.ask(head)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


async def test_flood_of_connections_leaves_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 5)
    async with served() as console:
        idle = [await console.connect() for _ in range(20)]
        assert (await console.ask()).startswith(b"HTTP/1.1 200 ")
        # Those that waited for their clients have given way.
        ended = 0
        for reader, writer in idle[:15]:
            try:
                ended += await reader.read() == b""
            except ConnectionError:
                ended += 1
            writer.close()
        assert ended == 15
        for _, writer in idle[15:]:
            writer.close()


async def test_idle_console_ends_and_the_next_connection_waits() -> None:
    async with served(idle_s=0.02) as console:
        await console.running
        # The node has the socket, too: what connects now starts the next process.
        _, writer = await console.connect()
        writer.close()


async def test_console_with_a_client_is_not_idle() -> None:
    async with served(idle_s=0.001) as console:
        reader, writer = await console.connect()
        writer.write(REQUEST.replace(b"Connection: close", b"Connection: keep-alive"))
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(20):
            await console.ask()
        assert not console.running.done()
        writer.close()
        await console.running


async def test_console_that_stops_frees_its_address_at_once() -> None:
    async with served() as console:
        _, writer = await console.connect()
        await console.ask()
        console.listener.close()
        console.stop.set()
        await console.running
        with pytest.raises(ConnectionRefusedError):
            await console.connect()
        writer.close()


# ---- TLS


def renew(directory: Path, authority: Authority) -> TlsOptions:
    """The options of a listener, whose files have a new certificate."""
    pair = authority.server(["localhost"])
    certificate, key = write_pair(str(directory), "console", pair)
    return TlsOptions(certificate_file=certificate, key_file=key)


async def shown_certificate(console: Served, trusted: ssl.SSLContext) -> bytes:
    _, writer = await console.connect(ssl=trusted, server_hostname="localhost")
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return bytes(found)


async def test_renewed_certificate_is_in_use_for_the_next_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "TLS_FILES_CHECK_INTERVAL_S", 0.005)
    authority = Authority.create()
    trusted = ssl.create_default_context(cadata=authority.pair.certificate.decode())
    async with served(tls=renew(tmp_path, authority)) as console:
        first = await shown_certificate(console, trusted)
        page = await console.ask(ssl=trusted, server_hostname="localhost")
        assert page.startswith(b"HTTP/1.1 200 ")
        renew(tmp_path, authority)
        while await shown_certificate(console, trusted) == first:
            pass


def test_files_that_cannot_be_used_leave_the_old_ones(tmp_path: Path) -> None:
    authority = Authority.create()
    options = renew(tmp_path, authority)
    served_by = BrowserTls(options)
    before = served_by.context
    Path(options.certificate_file).write_text("nonsense")
    served_by.check()
    assert served_by.context is before
    with pytest.raises(ConfigError):
        BrowserTls(options)


async def test_client_without_tls_is_no_client(tmp_path: Path) -> None:
    async with served(tls=renew(tmp_path, Authority.create())) as console:
        assert await console.ask() == b""
