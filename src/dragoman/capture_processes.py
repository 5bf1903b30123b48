"""Captures as processes of their own: `CaptureRunner` on a real node.

A database's driver, and whatever a database may send, stay out of the node's process. The two talk
in lines over pipes (`captures/control.py`); a process whose node is gone finds the end of its
input and stops. What it says, and what it writes for the log, may quote the database's address:
secrets are taken out here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib.util import find_spec

import msgspec

from dragoman.broker.capturing.ports import (
    RunningCapture,
    TakeEnd,
    TakeFindings,
    TakeReport,
    Wanted,
)
from dragoman.broker.errors import CaptureRefused, Overloaded
from dragoman.captures.addresses import hide_secrets
from dragoman.captures.control import (
    Command,
    Done,
    Finding,
    Report,
    Start,
    Status,
    decode_finding,
    decode_report,
    encode_line,
)
from dragoman.captures.definition import Definition
from dragoman.captures.policy import capture_environment
from dragoman.errors import DragomanError
from dragoman.limits import (
    CAPTURE_CHECK_TIMEOUT_S,
    CAPTURE_CHECKS_MAX,
    CAPTURE_LINE_BYTES_MAX,
)

log = logging.getLogger("dragoman.captures")
#: How lines of Python's logging begin: level and name.
_LEVELED = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) \S+: ")
#: Nothing is imported from the directory that the node happens to run in.
_PYTHON = (sys.executable, "-P", "-m")


class CaptureProcesses:
    #: What is run, with `.doctor` and `.removal` beside it.
    module = "dragoman.cdc"

    def __init__(
        self, loop: asyncio.AbstractEventLoop, bootstrap: Callable[[], str], spool: str
    ) -> None:
        """`bootstrap` says where the node speaks Kafka's protocol, if it does; `spool` is a
        directory for what captures have to put aside.
        """
        self._loop = loop
        self._bootstrap = bootstrap
        self._spool = spool
        self._tasks: set[asyncio.Task[None]] = set()
        self._checks = 0

    def objection(self) -> str:
        if find_spec("psycopg") is None:
            return "captures need a driver for PostgreSQL: pip install 'dragoman[cdc]'"
        if not self._bootstrap():
            return "captures write through Kafka's protocol: open the listener kafka, or any"
        return ""

    def run(self, wanted: Wanted, report: TakeReport, ended: TakeEnd, /) -> RunningCapture:
        start = Start(
            definition=wanted.definition,
            bootstrap=self._bootstrap(),
            spool=os.path.join(self._spool, wanted.definition.name),
            is_paused=wanted.is_paused,
            incarnation=wanted.incarnation,
        )
        running = _Running(start, (*_PYTHON, self.module), report, ended)
        self._begin(running.run())
        return running

    def check(self, definition: Definition, done: TakeFindings, /) -> None:
        self._look(definition, f"{self.module}.doctor", done)

    def clean_up(self, definition: Definition, done: TakeFindings, /) -> None:
        self._look(definition, f"{self.module}.removal", done)

    def _look(self, definition: Definition, module: str, done: TakeFindings) -> None:
        if self._checks >= CAPTURE_CHECKS_MAX:
            done(Overloaded(f"{self._checks} databases are being looked at; try again"))
            return

        self._checks += 1

        async def look() -> None:
            try:
                found: tuple[Finding, ...] | DragomanError = await _findings(definition, module)
            except DragomanError as error:
                found = error
            finally:
                self._checks -= 1
            done(found)

        self._begin(look())

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def closed(self) -> None:
        """Until every process is gone, and what they have put aside."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        shutil.rmtree(self._spool, ignore_errors=True)


