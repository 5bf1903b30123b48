"""Goal: a node that misbehaves costs the console one request, and its lists are whole or refused.

Method: real servers on loopback and on a Unix socket, which send prepared bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.console import lists, upstream
from dragoman.console.errors import NodeUnreachableError, OverloadedError
from dragoman.console.lists import NodeRefusedError, whole_list
from dragoman.console.upstream import BROWSER_OF_REQUEST, Upstream

OK = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def node(serve: Serve) -> AsyncIterator[Upstream]:
    tasks: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(cast("asyncio.Task[Any]", asyncio.current_task()))
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = Upstream(f"http://127.0.0.1:{port}")
    try:
        yield made
    finally:
        made.close()
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Serve:
    """Each request of a connection gets the next answer; then the connection is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(each)
            await writer.drain()

    return serve


def body(value: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(value) + value


async def fetched(found: Upstream, size_max: int = 1 << 20) -> bytes:
    async with found.ask("GET", "/") as answer:
        return await answer.body(size_max)


async def test_connection_is_kept_and_a_closed_one_is_replaced() -> None:
    peers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        await answering(body(b"1"), body(b"2"))(reader, writer)

    async with node(serve) as found:
        assert [await fetched(found) for _ in range(3)] == [b"1", b"2", b"1"]
    assert len(peers) == 2


async def test_change_is_never_sent_on_a_kept_connection() -> None:
    peers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        await answering(body(b"1"))(reader, writer)

    async with node(serve) as found:
        await fetched(found)
        async with found.ask("POST", "/", (), b"{}") as answer:
            assert answer.status == 200
    assert len(peers) == 2


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"", "the connection to the node was lost"),
        (b"nonsense\r\n\r\n", "the connection to the node was lost"),
        (OK + b"X: " + b"a" * 100_000, "the connection to the node was lost"),
        (OK + b"Content-Length: 10\r\n\r\nabc", "the connection to the node was lost"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "the connection to the node was lost"),
        (body(b"a" * 2000), "more than 1000 bytes"),
        (OK + b"\r\n" + b"a" * 5000, "more than 1000 bytes"),
    ],
    ids=["nothing", "no HTTP", "huge head", "early end", "bad chunk", "long body", "endless body"],
)
async def test_answer_that_cannot_be_used_is_an_error(sent: bytes, text: str) -> None:
    async with node(answering(sent)) as found:
        with pytest.raises(NodeUnreachableError, match=text):
            await fetched(found, 1000)
        assert not found._idle


async def test_silent_node_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "ANSWER_TIMEOUT_S", 0.02)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with node(serve) as found:
        with pytest.raises(NodeUnreachableError, match="does not answer"):
            await fetched(found)


async def test_node_that_does_not_run_is_unreachable(tmp_path: Path) -> None:
    async with node(answering()) as found:
        pass
    for each in (found, Upstream("", data=str(tmp_path))):
        with pytest.raises(NodeUnreachableError, match="cannot be reached"):
            await fetched(each)


async def test_requests_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(upstream, "_TURN_TIMEOUT_S", 0.02)
    async with node(answering(body(b"1"), body(b"2"))) as found:
        async with found.ask("GET", "/"):
            with pytest.raises(OverloadedError):
                await fetched(found)
        assert await fetched(found) == b"1"


async def test_answer_that_is_not_read_to_its_end_closes_the_connection() -> None:
    async with node(answering(body(b"1" * 100))) as found:
        async with found.ask("GET", "/") as answer:
            assert answer.status == 200
        assert not found._idle


async def test_own_node_learns_which_browser_asks(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(body(b"{}"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "console.sock")
    found = Upstream("", data=str(tmp_path))
    BROWSER_OF_REQUEST.set("192.0.2.7 https")
    assert await fetched(found) == b"{}"
    found.close()
    server.close()
    assert b"dragoman-browser: 192.0.2.7 https\r\n" in heads[0]
    assert b"host: localhost\r\n" in heads[0].lower()


# ---- lists


def page(items: list[int], following: str | None, **more: object) -> bytes:
    return body(json.dumps({"items": items, "next": following, **more}).encode())


async def test_list_has_all_pages_and_the_nodes_that_are_missing() -> None:
    pages = (page([1, 2], "b&", unreachable=[3]), page([3], None, unreachable=[3, 2]))
    async with node(answering(*pages)) as found:
        whole = json.loads(await whole_list(found, "/", ()))
    assert whole == {"items": [1, 2, 3], "unreachable": [2, 3]}


async def test_refusal_of_a_later_page_refuses_the_list() -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    async with node(answering(page([1], "b"), refusal)) as found:
        with pytest.raises(NodeRefusedError) as caught:
            await whole_list(found, "/", ())
    assert (caught.value.status, caught.value.body) == (401, b"{}")


async def test_endless_list_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_PAGES_MAX", 3)
    async with node(answering(*[page([1], "b")] * 4)) as found:
        with pytest.raises(NodeUnreachableError, match="more than 3 pages"):
            await whole_list(found, "/", ())


async def test_list_that_is_none_is_an_error() -> None:
    async with node(answering(body(b"<html>"))) as found:
        with pytest.raises(NodeUnreachableError, match="not valid"):
            await whole_list(found, "/", ())
