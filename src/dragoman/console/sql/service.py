"""Queries for browsers: `GET /sql` says what is possible, `POST /sql` runs a query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from importlib.util import find_spec
from typing import Final

import msgspec

from dragoman import limits
from dragoman.client_core.credentials import is_reference
from dragoman.config.console import KafkaTarget
from dragoman.console.errors import ConsoleError
from dragoman.console.sessions import Session
from dragoman.console.sql.process import answer_of
from dragoman.console.sql.values import Problem, QueryJob, QueryLogin, QueryRequest, encode
from dragoman.installation import install_command

_LIBRARIES: Final = ("duckdb", "numpy", "pyarrow")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOO_MANY: Final = f"{limits.CONSOLE_QUERIES_MAX} queries are running; try again when one has ended"
#: A query that was stopped needs a moment to end its process; the next one waits for that.
_TURN_TIMEOUT_S: Final = 5.0


class QueryRefusedError(ConsoleError):
    code = "query_refused"
    status = 403


class TooManyQueriesError(ConsoleError):
    code = "overloaded"
    status = 503


class EngineMissingError(ConsoleError):
    code = "engine_missing"
    status = 501


class QueryAbilities(msgspec.Struct, frozen=True, kw_only=True):
    """Whether queries can be run here, and their bounds."""

    #: Why not, empty if they can, and the command that helps.
    obstacle: str
    command: str
    records_max: int = limits.CONSOLE_QUERY_RECORDS_MAX
    seconds_max: int = limits.CONSOLE_QUERY_SECONDS_MAX
    rows_max: int = limits.CONSOLE_QUERY_ROWS_MAX


class Queries:
    def __init__(
        self,
        target: KafkaTarget,
        answer: Callable[[QueryJob], AsyncIterator[bytes]] = answer_of,
        has_module: Callable[[str], bool] = lambda name: find_spec(name) is not None,
    ) -> None:
        self._target = target
        self._answer = answer
        self._has_module = has_module
        self._running = 0
        self._ended = asyncio.Event()

    def abilities(self, session: Session | None) -> QueryAbilities:
        try:
            self._job(session, QueryRequest(query="select 1"))
        except EngineMissingError as error:
            return QueryAbilities(obstacle=str(error), command=install_command("console"))
        except ConsoleError as error:
            return QueryAbilities(obstacle=str(error), command="")
        return QueryAbilities(obstacle="", command="")

    async def start(self, session: Session | None, body: bytes) -> AsyncIterator[bytes]:
        """The lines of the answer. Raises `ConsoleError` before any."""
        try:
            request = msgspec.json.decode(body, type=QueryRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConsoleError(f"request body: {error}") from None
        job = self._job(session, request)
        if not await self._has_turn():
            raise TooManyQueriesError(_TOO_MANY)
        return self._lines(job)

    async def _lines(self, job: QueryJob) -> AsyncIterator[bytes]:
        if not await self._has_turn():
            # Others have begun since the request was accepted.
            yield encode(Problem(code=TooManyQueriesError.code, detail=_TOO_MANY)) + b"\n"
            return
        self._running += 1
        try:
            async with aclosing(self._answer(job)) as lines:  # type: ignore[type-var]
                async for line in lines:
                    yield line
        finally:
            self._running -= 1
            self._ended.set()

    async def _has_turn(self) -> bool:
        """Whether there is a place, after a wait for one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TURN_TIMEOUT_S):
                while self._running >= limits.CONSOLE_QUERIES_MAX:
                    self._ended.clear()
                    await self._ended.wait()
        return self._running < limits.CONSOLE_QUERIES_MAX

    def _job(self, session: Session | None, request: QueryRequest) -> QueryJob:
        target = self._target
        missing = [name for name in _LIBRARIES if not self._has_module(name)]
        if missing:
            raise EngineMissingError(
                f"queries need {', '.join(missing)}, which the extra `console` installs"
            )
        if not target.bootstrap:
            raise QueryRefusedError(
                "the node has no listener for Kafka's protocol, by which queries read topics"
            )
        return QueryJob(
            request=request,
            bootstrap=target.bootstrap,
            is_encrypted=target.is_encrypted,
            authorities=target.authorities,
            login=self._login(session),
        )

    def _login(self, session: Session | None) -> QueryLogin | None:
        target = self._target
        if session is None or not target.mechanism:
            return None
        if target.obstacle:
            raise QueryRefusedError(target.obstacle)
        if target.mechanism not in _MECHANISMS:
            raise QueryRefusedError(
                f"Kafka's listener takes logins by {target.mechanism} only, which needs no password"
            )
        if not session.user:
            raise QueryRefusedError(
                "an API token cannot log in to Kafka's listener, by which queries read topics: log"
                " in with a user and a password"
            )
        if is_reference(session.password):
            raise QueryRefusedError(
                "a password that begins with file: or env: cannot be used for queries"
            )
        return msgspec.convert(
            {"mechanism": target.mechanism, "name": session.user, "password": session.password},
            QueryLogin,
        )