class _Running:
    """One process, from its start to its end."""

    def __init__(
        self, start: Start, command: tuple[str, ...], report: TakeReport, ended: TakeEnd
    ) -> None:
        self._start = start
        self._dsn = start.definition.dsn
        self._command = command
        self._report = report
        self._ended = ended
        self._process: Process | None = None
        self._is_killed = False
        #: Commands that came before the process was there.
        self._early: list[Command] = [start]
        self._last_words = ""

    def send(self, command: Command, /) -> None:
        if self._process is None:
            self._early.append(command)
            return
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.transport.get_write_buffer_size() > CAPTURE_LINE_BYTES_MAX:
            # It has not read for long.
            self.kill()
        elif not pipe.is_closing():
            pipe.write(encode_line(command) + b"\n")

    def kill(self) -> None:
        self._is_killed = True
        if self._process is not None:
            _kill(self._process)

    async def run(self) -> None:
        problem = "its process could not be started"
        try:
            os.makedirs(self._start.spool, exist_ok=True)
            self._process = process = await _spawn(self._command)
            early, self._early = self._early, []
            for command in early:
                self.send(command)
            if self._is_killed:
                self.kill()
            await asyncio.gather(self._read_reports(process), self._read_log(process))
            problem = self._words(await process.wait())
        except OSError as error:
            problem = f"its process could not be started: {error.strerror or error}"
        finally:
            if self._process is not None:
                await _let_go(self._process)
            # One that was killed has left there what it had put aside.
            shutil.rmtree(self._start.spool, ignore_errors=True)
            self._ended(problem)

    def _words(self, status: int) -> str:
        end = f"signal {-status}" if status < 0 else f"status {status}"
        return f"its process ended with {end}" + (f": {self._last_words}" * bool(self._last_words))

    async def _read_reports(self, process: Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                if not line:
                    return
                report = decode_report(line)
            except (ValueError, msgspec.DecodeError) as error:
                # Too long, or not what it should say.
                self._last_words = f"it sent a line that is no report ({type(error).__name__})"
                log.error("capture %s: %s", self._start.definition.name, self._last_words)
                self.kill()
                return
            # What it said before it said how it is, is not why it ended.
            self._last_words = ""
            self._report(self._without_secrets(report))

    def _without_secrets(self, report: Report) -> Report:
        def clean(text: str) -> str:
            return hide_secrets(text, self._dsn)

        match report:
            case Status():
                return msgspec.structs.replace(
                    report,
                    problem=clean(report.problem),
                    warnings=tuple(map(clean, report.warnings)),
                )
            case Done():
                return msgspec.structs.replace(report, problem=clean(report.problem))

    async def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:
                line = b"a longer line is left out\n"
            if not line:
                return
            text = hide_secrets(line.decode(errors="replace").rstrip(), self._dsn)
            if text:
                self._log(text)

    def _log(self, text: str) -> None:
        """As a line of this node's log, at the level that it has there."""
        level = logging.INFO
        if leveled := _LEVELED.match(text):
            level, text = getattr(logging, leveled[1]), text[leveled.end() :]
        name = f"capture {self._start.definition.name}: "
        text = text.removeprefix(name)
        self._last_words = text
        log.log(level, "%s%s", name, text)


def _kill(process: Process) -> None:
    # One whose end is known must not be looked for: its number may be another's by now.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def _let_go(process: Process) -> None:
    """Nothing is left of it, whatever happened: nobody shall capture unseen."""
    _kill(process)
    await process.wait()
    # A pipe that was not read to its end would stay open, and there is no other way to close it.
    process._transport.close()  # type: ignore[attr-defined]


async def _all_of(pipe: asyncio.StreamReader | None) -> bytes:
    """Up to a bound: what comes after it is not waited for."""
    assert pipe is not None
    found = b""
    while len(found) < CAPTURE_LINE_BYTES_MAX:
        more = await pipe.read(CAPTURE_LINE_BYTES_MAX)
        if not more:
            break
        found += more
    return found


async def _spawn(command: tuple[str, ...]) -> Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=CAPTURE_LINE_BYTES_MAX,
        env=capture_environment(os.environ),
        # What a terminal sends the node is the node's to pass on.
        start_new_session=True,
    )


async def _findings(definition: Definition, module: str) -> tuple[Finding, ...]:
    """What a process prints that looks at the database. Raises `CaptureRefused`."""
    try:
        process = await _spawn((*_PYTHON, module))
    except OSError as error:
        raise CaptureRefused(f"no process could be started: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(CAPTURE_CHECK_TIMEOUT_S):
            assert process.stdin is not None
            process.stdin.write(encode_line(definition) + b"\n")
            process.stdin.close()
            out, words = await asyncio.gather(_all_of(process.stdout), _all_of(process.stderr))
            await process.wait()
    except TimeoutError:
        raise CaptureRefused("the database did not answer in time") from None
    finally:
        await _let_go(process)
    try:
        found = [decode_finding(line) for line in out.splitlines() if line]
    except msgspec.DecodeError:
        found = []
    if not found:
        last = (words.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        why = hide_secrets(last, definition.dsn)
        raise CaptureRefused(f"the database could not be looked at: {why}")
    return tuple(
        msgspec.structs.replace(
            each,
            what=hide_secrets(each.what, definition.dsn),
            remedy=hide_secrets(each.remedy, definition.dsn),
        )
        for each in found
    )
