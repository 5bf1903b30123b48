"""Captures as processes of their own: `CaptureRunner` on a real node.

The driver of the database and the data that it receives stay out of the node's process. Node and
process exchange lines over pipes (`captures/control.py`). When the node dies, the process reads the
end of its input and stops. Reports and log lines may quote the address of the database, so secrets
are removed from them here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple, TypeVar

import msgspec

from dragoman.broker.errors import CaptureRefused, Overloaded
from dragoman.captures.addresses import hide_secrets, resolved
from dragoman.captures.control import (
    Command,
    Done,
    Finding,
    KafkaLogin,
    Report,
    Start,
    Status,
    decode_finding,
    decode_report,
    decode_table,
    encode_line,
)
from dragoman.captures.definition import Definition
from dragoman.captures.kafka_access import KafkaAccess
from dragoman.captures.supervisor import (
    Assignment,
    CaptureProcess,
    Findings,
    Tables,
    TakeEnd,
    TakeReport,
)
from dragoman.errors import MALFORMED, DragomanError, SecretError
from dragoman.limits import CAPTURE_CHECK_TIMEOUT_S, CAPTURE_CHECKS_MAX, CAPTURE_LINE_BYTES_MAX
from dragoman.net.process_log import leveled
from dragoman.operating_system import child_environment
from dragoman.outcome import Outcome, failed

log = logging.getLogger("dragoman.captures")
T = TypeVar("T", Findings, Tables)
#: -P: nothing is imported from the node's working directory.
_PYTHON = (sys.executable, "-P", "-m")


class CaptureProcesses:
    #: The package that is run, with the module `doctor` in it.
    module = "dragoman.cdc"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        access: Callable[[], KafkaAccess],
        spool: str,
        resolve: Callable[[str], str],
        credentials: Callable[[str], KafkaLogin | None],
    ) -> None:
        """`spool` is a directory for transactions that captures cannot keep in memory; `resolve`
        gives the secret that a reference names, or raises `SecretError`; `credentials` gives what
        the process of a capture logs in with.
        """
        self._credentials = credentials
        self._resolve = resolve
        self._loop = loop
        self._access = access
        self._spool = spool
        self._tasks: set[asyncio.Task[None]] = set()
        self._checks = 0

    def objection(self) -> str:
        if find_spec("psycopg") is None:
            # Imported here: a node on its own starts without it.
            from dragoman.installation import install_command

            return f"captures need a driver for PostgreSQL: {install_command('cdc')}"
        access = self._access()
        if not access.bootstrap:
            return "captures write over Kafka's protocol: open the listener kafka or any"
        return access.obstacle

    def run(self, assignment: Assignment, report: TakeReport, ended: TakeEnd, /) -> CaptureProcess:
        access, name = self._access(), assignment.definition.name
        start = Start(
            definition=assignment.definition,
            bootstrap=access.bootstrap,
            login=self._credentials(name) if access.takes_logins else None,
            is_encrypted=access.is_encrypted,
            authorities=access.authorities,
            spool=os.path.join(self._spool, name),
            is_paused=assignment.is_paused,
            incarnation=assignment.incarnation,
        )
        process = _Process(start, (*_PYTHON, self.module), report, ended, self._resolve)
        self._begin(process.run())
        return process

    def check(self, definition: Definition, /) -> Outcome[Findings]:
        return self._examine(definition)

    def clean_up(self, definition: Definition, /) -> Outcome[Findings]:
        return self._examine(definition, "remove")

    def tables(self, definition: Definition, /) -> Outcome[Tables]:
        return self._asked(definition, f"{self.module}.tables", _tables)

    def _examine(self, definition: Definition, *arguments: str) -> Outcome[Findings]:
        return self._asked(definition, f"{self.module}.doctor", _findings, *arguments)

    def _asked(
        self,
        definition: Definition,
        module: str,
        ask: Callable[[Definition, tuple[str, ...]], Coroutine[None, None, T]],
        *arguments: str,
    ) -> Outcome[T]:
        if self._checks >= CAPTURE_CHECKS_MAX:
            return failed(Overloaded(f"{self._checks} databases are being checked; try again"))
        self._checks += 1
        command = (*_PYTHON, module, *arguments)
        outcome: Outcome[T] = Outcome()

        async def examine() -> None:
            try:
                found: T | DragomanError = await ask(
                    with_secrets(definition, self._resolve), command
                )
            except DragomanError as error:
                found = error
            finally:
                self._checks -= 1
            outcome.settle(found)

        self._begin(examine())
        return outcome

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def closed(self) -> None:
        """Returns when every process has ended and their files are removed."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        _remove(self._spool)


def _remove(directory: str) -> None:
    if not os.path.lexists(directory):
        return
    # Imported here: few nodes have captures.
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


