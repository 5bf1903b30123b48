"""Goal: the process of a query lives as long as somebody waits for its answer, and no longer.

Method: real processes: the worker, and small programs in its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from dragoman import limits
from dragoman.config.console import KafkaTarget
from dragoman.console.errors import ConsoleError
from dragoman.console.kafka_access import KafkaAccess
from dragoman.console.sessions import Session, Sessions
from dragoman.console.sql import service
from dragoman.console.sql.process import COMMAND, answer_of
from dragoman.console.sql.service import Queries
from dragoman.console.sql.values import QueryJob, QueryRequest


def _job(query: str = "select 1", seconds: int = 60) -> QueryJob:
    request = QueryRequest(query=query, seconds=seconds)
    return QueryJob(request=request, bootstrap="127.0.0.1:1")


async def _all(job: QueryJob, command: tuple[str, ...] = COMMAND) -> list[dict[str, Any]]:
    async with aclosing(answer_of(job, command)) as lines:
        return [json.loads(line) async for line in lines]


def _program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


async def test_a_query_without_topics_needs_no_node() -> None:
    columns, rows, end = await _all(_job("select 1 + 1 as two"))
    assert (columns["names"], columns["types"]) == (["two"], ["INTEGER"])
    assert rows["rows"] == [[2]]
    assert end["rows"] == 1
    assert not end["is_cut"]
    assert end["memory_bytes"] > 0


async def test_a_result_is_cut_at_its_bound() -> None:
    request = QueryRequest(query="select * from range(5000)", rows=700)
    lines = await _all(QueryJob(request=request, bootstrap=""))
    assert sum(len(each["rows"]) for each in lines if each["type"] == "rows") == 700
    assert lines[-1]["is_cut"]


async def test_a_result_of_exactly_its_bound_is_whole() -> None:
    request = QueryRequest(query="select * from range(700)", rows=700)
    lines = await _all(QueryJob(request=request, bootstrap=""))
    assert lines[-1] | {"rows": 700, "is_cut": False} == lines[-1]


async def test_a_failure_is_the_last_line() -> None:
    (problem,) = await _all(_job("select foo"))
    assert problem["type"] == "problem"
    assert "foo" in problem["detail"]
    assert problem["position"] == len("select ")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (f"select {'+'.join(['1'] * 600)}", "nested too deeply"),
        (f"select {'[' * 500}1{']' * 500}", "nested too deeply"),
        ("select unnest([date '9999-12-31', date '10000-01-01'])", "cannot be shown"),
    ],
)
async def test_what_python_cannot_hold_is_a_failure_that_says_so(query: str, text: str) -> None:
    problem = (await _all(_job(query)))[-1]
    assert (problem["type"], problem["code"]) == ("problem", "query")
    assert text in problem["detail"]


async def test_the_process_ends_by_itself_while_its_input_is_open() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    process.stdin.write(b'{"request": {"query": "select 1"}, "bootstrap": ""}\n')
    await process.stdin.drain()
    assert await process.wait() == 0


async def test_modules_of_the_working_directory_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert (await _all(_job("select 1")))[-1]["type"] == "end"


async def test_an_unreachable_node_is_a_failure() -> None:
    (problem,) = await _all(_job("select * from orders"))
    assert "127.0.0.1:1" in problem["detail"]


async def test_a_process_that_dies_is_a_failure_with_its_status() -> None:
    (problem,) = await _all(_job(), _program("import os; os._exit(9)"))
    assert problem["code"] == "memory"
    assert "status 9" in problem["detail"]


async def test_a_query_is_ended_when_its_time_is_up(tmp_path: Path) -> None:
    program = _program(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
        "time.sleep(600)"
    )
    (problem,) = await _all(_job(seconds=2), program)
    assert problem["code"] == "time"
    assert not _is_alive(int((tmp_path / "pid").read_text()))


async def test_the_process_ends_when_nobody_reads_its_answer() -> None:
    program = _program("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    async with aclosing(answer_of(_job(), program)) as lines:
        number = int(await anext(lines))
        assert _is_alive(number)
    assert not _is_alive(number)


async def test_the_process_ends_when_its_request_is_cancelled() -> None:
    seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def read() -> None:
        program = _program("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
        async with aclosing(answer_of(_job(), program)) as lines:
            async for line in lines:
                seen.set_result(int(line))

    reading = asyncio.create_task(read())
    number = await seen
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not _is_alive(number)


async def test_the_worker_ends_with_its_input() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    # It has no end of its own within the test.
    query = "select count(*) from range(1000000000) a, range(1000000000) b where a.range % 7 = 3"
    line = json.dumps({"request": {"query": query}, "bootstrap": ""})
    process.stdin.write(line.encode() + b"\n")
    await process.stdin.drain()
    process.stdin.close()
    assert await process.wait() == 1


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


# ---- who may ask


async def _answered(_: QueryJob) -> AsyncGenerator[bytes]:
    yield b"{}\n"


_TARGET = KafkaTarget(bootstrap="127.0.0.1:9092")
_SESSIONS = Sessions(time.monotonic, 600, 600)


def _access(target: KafkaTarget = _TARGET, *offered: str) -> KafkaAccess:
    async def answer(*_: object) -> Sequence[str]:
        return offered or ("SCRAM-SHA-256",)

    return KafkaAccess(target, answer)


def _session(user: str = "alice", password: str = "secret") -> Session:
    return Session(user, password, "Basic …")


def _body(**more: object) -> bytes:
    return json.dumps({"query": "select 1", **more}).encode()


async def test_a_query_logs_in_as_its_user() -> None:
    jobs: list[QueryJob] = []

    async def answer(job: QueryJob) -> AsyncGenerator[bytes]:
        jobs.append(job)
        yield b"{}\n"

    queries = Queries(_access(), _SESSIONS, answer)
    session = _session()
    _SESSIONS.open(session)
    lines = await queries.start(session, _body())
    assert [line async for line in lines] == [b"{}\n"]
    (job,) = jobs
    assert job.login is not None
    assert (job.login.name, job.login.password) == ("alice", "secret")
    assert "secret" not in repr(job)


@pytest.mark.parametrize(
    ("access", "session", "text"),
    [
        (_access(KafkaTarget()), None, "no listener"),
        (_access(), _session(user=""), "API token"),
        (_access(), _session(password="file:/etc/shadow"), "file:"),
        (_access(), _session(password="env:HOME"), "env:"),
        (_access(_TARGET, "OAUTHBEARER"), _session(), "OAUTHBEARER"),
        (_access(KafkaTarget(bootstrap="a:1", obstacle="no TLS")), _session(), "no TLS"),
        (
            _access(KafkaTarget(bootstrap="a:1", is_encrypted=True, certificate="console.pem")),
            None,
            "owner of the console's certificate",
        ),
    ],
)
async def test_who_cannot_log_in_is_refused_with_the_reason(
    access: KafkaAccess, session: Session | None, text: str
) -> None:
    queries = Queries(access, _SESSIONS, _answered)
    assert text in (await queries.abilities(session)).obstacle
    with pytest.raises(ConsoleError, match=text):
        await queries.start(session, _body())


async def test_a_missing_library_is_refused_with_the_command_that_installs_it() -> None:
    queries = Queries(_access(), _SESSIONS, _answered, has_module=lambda name: name != "duckdb")
    found = await queries.abilities(None)
    assert "duckdb" in found.obstacle
    assert "[console]" in found.command


@pytest.mark.parametrize(
    "body", [b"{", b"{}", _body(records=0), _body(rows=10**9), _body(seconds=0), _body(path="/etc")]
)
async def test_requests_beyond_their_bounds_are_refused(body: bytes) -> None:
    with pytest.raises(ConsoleError, match="request body"):
        await Queries(_access(), _SESSIONS, _answered).start(None, body)


async def test_queries_at_a_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_TURN_TIMEOUT_S", 0)
    ended = asyncio.Event()

    async def answer(_: QueryJob) -> AsyncGenerator[bytes]:
        yield b"{}\n"
        await ended.wait()

    queries = Queries(_access(), _SESSIONS, answer)
    running = [await queries.start(None, _body()) for _ in range(limits.CONSOLE_QUERIES_MAX)]
    for each in running:
        await anext(each)
    with pytest.raises(ConsoleError, match="queries are running"):
        await queries.start(None, _body())
    late = queries._lines(_job())
    assert [json.loads(line)["code"] async for line in late] == ["overloaded"]
    ended.set()
    for each in running:
        assert [line async for line in each] == []
    await queries.start(None, _body())


async def test_query_ends_with_the_session_of_its_user() -> None:
    has_ended = asyncio.Event()

    async def answer(_: QueryJob) -> AsyncGenerator[bytes]:
        try:
            yield b"{}\n"
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    sessions = Sessions(time.monotonic, 600, 600)
    session = _session()
    name = sessions.open(session)
    queries = Queries(_access(), sessions, answer)
    lines = await queries.start(session, _body())
    assert await anext(lines) == b"{}\n"
    asyncio.get_running_loop().call_soon(sessions.close, name)
    (last,) = [line async for line in lines]
    assert json.loads(last)["code"] == "login_needed"
    assert has_ended.is_set()


async def test_query_waits_for_one_that_is_being_stopped() -> None:
    async def answer(_: QueryJob) -> AsyncGenerator[bytes]:
        yield b"{}\n"
        await asyncio.Event().wait()

    queries = Queries(_access(), _SESSIONS, answer)
    running = [await queries.start(None, _body()) for _ in range(limits.CONSOLE_QUERIES_MAX)]
    for each in running:
        await anext(each)
    next_one = asyncio.create_task(queries.start(None, _body()))
    # It finds all places taken, and waits.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not next_one.done()
    await running[0].aclose()
    assert await anext(await next_one) == b"{}\n"
