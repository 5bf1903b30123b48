"""A capture in the test's own process: quicker than one of its own, and its clock can be moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psycopg

from dragoman.captures.control import Done, Report, Start, Status, Stop
from dragoman.captures.definition import Definition
from dragoman.cdc.capture import Capture
from dragoman.cdc.snapshot.taker import SnapshotTaker
from dragoman.protocols.postgres.codec import parse_lsn


class Running:
    def __init__(self, definition: Definition, bootstrap: str, spool: Path) -> None:
        start = Start(definition=definition, bootstrap=bootstrap, spool=str(spool), incarnation="1")
        self._dsn = definition.dsn
        self.status = Status(state="starting")
        self.done: dict[str, Done] = {}
        self._came = asyncio.Event()
        self.capture = Capture(start, self._take, SnapshotTaker)

    def _take(self, report: Report) -> None:
        if isinstance(report, Done):
            self.done[report.id] = report
        else:
            self.status = report
        self._came.set()

    async def until(self, is_it: Callable[[Status], bool]) -> Status:
        async with asyncio.timeout(60):
            while not is_it(self.status):
                self._came.clear()
                await self._came.wait()
        return self.status

    async def until_end(self) -> None:
        """Everything that is committed now is in the log."""
        async with await psycopg.AsyncConnection.connect(self._dsn) as connection:
            cursor = await connection.execute("SELECT pg_current_wal_lsn() - '0/0'")
            row = await cursor.fetchone()
        assert row is not None
        end = int(row[0])
        await self.until(lambda status: status.lsn != "" and parse_lsn(status.lsn) >= end)


@asynccontextmanager
async def running(
    dsn: str, bootstrap: str, spool: Path, name: str, **fields: object
) -> AsyncIterator[Running]:
    """Stopped in the end; another one of the same name continues where it stopped."""
    fields.setdefault("tables", (f"{name}*",))
    definition = Definition(name=name, dsn=dsn, **fields)  # type: ignore[arg-type]
    made = Running(definition, bootstrap, spool)
    task = asyncio.create_task(made.capture.run())
    try:
        yield made
        made.capture.take(Stop())
        async with asyncio.timeout(60):
            await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def is_read(rows: dict[str, int]) -> Callable[[Status], bool]:
    """Table of `public` → rows that were read of it, when it is done."""
    return lambda status: (
        {each.table.removeprefix("public."): each.rows for each in status.tables if each.is_done}
        == rows
    )