class _Process:
    """One process, from its start to its end."""

    def __init__(
        self,
        start: Start,
        command: tuple[str, ...],
        report: TakeReport,
        ended: TakeEnd,
        resolve: Callable[[str], str],
    ) -> None:
        self._start = start
        self._resolve = resolve
        #: The address with its secrets, once they are known.
        self._dsn = start.definition.dsn
        self._command = command
        self._report = report
        self._ended = ended
        self._process: Process | None = None
        self._is_killed = False
        #: Commands sent before the process was started.
        self._early: list[Command] = []
        #: The last line of its log since its last report.
        self._last_line = ""

    def send(self, command: Command, /) -> None:
        if self._process is None:
            self._early.append(command)
            return
        pipe = self._process.stdin
        assert pipe is not None
        if pipe.transport.get_write_buffer_size() > CAPTURE_LINE_BYTES_MAX:
            # The process has not read for a long time.
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
            definition = with_secrets(self._start.definition, self._resolve)
            self._dsn = definition.dsn
            os.makedirs(self._start.spool, exist_ok=True)
            self._process = process = await _spawn(self._command)
            early, self._early = self._early, []
            for command in (msgspec.structs.replace(self._start, definition=definition), *early):
                self.send(command)
            if self._is_killed:
                self.kill()
            await asyncio.gather(self._read_reports(process), self._read_log(process))
            problem = self._end_text(await process.wait())
        except SecretError as error:
            problem = str(error)
        except OSError as error:
            problem = f"its process could not be started: {error.strerror or error}"
        finally:
            if self._process is not None:
                await _dispose(self._process)
            # A killed process does not remove its files.
            _remove(self._start.spool)
            self._ended(problem)

    def _end_text(self, status: int) -> str:
        end = f"signal {-status}" if status < 0 else f"status {status}"
        return f"its process ended with {end}" + (f": {self._last_line}" * bool(self._last_line))

    async def _read_reports(self, process: Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                if not line:
                    return
                report = decode_report(line)
            except (ValueError, msgspec.DecodeError) as error:
                # The line is too long, or no report.
                self._last_line = f"it sent an invalid report ({type(error).__name__})"
                log.error("capture %s: %s", self._start.definition.name, self._last_line)
                self.kill()
                return
            # A line that was logged before a report is not the reason for the end.
            self._last_line = ""
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
                line = b"(a line that is too long was left out)\n"
            if not line:
                return
            text = hide_secrets(line.decode(errors="replace").rstrip(), self._dsn)
            if text:
                self._log(text)

    def _log(self, text: str) -> None:
        """Log a line of the process at its own level."""
        level, text = leveled(text)
        name = f"capture {self._start.definition.name}: "
        text = text.removeprefix(name)
        self._last_line = text
        log.log(level, "%s%s", name, text, extra={"capture": self._start.definition.name})


def with_secrets(definition: Definition, resolve: Callable[[str], str]) -> Definition:
    """The definition with the secrets that its address refers to. Raises `SecretError`."""
    return msgspec.structs.replace(definition, dsn=resolved(definition.dsn, resolve))


def _kill(process: Process) -> None:
    # The operating system may have reused the id of a process that has ended.
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def _dispose(process: Process) -> None:
    """Make sure that the process has ended: an orphan would continue to capture."""
    _kill(process)
    await process.wait()
    # asyncio has no other way to close a pipe that was not read to its end.
    process._transport.close()  # type: ignore[attr-defined]


async def _read_bounded(pipe: asyncio.StreamReader | None) -> bytes:
    """All bytes of a pipe up to its end, or the first ones if there are too many."""
    assert pipe is not None
    found = b""
    while len(found) < CAPTURE_LINE_BYTES_MAX:
        more = await pipe.read(CAPTURE_LINE_BYTES_MAX)
        if not more:
            break
        found += more
    return found


class _Answer(NamedTuple):
    lines: list[bytes]
    status: int
    #: The last line of the log, without secrets.
    last: str


async def _spawn(command: tuple[str, ...]) -> Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=CAPTURE_LINE_BYTES_MAX,
        env=child_environment(os.environ),
        # A signal from the node's terminal goes to the node only.
        start_new_session=True,
    )


async def _answer(definition: Definition, command: tuple[str, ...]) -> _Answer:
    """Run a program that looks at a database. Raises `CaptureRefused`."""
    try:
        process = await _spawn(command)
    except OSError as error:
        raise CaptureRefused(f"no process could be started: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(CAPTURE_CHECK_TIMEOUT_S):
            assert process.stdin is not None
            process.stdin.write(encode_line(definition) + b"\n")
            process.stdin.close()
            out, logged = await asyncio.gather(
                _read_bounded(process.stdout), _read_bounded(process.stderr)
            )
            status = await process.wait()
    except TimeoutError:
        raise CaptureRefused(
            f"the database did not respond within {CAPTURE_CHECK_TIMEOUT_S} s"
        ) from None
    finally:
        await _dispose(process)
    last = (logged.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
    return _Answer(out.splitlines(), status, hide_secrets(last, definition.dsn))


async def _findings(definition: Definition, command: tuple[str, ...]) -> Findings:
    """Run the doctor and return what it prints. Raises `CaptureRefused`."""
    answer = await _answer(definition, command)
    try:
        found = [decode_finding(line) for line in answer.lines if line]
    except MALFORMED:
        found = []
    if not found:
        raise CaptureRefused(f"the database could not be checked: {answer.last}")
    return tuple(_without_secrets(each, definition.dsn) for each in found)


async def _tables(definition: Definition, command: tuple[str, ...]) -> Tables:
    """Run the program that lists tables. Raises `CaptureRefused`."""
    answer = await _answer(definition, command)
    try:
        found = [decode_table(line) for line in answer.lines]
    except MALFORMED:
        # The answer has more bytes than are read.
        found = []
        answer = answer._replace(status=1, last="its tables have too long names")
    if answer.status:
        raise CaptureRefused(f"the tables could not be listed: {answer.last}")
    return tuple(
        msgspec.structs.replace(
            each,
            findings=tuple(_without_secrets(one, definition.dsn) for one in each.findings),
        )
        for each in found
    )


def _without_secrets(finding: Finding, dsn: str) -> Finding:
    return msgspec.structs.replace(
        finding,
        what=hide_secrets(finding.what, dsn),
        remedy=hide_secrets(finding.remedy, dsn),
    )
