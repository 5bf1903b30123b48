"""HTTP over real loopback sockets, on asyncio's and uvloop's event loops.

Each listener loads its engine with its first connection, so every test here goes through the
hand-over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvloop

import dragoman.api.app
from dragoman import limits
from dragoman.api.connection import least_needed
from dragoman.api.listener import HttpListener

SOURCE = Path(__file__).parents[3] / "src"
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class FixedClock:
    def wall_ms(self) -> int:
        return 1_700_000_000_999

    def monotonic(self) -> float:
        return 0.0


class Served:
    def __init__(self, listener: HttpListener, port: int) -> None:
        self.listener = listener
        self.port = port

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, data: bytes) -> bytes:
        """Everything the server says until it closes the connection."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def serving(node, send_buffer_bytes: int | None = None) -> AsyncIterator[Served]:
    loop = asyncio.get_running_loop()
    listener = HttpListener(lambda: node, FixedClock(), loop)
    server = await loop.create_server(listener.factory(), "127.0.0.1", 0)
    if send_buffer_bytes is not None:
        # Connections inherit it, and the system takes no more of an answer.
        server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    try:
        yield Served(listener, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await listener.close(grace_seconds=0)
        await server.wait_closed()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a scenario on the loop of the parameter."""

    def run(scenario: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario())  # type: ignore[arg-type]

    return run


def test_requests_of_one_connection_are_served(run, node) -> None:
    async def scenario() -> None:
        async with serving(node) as served, served.client() as client:
            assert (await client.get("/livez")).text == "ok\n"
            created = await client.post("/api/v1/topics", json={"name": "a/b"})
            assert created.status_code == 201
            described = await client.get(created.headers["location"])
            assert described.json()["name"] == "a/b"
            assert (await client.delete(created.headers["location"])).status_code == 204
            assert "dragoman_topics 0\n" in (await client.get("/metrics")).text
            assert served.listener.connection_count == 1

    run(scenario)


def test_answers_carry_the_date_of_the_clock(run, node) -> None:
    async def scenario() -> None:
        async with serving(node) as served, served.client() as client:
            response = await client.get("/livez")
            assert response.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"

    run(scenario)


def test_connections_that_come_while_loading_are_all_served(run, node) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            answers = await asyncio.gather(*(served.exchange(PROBE) for _ in range(20)))
            assert all(answer.endswith(b"\r\n\r\nok\n") for answer in answers)

    run(scenario)


def test_requests_sent_together_are_answered_in_order(run, node) -> None:
    async def scenario() -> None:
        requests = (
            b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
            b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        async with serving(node) as served:
            answer = await served.exchange(requests)
            assert answer.index(b"ok\n") < answer.index(b"ready\n")

    run(scenario)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez SPDY/1\r\nHost: x\r\n\r\n",
        b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (limits.HTTP_HEADER_BYTES_MAX + 1),
    ],
    ids=["tls", "kafka", "words", "no-host", "version", "length", "huge-head"],
)
def test_what_is_not_http_is_refused_and_closed(run, node, data: bytes) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            answer = await served.exchange(data)
            assert answer.startswith(b"HTTP/1.1 400 ")
            async with served.client() as client:
                assert (await client.get("/livez")).status_code == 200

    run(scenario)


def test_large_body_is_refused_before_it_is_read(run, node) -> None:
    async def scenario() -> None:
        head = (
            b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 999999999\r\n\r\n"
        )
        async with serving(node) as served:
            reader, writer = await served.connect()
            writer.write(head)
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.close()

    run(scenario)


HELD = {
    "silent": b"",
    "slow head": b"GET /livez HTTP/1.1\r\nHost:",
    "slow body": b"POST /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    "keep-alive": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", HELD.values(), ids=HELD.keys())
def test_held_connections_give_way_to_a_probe(
    run, node, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            await served.exchange(PROBE)
            held = [await served.connect() for _ in range(4)]
            for reader, writer in held:
                writer.write(data)
                if data.endswith(b"\r\n\r\n"):
                    await reader.readuntil(b"ok\n")
            for _ in range(3):
                assert (await served.exchange(PROBE)).endswith(b"\r\n\r\nok\n")
            assert served.listener.connection_count <= 4
            # The oldest went first.
            assert await _read_until_closed(held[0][0]) == b""
            for _, writer in held:
                writer.close()

    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 4)
    run(scenario)


def test_held_connections_give_way_to_a_probe_when_descriptors_run_out(run, node) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            await served.exchange(PROBE)
            held = [await served.connect() for _ in range(4)]
            for _, writer in held:
                writer.write(b"GET /livez HTTP/1.1\r\nHost:")
            while served.listener.connection_count < 4:
                await asyncio.sleep(0)
            # From here on, every connection has a descriptor that others need.
            served.listener.descriptors.highest = lambda: 0
            for _ in range(3):
                assert (await served.exchange(PROBE)).endswith(b"\r\n\r\nok\n")
            assert await _read_until_closed(held[0][0]) == b""
            assert served.listener.connection_count <= 4
            for _, writer in held:
                writer.close()
            while served.listener.connection_count:
                await asyncio.sleep(0)
            # No connection of HTTP can give way any more.
            served.listener._give_way = lambda: True
            assert (await served.exchange(PROBE)).endswith(b"\r\n\r\nok\n")
            served.listener._give_way = lambda: False
            assert await served.exchange(PROBE) == b""

    run(scenario)


def test_a_probe_is_answered_although_others_came_while_loading(
    run, node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            held = [await served.connect() for _ in range(4)]
            assert (await served.exchange(PROBE)).endswith(b"\r\n\r\nok\n")
            for _, writer in held:
                writer.close()

    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 4)
    run(scenario)


def test_connection_that_work_is_done_for_keeps_its_place(
    run, node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        node.may_create = asyncio.Event()
        async with serving(node) as served, served.client() as client:
            await client.get("/livez")
            creation = asyncio.create_task(client.post("/api/v1/topics", json={"name": "t"}))
            await _request_started(served)
            assert await served.exchange(PROBE) == b""
            node.may_create.set()
            assert (await creation).status_code == 201

    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 1)
    run(scenario)


def test_answers_that_are_not_taken_are_bounded_in_bytes(
    run, node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        for number in range(900):
            node.add_topic(f"{number:0240d}")
        request = b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        async with serving(node) as served:
            await served.exchange(PROBE)
            # So many at once that no buffer of the system takes all answers.
            engine = served.listener._engine
            assert engine is not None
            with socket.socket() as first, socket.socket() as second:
                await _send_only(first, served, request * 60)
                while not any(each.flow.write_paused for each in engine.connections()):
                    await asyncio.sleep(0)
                (blocked,) = engine.connections()
                await _send_only(second, served, request * 60)
                while blocked in engine.state.connections:
                    await asyncio.sleep(0)
                assert served.listener.connection_count == 1

    monkeypatch.setattr(limits, "HTTP_UNSENT_BYTES_MAX", 400_000)
    run(scenario)


def test_last_answers_that_are_not_taken_give_way_too(
    run, node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is closed once its answer is taken holds its place until then."""

    async def scenario() -> None:
        for number in range(900):
            node.add_topic(f"{number:0240d}")
        request = (
            b"GET /api/v1/topics?limit=1000 HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\n\r\n"
        )
        async with serving(node, send_buffer_bytes=4096) as served:
            await served.exchange(PROBE)
            engine = served.listener._engine
            assert engine is not None
            held = [socket.socket() for _ in range(4)]
            for each in held:
                await _send_only(each, served, request)

            def unsent() -> list[int]:
                found = [each for each in engine.connections() if each.transport.is_closing()]
                return [each.transport.get_write_buffer_size() for each in found]

            while len(unsent()) < 4:
                await asyncio.sleep(0)
            assert all(unsent())
            for _ in range(3):
                assert (await served.exchange(PROBE)).endswith(b"\r\n\r\nok\n")
            monkeypatch.setattr(limits, "HTTP_UNSENT_BYTES_MAX", 0)
            engine.relieve()
            while served.listener.connection_count:
                await asyncio.sleep(0)
            for each in held:
                each.close()

    monkeypatch.setattr(limits, "HTTP_CONNECTIONS_MAX", 4)
    run(scenario)


async def _send_only(client: socket.socket, served: Served, request: bytes) -> None:
    """As one that never reads, with little room for what it is sent."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", served.port))
    await loop.sock_sendall(client, request)


def test_address_with_most_quiet_connections_loses_the_oldest() -> None:
    def connection(host: str, since: int, *, is_quiet: bool = True) -> SimpleNamespace:
        return SimpleNamespace(
            host=host,
            quiet_rank=since,
            is_quiet=is_quiet,
            is_queued=False,
            is_stream=False,
            is_leaving=False,
        )

    scraper = connection("10.0.0.1", 1)
    busy = connection("10.0.0.9", 0, is_quiet=False)
    holders = [connection("10.0.0.9", since) for since in (5, 3, 4)]
    assert least_needed([scraper, busy, *holders]) is holders[1]  # type: ignore[list-item]
    assert least_needed([busy]) is None  # type: ignore[list-item]
    queued = connection("10.0.0.9", 2, is_quiet=False)
    queued.is_queued = True
    assert least_needed([busy, queued]) is queued  # type: ignore[list-item]
    assert least_needed([busy, queued, scraper]) is scraper  # type: ignore[list-item]


@pytest.mark.parametrize("data", [b"", b"GET /livez HTTP/1.1\r\nHost:"], ids=["silent", "slow"])
def test_connection_that_sends_no_whole_request_is_closed(
    run, node, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            assert await served.exchange(data) == b""

    monkeypatch.setattr(limits, "HTTP_REQUEST_SECONDS", 0)
    run(scenario)


def test_close_lets_a_request_finish(run, node) -> None:
    async def scenario() -> None:
        node.may_create = asyncio.Event()
        async with serving(node) as served, served.client() as client:
            await client.get("/livez")
            creation = asyncio.create_task(client.post("/api/v1/topics", json={"name": "t"}))
            await _request_started(served)
            closing = asyncio.create_task(served.listener.close(grace_seconds=60))
            node.may_create.set()
            assert (await creation).status_code == 201
            await closing
            assert served.listener.connection_count == 0

    run(scenario)


def test_close_cuts_a_request_that_does_not_finish(run, node) -> None:
    async def scenario() -> None:
        node.may_create = asyncio.Event()
        async with serving(node) as served, served.client() as client:
            await client.get("/livez")
            creation = asyncio.create_task(client.post("/api/v1/topics", json={"name": "t"}))
            await _request_started(served)
            await served.listener.close(grace_seconds=0)
            with pytest.raises(httpx.TransportError):
                await creation
            assert asyncio.all_tasks() == {asyncio.current_task()}
            assert node.topics == {}

    run(scenario)


def test_close_while_loading_cuts_what_waits(run, node) -> None:
    async def scenario() -> None:
        async with serving(node) as served:
            reader, writer = await served.connect()
            while not served.listener.connection_count:
                await asyncio.sleep(0)
            await served.listener.close(grace_seconds=0)
            assert await _read_until_closed(reader) == b""
            writer.close()

    run(scenario)


def test_failed_load_is_logged_and_tried_again(
    run, node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_node: object) -> None:
        raise ImportError("no such library")

    async def scenario() -> None:
        async with serving(node) as served:
            with monkeypatch.context() as broken:
                broken.setattr(dragoman.api.app, "create_app", fail)
                assert await served.exchange(b"") == b""
            async with served.client() as client:
                assert (await client.get("/livez")).status_code == 200

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert "the HTTP server could not be loaded" in caplog.text


def test_broker_loads_http_only_with_the_first_connection() -> None:
    script = """
import asyncio, sys
from dragoman.api.listener import HttpListener

heavy = {"uvicorn", "starlette", "h11", "dragoman.api.operations"}

class Clock:
    def monotonic(self):
        return 0.0
    def wall_ms(self): return 0
    def monotonic(self): return 0.0

class Node:
    allowed_hosts = ()
    def own_names(self): return ()
    def fatal_failure(self): return ""
    def stats(self): return iter(())

async def main():
    loop = asyncio.get_running_loop()
    listener = HttpListener(Node, Clock(), loop)
    server = await loop.create_server(listener.factory(), "127.0.0.1", 0)
    assert heavy.isdisjoint(sys.modules), heavy & sys.modules.keys()
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    assert (await reader.read()).endswith(b"ok\\n")
    assert heavy & sys.modules.keys() == heavy
    writer.close()
    server.close()
    await listener.close(0)

asyncio.run(main())
"""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", script], check=True, env={"PYTHONPATH": str(SOURCE)}
    )


async def _read_until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def _request_started(served: Served) -> None:
    """Turn the loop until the engine works on a request."""
    engine = served.listener._engine
    assert engine is not None
    while not engine.state.tasks:
        await asyncio.sleep(0)
