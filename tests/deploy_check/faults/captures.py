"""Faults of captures: a node, a PostgreSQL, and a slow or cut way between them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from demo.postgres import LocalPostgres
from deploy_check.faults.prometheus import Prometheus, wait
from deploy_check.faults.served import SingleNode, dragoman
from deploy_check.faults.trial import Fault, Raised

_CAPTURE = "shop"
_TABLES = "public.orders"
_ROWS = "select n, repeat(md5(n::text), 30) from generate_series({}, {}) n"


@contextmanager
def stage(home: Path, prometheus: Prometheus) -> Iterator[tuple[Fault, ...]]:
    database = LocalPostgres()
    with SingleNode(home / "capturing") as served, _Way(database.port) as way:
        prometheus.scrape(served.http)
        try:
            own = database.start().dsn()
            dsn = own.replace(f":{database.port}", f":{way.port}")
            faults = _Faults(served, prometheus, database, way, own, dsn)
            faults.begin()
            yield (
                Fault(
                    "DragomanCaptureRestarts", "`kill -9` of its process, 5 times", faults.restarts
                ),
                Fault("DragomanCaptureLags", "a network of 300 KB/s", faults.lags),
                Fault("DragomanCaptureRetainsWal", "a paused capture", faults.retained),
                Fault("DragomanCaptureWaits", "the database is stopped", faults.waits),
                Fault("DragomanCaptureFailed", "the slot is dropped", faults.failed),
            )
        finally:
            database.stop()
            database.remove()


class _Way:
    """A proxy before a port of this machine, which can be slow."""

    def __init__(self, behind: int) -> None:
        self.bytes_per_s = 0
        self.port = 0
        self._behind = behind
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> _Way:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _open(self) -> None:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            called = await asyncio.open_connection("127.0.0.1", self._behind)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._carry(reader, called[1]), self._carry(called[0], writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.bytes_per_s:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
                writer.write(data)
                await writer.drain()
        writer.close()


class _Faults:
    def __init__(
        self,
        served: SingleNode,
        prometheus: Prometheus,
        database: LocalPostgres,
        way: _Way,
        own: str,
        dsn: str,
    ) -> None:
        """`own` leads to the database itself, `dsn` over the way."""
        self._served = served
        self._prometheus = prometheus
        self._database = database
        self._way = way
        self._own = own
        self._dsn = dsn
        self._last = 0

    def begin(self) -> None:
        self._sql("create table orders (id bigint primary key, note text)")
        add = ("cdc", "add", _CAPTURE, "--tables", _TABLES, "--server", self._served.url)
        dragoman(*add, more={"DRAGOMAN_CDC_DSN": self._dsn})
        self._streams()

    def _raised(self, labels: dict[str, str]) -> Raised:
        variables = self._served.variables(
            CAPTURE=_CAPTURE, TABLES=_TABLES, DSN=self._own, DRAGOMAN_CDC_DSN=self._dsn
        )
        return Raised({"instance": self._served.http, **labels}, variables, [self._served.service])

    def _sql(self, statement: str) -> int:
        """How many rows it is about."""
        with psycopg.connect(self._own, autocommit=True) as connection:
            return connection.execute(statement).rowcount

    def _insert(self, count: int) -> None:
        self._sql(f"insert into orders {_ROWS.format(self._last + 1, self._last + count)}")
        self._last += count

    def _streams(self) -> None:
        self._prometheus.until('dragoman_captures{state="streaming"} == 1', "it does not stream")

    def restarts(self) -> Iterator[Raised]:
        restarts = f'dragoman_capture_restarts_total{{instance="{self._served.http}"}}'
        for count in range(5):
            wait(lambda: bool(self._processes()), "there is no process of a capture")
            for process in self._processes():
                os.kill(process, signal.SIGKILL)
            self._prometheus.until(f"{restarts} > {count}", "no restart")
        yield self._raised({"capture": _CAPTURE})
        yield self._raised({})
        self._streams()

    def _processes(self) -> list[int]:
        pid = self._served.service.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [
            int(child)
            for child in children.split()
            if b"dragoman.cdc" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    def lags(self) -> Iterator[Raised]:
        self._way.bytes_per_s = 300_000
        self._insert(20_000)
        yield self._raised({"capture": _CAPTURE})
        self._way.bytes_per_s = 0
        yield self._raised({})
        self._streams()

    def retained(self) -> Iterator[Raised]:
        dragoman("cdc", "pause", _CAPTURE, "--server", self._served.url)
        self._insert(20_000)
        yield self._raised({"capture": _CAPTURE})
        # PostgreSQL frees WAL with a checkpoint after the capture has confirmed it.
        self._streams()
        for _ in range(3):
            self._insert(1)
            self._sql("checkpoint")
        yield self._raised({})

    def waits(self) -> Iterator[Raised]:
        self._database.stop()
        yield self._raised({"state": "waiting"})
        self._database.start()
        yield self._raised({})
        self._streams()

    def failed(self) -> Iterator[Raised]:
        dragoman("cdc", "pause", _CAPTURE, "--server", self._served.url)
        drop = (
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active"
        )
        wait(lambda: bool(self._sql(drop)), "the slot stays active")
        dragoman("cdc", "resume", _CAPTURE, "--server", self._served.url)
        yield self._raised({"state": "failed"})
        yield self._raised({})
        self._streams()
