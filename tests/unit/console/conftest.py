"""A console before a node that answers what a test says, and the browser of a test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import msgspec
import pytest

from dragoman.config.console import ConsoleSettings
from dragoman.console.app import Console, create_app
from dragoman.console.upstream import BROWSER_OF_REQUEST, Headers, Upstream

Answer = tuple[int, object]


class FakeAnswer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    def header(self, name: str) -> str:
        return "application/json" if name == "content-type" else ""

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self._body

    async def body(self, size_max: int) -> bytes:
        assert len(self._body) <= size_max
        return self._body


class FakeNode:
    """Examines credentials as a node does, and notes what it is asked."""

    url = ""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes, str]] = []
        self.is_of_node = True
        self.users = {"Basic YWxpY2U6eA==": "alice", "Bearer drg_1": "token"}
        #: Whether callers without a login see anything; what they are told, if not.
        self.refusal: Answer | None = None
        self.answer: Callable[[str, str], Answer] = lambda method, target: (200, {"items": []})

    @asynccontextmanager
    async def ask(
        self, method: str, target: str, headers: Headers = (), body: bytes = b""
    ) -> AsyncIterator[FakeAnswer]:
        named = dict(headers)
        self.asked.append((method, target, named, body, BROWSER_OF_REQUEST.get()))
        credentials = named.get("authorization")
        if credentials is None:
            found = self.refusal or self.answer(method, target)
        elif credentials in self.users:
            found = self.answer(method, target)
        else:
            found = (401, {"status": 401, "code": "authentication_failed", "detail": "wrong"})
        yield FakeAnswer(found[0], msgspec.json.encode(found[1]))

    def close(self) -> None:
        return None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Browser:
    def __init__(self, node: FakeNode, settings: ConsoleSettings, clock: Clock) -> None:
        self.console = Console(settings, cast(Upstream, node), clock, port=8081)
        self.client = self.other("192.0.2.7")

    def other(self, address: str, base: str = "http://127.0.0.1:8081") -> httpx.AsyncClient:
        """Another browser of the same console."""
        transport = httpx.ASGITransport(create_app(self.console), client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url=base)

    async def log_in(self, user: str = "alice", password: str = "x") -> httpx.Response:
        body = {"user": user, "password": password}
        return await self.client.post("/session", json=body)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def browsers(node: FakeNode, clock: Clock) -> Callable[..., Browser]:
    def made(**settings: Any) -> Browser:
        return Browser(node, ConsoleSettings(**settings), clock)

    return made


@pytest.fixture
def browser(browsers: Callable[..., Browser]) -> Browser:
    return browsers()


def codes(answers: Iterable[httpx.Response]) -> list[tuple[int, str]]:
    return [(each.status_code, each.json().get("code", "")) for each in answers]
