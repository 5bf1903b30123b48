"""A console in front of a real broker, and what browsers ask of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dragoman.client.kafka import KafkaClient, NewRecord, TopicPartition
from dragoman.config.console import ConsoleSettings, KafkaTarget
from dragoman.console.serve import serve
from dragoman.console.upstream import Answer, Headers, Upstream
from dragoman.log.batch import Record, build_batch
from dragoman.log.compression import Codec
from dragoman.testing import EphemeralBroker

_BODY_BYTES_MAX = 256 << 20


class Browser:
    """One user of a console."""

    def __init__(self, url: str) -> None:
        self._upstream = Upstream(url)
        self._cookies: tuple[tuple[str, str], ...] = ()

    @asynccontextmanager
    async def ask(
        self, method: str, path: str, body: object = None, headers: Headers = ()
    ) -> AsyncIterator[Answer]:
        data = b"" if body is None else msgspec.json.encode(body)
        content = (("content-type", "application/json"),) if data else ()
        sent = (*self._cookies, *content, *headers)
        async with self._upstream.ask(method, path, sent, data) as answer:
            yield answer

    async def json(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        async with self.ask(method, path, body) as answer:
            data = await answer.body(_BODY_BYTES_MAX)
        return answer.status, msgspec.json.decode(data) if data else None

    async def log_in(self, user: str, password: str) -> None:
        login = {"user": user, "password": password}
        async with self.ask("POST", "/session", login) as answer:
            assert answer.status == 204, await answer.body(_BODY_BYTES_MAX)
            cookie = answer.header("set-cookie").partition(";")[0]
        self._cookies = (("cookie", cookie),)

    async def log_out(self) -> None:
        await self.json("DELETE", "/session")

    async def search(self, topic: str, **request: Any) -> list[dict[str, Any]]:
        """The lines of a search."""
        async with self.ask("POST", "/records/search", {"topic": topic, **request}) as answer:
            body = await answer.body(_BODY_BYTES_MAX)
        if answer.status != 200:
            return [{**msgspec.json.decode(body), "type": "refusal"}]
        return [msgspec.json.decode(each) for each in body.splitlines()]

    @asynccontextmanager
    async def tail(self, *topics: str, **request: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a tail: pairs of name and data."""
        text = msgspec.json.encode({"topics": topics, **request}).decode()
        async with self.ask("GET", f"/records/tail?request={_quoted(text)}") as answer:
            assert answer.status == 200
            yield _events(answer)

    def close(self) -> None:
        self._upstream.close()


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


async def _events(answer: Answer) -> AsyncIterator[Any]:
    rest = b""
    async for chunk in answer.chunks():
        *events, rest = (rest + chunk).split(b"\n\n")
        for each in events:
            name, data = each.split(b"\n", 1)
            yield name.decode().removeprefix("event: "), msgspec.json.decode(data[6:])


class RunningConsole:
    def __init__(self, url: str) -> None:
        self.url = url
        self.browsers: list[Browser] = []

    def browser(self) -> Browser:
        made = Browser(self.url)
        self.browsers.append(made)
        return made


@asynccontextmanager
async def console(broker: EphemeralBroker, **kafka: Any) -> AsyncIterator[RunningConsole]:
    target = KafkaTarget(**{"bootstrap": broker.bootstrap_servers, **kafka})
    ca_file = broker.ca_file if broker.http_url.startswith("https:") else ""
    settings = ConsoleSettings(server=broker.http_url, ca_file=ca_file, kafka=target)
    listener = socket.create_server(("127.0.0.1", 0))
    running = RunningConsole(f"http://127.0.0.1:{listener.getsockname()[1]}")
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, listener, stop))
    try:
        yield running
    finally:
        for each in running.browsers:
            each.close()
        stop.set()
        await serving
        # Connections that were closed end in the next turn.
        await asyncio.sleep(0)


async def write(
    client: KafkaClient, topic: str, records: Sequence[NewRecord], partition: int = 0
) -> None:
    placed = [msgspec.structs.replace(each, partition=partition) for each in records]
    await client.produce_records(topic, placed)


async def write_batch(
    client: KafkaClient,
    where: TopicPartition,
    records: Sequence[Record],
    codec: Codec = Codec.NONE,
) -> None:
    await client.produce(*where, build_batch(records, codec=codec))


def found(lines: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Partition and offset of the records among lines."""
    return [(each["partition"], each["offset"]) for each in lines if each["type"] == "record"]
