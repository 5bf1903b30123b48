"""Requests of pages about records.

POST /records/search   what is found, as lines of JSON
POST /records/copy     what is found, written to another topic
GET  /records/tail     new records, as server-sent events
GET  /records/one      a record with all it holds
GET  /records/bytes    the bytes of a key or a value, as a file
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Final, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from dragoman.client.kafka import KafkaClient
from dragoman.console.errors import ConsoleError, LoginNeededError
from dragoman.console.kafka_access import KafkaAccess
from dragoman.console.readers import is_refused
from dragoman.console.records.clients import Clients
from dragoman.console.records.copies import copying
from dragoman.console.records.decoding.decoders import Schemas
from dragoman.console.records.decoding.forms import Choice
from dragoman.console.records.decoding.topic_schema import schemas_of
from dragoman.console.records.failures import refused
from dragoman.console.records.filters.matching import Matches, compiled
from dragoman.console.records.followed import topics_of
from dragoman.console.records.one import record_at
from dragoman.console.records.places import range_of
from dragoman.console.records.results import result_of
from dragoman.console.records.scan import Scan, Turns
from dragoman.console.records.search import Question, Result, Running
from dragoman.console.records.shown import ALONE, decoders_for, show_record
from dragoman.console.records.tail import RunningTail
from dragoman.console.records.values import (
    Asked,
    Copy,
    Decoding,
    Offset,
    Partition,
    Search,
    Tail,
)
from dragoman.console.sessions import Session, Sessions
from dragoman.console.streams import Streamed
from dragoman.errors import MALFORMED
from dragoman.limits import CONSOLE_READS_MAX, CONSOLE_READS_PER_USER_MAX

Value = TypeVar("Value")
_LINES: Final = "application/x-ndjson"
_EVENTS: Final = "text/event-stream"


#: What becomes of what a question finds, for as long as the answer takes.
Results: TypeAlias = Callable[[KafkaClient, Question], AbstractAsyncContextManager[Result]]


class Allowed(Protocol):
    def __call__(self, request: Request, *, is_change: bool) -> Session | None: ...


class TooManyReadsError(ConsoleError):
    code = "overloaded"
    status = 503


class _One(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    partition: Partition
    offset: Offset
    key: Choice = "auto"
    value: Choice = "auto"
    #: What to download.
    part: Literal["key", "value"] = "value"


class Records:
    """`allowed` gives the session of a request or refuses it, and `body` reads what it sends."""

    def __init__(
        self,
        access: KafkaAccess,
        allowed: Allowed,
        body: Callable[[Request], Awaitable[bytes]],
        sessions: Sessions,
        monotonic: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._allowed = allowed
        self._body = body
        self._sessions = sessions
        self._monotonic = monotonic
        self._now_ms = now_ms
        self._turns = Turns()
        #: By user; empty: callers without a login.
        self._reads: Counter[str] = Counter()
        self.clients = Clients(access, sessions.is_open, monotonic)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/records/search", self.search, methods=["POST"]),
            Route("/records/copy", self.copy, methods=["POST"]),
            Route("/records/tail", self.tail, methods=["GET"]),
            Route("/records/one", self.one, methods=["GET"]),
            Route("/records/bytes", self.bytes, methods=["GET"]),
        ]

    async def close(self) -> None:
        await self.clients.close()

    # ---- requests

    async def search(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        search = _decoded(await self._body(request), Search)

        @asynccontextmanager
        async def listed(_: KafkaClient, question: Question) -> AsyncIterator[Result]:
            yield result_of(search, question.decoders)

        return await self._searched(request, session, search, listed)

    async def copy(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        copy = _decoded(await self._body(request), Copy)
        self._allowed(request, is_change=not copy.validate_only)

        def copied(client: KafkaClient, question: Question) -> AbstractAsyncContextManager[Result]:
            return copying(client, copy, question.range.starts)

        return await self._searched(request, session, copy, copied)

    async def _searched(
        self, request: Request, session: Session | None, asked: Asked, results: Results
    ) -> Response:
        matches = self._filter(asked.filter)
        # Held until the last line is sent, or the browser is gone.
        async with AsyncExitStack() as stack:
            stack.enter_context(self._counted(session))
            client = await stack.enter_async_context(self._client(session))
            with refused(has_session=session is not None):
                schemas = await schemas_of(client, asked.topic)
                decoders = decoders_for(asked.decode, schemas)
                range_ = await range_of(client, asked, self._now_ms())
                notes = _notes(asked.decode, schemas)
                question = Question(asked.budget, range_, decoders, matches, notes)
                result = await stack.enter_async_context(results(client, question))
            scan = Scan(client, asked.topic, range_.starts, range_.ends, self._turns)
            running = Running(
                question, result, scan, self._monotonic, self._check(request, session)
            )
            return Streamed(running.lines(), stack.pop_all(), media_type=_LINES)

    async def tail(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        tail = _decoded(request.query_params.get("request", "").encode(), Tail)
        matches = self._filter(tail.filter)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._counted(session))
            # A tail waits for records, and requests behind it on its connection would wait, too.
            client = await stack.enter_async_context(self.clients.own(session))
            with refused(has_session=session is not None):
                decoders = {
                    topic: decoders_for(tail.decode, await schemas_of(client, topic))
                    for topic in await topics_of(client, tail)
                }
            running = RunningTail(
                client,
                tail,
                decoders,
                matches,
                self._turns,
                self._monotonic,
                self._check(request, session),
            )
            return Streamed(running.events(), stack.pop_all(), media_type=_EVENTS)

    async def one(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        wanted = _queried(request)
        async with self._client(session) as client:
            with refused(has_session=session is not None):
                schemas = await schemas_of(client, wanted.topic)
                choice = Decoding(key=wanted.key, value=wanted.value)
                decoders = decoders_for(choice, schemas)
                record = await record_at(client, wanted.topic, wanted.partition, wanted.offset)
        await self._turns.next()
        shown = show_record(wanted.partition, record, decoders, ALONE)
        return Response(msgspec.json.encode(shown), media_type="application/json")

    async def bytes(self, request: Request) -> Response:
        session = self._allowed(request, is_change=False)
        wanted = _queried(request)
        async with self._client(session) as client:
            with refused(has_session=session is not None):
                record = await record_at(client, wanted.topic, wanted.partition, wanted.offset)
        name = f"{wanted.topic}-{wanted.partition}-{wanted.offset}.{wanted.part}"
        content = record.key if wanted.part == "key" else record.value
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
        return Response(content or b"", headers=headers, media_type="application/octet-stream")

    # ---- their parts

    def _filter(self, text: str) -> Matches | None:
        return compiled(text, self._now_ms()) if text.strip() else None

    @asynccontextmanager
    async def _client(self, session: Session | None) -> AsyncIterator[KafkaClient]:
        async with self.clients.use(session) as client:
            yield client

    @contextmanager
    def _counted(self, session: Session | None) -> Iterator[None]:
        name = "" if session is None else session.owner
        if self._reads[name] >= CONSOLE_READS_PER_USER_MAX:
            raise TooManyReadsError(
                f"{CONSOLE_READS_PER_USER_MAX} searches and tails of yours run already: stop one"
            )
        if self._reads.total() >= CONSOLE_READS_MAX:
            raise TooManyReadsError("too many searches and tails of all users run; try again")
        self._reads[name] += 1
        try:
            yield
        finally:
            self._reads[name] -= 1
            if not self._reads[name]:
                del self._reads[name]

    def _check(self, request: Request, session: Session | None) -> Callable[[], None]:
        def check() -> None:
            if session is not None and not self._sessions.use(session):
                raise LoginNeededError("the session has ended: log in again")
            if is_refused(request):
                raise LoginNeededError("log in first: the node shows its topics to users only")

        return check


def _notes(choice: Decoding, schemas: Schemas) -> tuple[str, ...]:
    if choice.value != "auto" or schemas.form is not None or schemas.is_absent:
        return ()
    return (f"values are decoded without the topic's schema: {schemas.reason}",)


def _queried(request: Request) -> _One:
    try:
        return msgspec.convert(dict(request.query_params), _One, strict=False)
    except msgspec.ValidationError as error:
        raise ConsoleError(str(error)) from None


def _decoded(data: bytes, kind: type[Value]) -> Value:
    try:
        return msgspec.json.decode(data, type=kind)
    except MALFORMED as error:
        raise ConsoleError(f"request: {error}") from None
