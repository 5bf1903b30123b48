"""Queries for browsers: `GET /sql` says what is possible, `POST /sql` runs a query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from importlib.util import find_spec
from typing import Final

import msgspec

from dragoman import limits
from dragoman.console.errors import ConsoleError
from dragoman.console.kafka_access import KafkaAccess
from dragoman.console.records.failures import failure_of
from dragoman.console.sessions import Session, Sessions
from dragoman.console.sql.process import answer_of
from dragoman.console.sql.values import Problem, QueryJob, QueryLogin, QueryRequest, encode
from dragoman.console.streams import within
from dragoman.errors import DragomanError
from dragoman.installation import QUERY_MODULES, install_command

_TOO_MANY: Final = f"{limits.CONSOLE_QUERIES_MAX} queries are running; try again when one has ended"
_ENDED: Final = (
    encode(Problem(code="login_needed", detail="the session has ended: log in again")) + b"\n"
)
#: A query that was stopped needs a moment to end its process; the next one waits for that.
_TURN_TIMEOUT_S: Final = 5.0


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
        access: KafkaAccess,
        sessions: Sessions,
        answer: Callable[[QueryJob], AsyncGenerator[bytes]] = answer_of,
        has_module: Callable[[str], bool] = lambda name: find_spec(name) is not None,
    ) -> None:
        self._access = access
        self._sessions = sessions
        self._answer = answer
        self._has_module = has_module
        self._running = 0
        self._ended = asyncio.Event()

    async def abilities(self, session: Session | None) -> QueryAbilities:
        try:
            await self._job(session, QueryRequest(query="select 1"))
        except EngineMissingError as error:
            return QueryAbilities(obstacle=str(error), command=install_command("console"))
        except ConsoleError as error:
            return QueryAbilities(obstacle=str(error), command="")
        return QueryAbilities(obstacle="", command="")

    async def start(self, session: Session | None, body: bytes) -> AsyncGenerator[bytes]:
        """The lines of the answer. Raises `ConsoleError` before any."""
        try:
            request = msgspec.json.decode(body, type=QueryRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConsoleError(f"request body: {error}") from None
        job = await self._job(session, request)
        if not await self._has_turn():
            raise TooManyQueriesError(_TOO_MANY)
        return within(self._sessions, session, self._lines(job), _ENDED)

    async def _lines(self, job: QueryJob) -> AsyncGenerator[bytes]:
        if not await self._has_turn():
            # Others have begun since the request was accepted.
            yield encode(Problem(code=TooManyQueriesError.code, detail=_TOO_MANY)) + b"\n"
            return
        self._running += 1
        try:
            async with aclosing(self._answer(job)) as lines:
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

    async def _job(self, session: Session | None, request: QueryRequest) -> QueryJob:
        missing = [name for name in QUERY_MODULES if not self._has_module(name)]
        if missing:
            raise EngineMissingError(
                f"queries need {', '.join(missing)}, which the extra `console` installs"
            )
        try:
            found = await self._access.settings(session)
        except (DragomanError, OSError) as error:
            raise failure_of(error, has_session=session is not None) from None
        login = None if found.login is None else QueryLogin.of(found.login)
        return QueryJob(
            request=request, bootstrap=self._access.bootstrap, tls=found.tls, login=login
        )
