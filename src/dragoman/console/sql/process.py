"""Runs the process of one query, and ends it with its reader."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final

from dragoman.console.sql.values import Problem, QueryJob, encode
from dragoman.limits import CONSOLE_QUERY_LINE_BYTES_MAX
from dragoman.operating_system import child_environment

#: Without the working directory among the places of modules: others may write there.
COMMAND: Final = (sys.executable, "-P", "-m", "dragoman.console.sql.worker")
#: Lines after which nothing follows.
_LAST: Final = (b'{"type":"end"', b'{"type":"problem"')


async def answer_of(job: QueryJob, command: Sequence[str] = COMMAND) -> AsyncGenerator[bytes]:
    """The lines of the answer. The process is killed when its time is up, and when the iterator is
    closed because its reader has gone.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=child_environment(os.environ),
        limit=CONSOLE_QUERY_LINE_BYTES_MAX,
    )
    assert process.stdin is not None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + job.request.seconds
    try:
        with suppress(ConnectionError):
            process.stdin.write(encode(job) + b"\n")
            await process.stdin.drain()
        is_over = False
        while not is_over:
            try:
                async with asyncio.timeout_at(deadline):
                    line = await _line(process)
            except TimeoutError:
                line = _problem(
                    "time",
                    f"the query was ended after {job.request.seconds} seconds: allow more"
                    " time, or read fewer records",
                )
            is_over = line.startswith(_LAST)
            yield line
    finally:
        await _end(process)


async def _line(process: Process) -> bytes:
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
    except ValueError:
        return _problem("result", "a row of the result is too large")
    if line:
        return line
    status = await process.wait()
    return _problem(
        "memory",
        f"the process of the query has ended with status {status}: it has used up its memory, or"
        " was killed; read fewer records",
    )


def _problem(code: str, detail: str) -> bytes:
    return encode(Problem(code=code, detail=detail)) + b"\n"


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    # A cancelled request must not leave a process that has not been waited for.
    await asyncio.shield(process.wait())
