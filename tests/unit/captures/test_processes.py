"""Goal: captures run as processes that are heard, told things, and ended, whatever they do; and no
secret gets out of them.

Method: real processes of `tests/fake_capture`, which misbehave on request.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from captures.runner import DSN, defined
from dragoman.broker.errors import CaptureRefused, Overloaded
from dragoman.captures import processes as capture_processes
from dragoman.captures.control import (
    DatabaseTable,
    Done,
    Finding,
    KafkaLogin,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Status,
    Stop,
)
from dragoman.captures.definition import Definition
from dragoman.captures.kafka_access import KafkaAccess
from dragoman.captures.processes import CaptureProcesses
from dragoman.captures.supervisor import Assignment
from dragoman.errors import DragomanError
from dragoman.installation import install_command

HERE = Path(__file__).parents[2]
WAIT_S = 30


def assignment(table: str = "public.orders", *, is_paused: bool = False) -> Assignment:
    return Assignment(defined(tables=(table,)), is_paused, "1f")


class Heard:
    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.end: list[str] = []
        self._news = asyncio.Event()

    def report(self, report: Report) -> None:
        self.reports.append(report)
        self._news.set()

    def ended(self, why: str) -> None:
        self.end.append(why)
        self._news.set()

    async def until(self, is_so: Callable[[Heard], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so(self):
                await self._news.wait()
                self._news.clear()


def no_login(_name: str) -> KafkaLogin | None:
    return None


@pytest.fixture(autouse=True)
def _fakes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{HERE.parent / 'src'}")
    monkeypatch.setattr(CaptureProcesses, "module", "fake_capture")


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[CaptureProcesses]:
    loop = asyncio.get_running_loop()
    spool = str(tmp_path / "spool")
    made = CaptureProcesses(loop, lambda: KafkaAccess("127.0.0.1:9092"), spool, str, no_login)
    yield made
    async with asyncio.timeout(WAIT_S):
        await made.closed()
    assert not os.path.exists(spool)


async def test_capture_process_sends_reports_and_receives_commands(
    processes: CaptureProcesses,
) -> None:
    heard = Heard()
    running = processes.run(assignment(is_paused=True), heard.report, heard.ended)
    # Before there is a process.
    running.send(Resume())
    await heard.until(lambda h: len(h.reports) == 2)
    assert heard.reports == [
        Status(state="paused", lsn="127.0.0.1:9092"),
        Status(state="streaming"),
    ]
    running.send(Pause())
    running.send(Snapshot(id="1"))
    running.send(Rewind(id="2", lsn="0/1"))
    await heard.until(lambda h: len(h.reports) == 5)
    assert heard.reports[2:] == [
        Status(state="paused"),
        Done(id="1"),
        Done(id="2", problem="0/1 is gone from ********"),
    ]
    running.send(Stop())
    await heard.until(lambda h: bool(h.end))
    assert heard.end[0].startswith("its process ended with status 0")
    running.send(Pause())
    running.kill()
    assert len(heard.end) == 1


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("crash", "its process ended with status 3: no route to ********"),
        ("chatter", "it sent an invalid report"),
        ("flood", "it sent an invalid report"),
    ],
)
async def test_a_process_that_misbehaves_is_ended(
    processes: CaptureProcesses, table: str, why: str
) -> None:
    heard = Heard()
    processes.run(assignment(table), heard.report, heard.ended)
    await heard.until(lambda h: bool(h.end))
    assert why in heard.end[0]
    assert len(heard.end) == 1


async def test_a_process_can_be_killed_at_any_time(processes: CaptureProcesses) -> None:
    for is_early in (True, False):
        heard = Heard()
        running = processes.run(assignment(), heard.report, heard.ended)
        if not is_early:
            await heard.until(lambda h: bool(h.reports))
        running.kill()
        await heard.until(lambda h: bool(h.end))
        assert "signal 9" in heard.end[0]


async def test_a_process_without_its_node_ends(processes: CaptureProcesses) -> None:
    heard = Heard()
    running = processes.run(assignment(), heard.report, heard.ended)
    await heard.until(lambda h: bool(h.reports))
    process = running._process  # type: ignore[attr-defined]
    process.stdin.close()
    await heard.until(lambda h: bool(h.end))
    assert "status 0" in heard.end[0]


async def test_secrets_are_in_no_report_and_no_line_of_the_log(
    processes: CaptureProcesses, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    heard = Heard()
    running = processes.run(assignment("complain"), heard.report, heard.ended)
    await heard.until(lambda h: bool(h.reports))
    report = heard.reports[0]
    assert report == Status(state="waiting", problem="******** is away", warnings=("********",))
    pid = running._process.pid  # type: ignore[attr-defined]
    for name in ("cmdline", "environ"):
        assert b"hunter2" not in Path(f"/proc/{pid}/{name}").read_bytes()
    running.send(Stop())
    await heard.until(lambda h: bool(h.end))
    lines = {record.getMessage(): record.levelname for record in caplog.records}
    assert lines["capture shop: ******** is away"] == "WARNING"
    assert any(each.startswith("capture shop: connecting to ******** for") for each in lines)
    assert "hunter2" not in caplog.text


async def test_a_process_that_cannot_be_started_says_so(
    processes: CaptureProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_processes, "_PYTHON", ("/nowhere/python", "-m"))
    heard = Heard()
    processes.run(assignment(), heard.report, heard.ended)
    await heard.until(lambda h: bool(h.end))
    assert heard.end == ["its process could not be started: No such file or directory"]
    assert "no process could be started" in str(await looked(processes, defined()))


async def looked(
    processes: CaptureProcesses, definition: Definition
) -> tuple[Finding, ...] | DragomanError:
    found: asyncio.Future[tuple[Finding, ...] | DragomanError]
    found = asyncio.get_running_loop().create_future()
    processes.check(definition).then(found.set_result)
    async with asyncio.timeout(WAIT_S):
        return await found


async def test_findings_of_a_database_check_are_returned(processes: CaptureProcesses) -> None:
    connected = Finding(level="ok", what="connected")
    assert await looked(processes, defined()) == (connected,)
    found = await looked(processes, defined(tables=("warning",)))
    assert found == (Finding(level="warning", what="******** is slow"), connected)
    refused = await looked(processes, defined(tables=("crash",)))
    assert isinstance(refused, CaptureRefused)
    assert str(refused) == "the database could not be checked: cannot look at ********"


async def test_a_look_that_takes_too_long_is_given_up_and_many_are_refused(
    processes: CaptureProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_processes, "CAPTURE_CHECK_TIMEOUT_S", 0.5)
    many = [looked(processes, defined(tables=("hang",))) for _ in range(5)]
    found = await asyncio.gather(*many)
    assert sum(isinstance(each, Overloaded) for each in found) == 1
    assert sum(isinstance(each, CaptureRefused) for each in found) == 4


async def listed(
    processes: CaptureProcesses, definition: Definition
) -> tuple[DatabaseTable, ...] | DragomanError:
    found: asyncio.Future[tuple[DatabaseTable, ...] | DragomanError]
    found = asyncio.get_running_loop().create_future()
    processes.tables(definition).then(found.set_result)
    async with asyncio.timeout(WAIT_S):
        return await found


async def test_tables_of_a_database_are_listed_without_secrets(processes: CaptureProcesses) -> None:
    hidden = Finding("problem", "******** has no key", "ask ********")
    assert await listed(processes, defined()) == (
        DatabaseTable(schema="s", name="bad", findings=(hidden,)),
        DatabaseTable(schema="s", name="good", key=("id",)),
    )
    assert await listed(processes, defined(tables=("none",))) == ()
    refused = await listed(processes, defined(tables=("crash",)))
    assert isinstance(refused, CaptureRefused)
    assert str(refused) == "the tables could not be listed: cannot look at ********"


async def test_what_was_made_is_taken_away(processes: CaptureProcesses) -> None:
    found: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    processes.clean_up(defined()).then(found.set_result)
    async with asyncio.timeout(WAIT_S):
        assert await found == (Finding(level="ok", what="connected"),)


def test_what_is_missing_to_run_captures_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loop = asyncio.new_event_loop()
    assert (
        CaptureProcesses(loop, lambda: KafkaAccess("h:1"), str(tmp_path), str, no_login).objection()
        == ""
    )
    assert (
        "open the listener kafka"
        in CaptureProcesses(loop, lambda: KafkaAccess(""), str(tmp_path), str, no_login).objection()
    )
    monkeypatch.setattr(capture_processes, "find_spec", lambda _name: None)
    objection = CaptureProcesses(
        loop, lambda: KafkaAccess("h:1"), str(tmp_path), str, no_login
    ).objection()
    assert install_command("cdc") in objection
    loop.close()
    assert DSN not in objection
