"""The replication connection, over which the database sends its WAL.

libpq reads and writes when the event loop reports that the socket is ready; there is no thread.
Back-pressure comes from not reading ahead: until `receive` is called, messages wait in the socket
and then in the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import psycopg
from psycopg import pq

from dragoman.captures.definition import Definition
from dragoman.cdc.source.connection import Connection, SourceError, connect, refusal
from dragoman.limits import CAPTURE_READ_BYTES
from dragoman.protocols.postgres.codec import format_lsn, parse_lsn
from dragoman.protocols.postgres.constants import SESSION_SETTINGS, protocol_version

_END: Final = -1


class System(msgspec.Struct, frozen=True):
    """The identity of a server. A primary and its standbys have the same `identifier`."""

    identifier: str
    timeline: int
    lsn: int


class ReplicationConnection:
    """Opened by `open_replication`. Owned by one event loop and used by one task."""

    def __init__(self, connection: Connection, definition: Definition) -> None:
        self._connection = connection
        self._definition = definition
        self._pgconn = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._is_interrupted = False
        #: Set while `_flush_more` waits until the socket is writable.
        self._is_writing = False
        self.version = protocol_version(connection.info.server_version)

    async def identify(self) -> System:
        try:
            cursor = await self._connection.execute("IDENTIFY_SYSTEM")
            row = await cursor.fetchone()
        except psycopg.Error as error:
            raise self.refusal(error) from None
        assert row is not None
        identifier, timeline, lsn, _database = row
        return System(str(identifier), int(timeline), parse_lsn(lsn))

    async def end_of_timeline(self, timeline: int, current: int) -> int | None:
        """The LSN at which the WAL left an earlier timeline; None if unknown."""
        try:
            cursor = await self._connection.execute(f"TIMELINE_HISTORY {current:d}".encode())
            row = await cursor.fetchone()
        except psycopg.Error as error:
            if self._connection.closed:
                raise self.refusal(error) from None
            return None
        assert row is not None
        content = row[1]
        history = content.decode() if isinstance(content, bytes) else str(content)
        for line in history.splitlines():
            fields = line.split()
            if len(fields) >= 2 and fields[0] == str(timeline):
                return parse_lsn(fields[1])
        return None

    async def start(self, lsn: int) -> None:
        """Make the server send what was committed after this LSN; 0: after the slot's LSN."""
        definition = self._definition
        options = {
            "proto_version": str(self.version),
            "publication_names": _quoted(definition.publication_name),
            "messages": "true",
        }
        if definition.streaming and self.version >= 2:
            options["streaming"] = "on"
        if definition.two_phase and self.version >= 3:
            options["two_phase"] = "on"
        shown = ", ".join(f"{name} {_literal(value)}" for name, value in options.items())
        slot = _quoted(definition.slot_name)
        command = f"START_REPLICATION SLOT {slot} LOGICAL {format_lsn(lsn)} ({shown})"
        try:
            await self._ask(command)
        except psycopg.Error as error:
            raise self.refusal(error) from None

    async def _ask(self, command: str) -> None:
        pgconn = self._pgconn
        pgconn.nonblocking = 1
        pgconn.send_query(command.encode())
        while pgconn.flush():
            await self._ready(self._loop.add_writer, self._loop.remove_writer)
        while pgconn.is_busy():
            await self._ready(self._loop.add_reader, self._loop.remove_reader)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None or result.status != pq.ExecStatus.COPY_BOTH:
            raise self._failure(result)

    def interrupt(self) -> None:
        """Make the current or next call of `receive` return at once, empty."""
        self._is_interrupted = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def receive(self) -> list[bytes]:
        """The frames that have arrived, at least one unless interrupted. Raises `SourceError` at
        the end of the connection.
        """
        pgconn = self._pgconn
        frames: list[bytes] = []
        room = CAPTURE_READ_BYTES
        try:
            while True:
                while room > 0:
                    size, data = pgconn.get_copy_data(1)
                    if size <= 0:
                        break
                    room -= size
                    frames.append(bytes(data))
                if frames or self._is_interrupted:
                    self._is_interrupted = False
                    return frames
                if size == _END:
                    raise self._failure(pgconn.get_result())
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
                pgconn.consume_input()
        except psycopg.Error as error:
            raise self.refusal(error) from None

    def send(self, status: bytes) -> None:
        """Send a message to the server without waiting. Raises `SourceError`."""
        try:
            self._pgconn.put_copy_data(status)
            self._flush()
        except psycopg.Error as error:
            raise self.refusal(error) from None

    def _flush(self) -> None:
        if self._pgconn.flush() and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._pgconn.socket, self._flush_more)

    def _flush_more(self) -> None:
        try:
            is_left = bool(self._pgconn.flush())
        except psycopg.Error:
            # `receive` raises the error.
            is_left = False
        if not is_left:
            self._is_writing = False
            self._loop.remove_writer(self._pgconn.socket)

    async def close(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._pgconn.socket)
        await self._connection.close()

    def refusal(self, error: psycopg.Error) -> SourceError:
        return refusal(error, self._definition.dsn)

    def _failure(self, result: pq.abc.PGresult | None) -> psycopg.Error:
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
        text = self._pgconn.get_error_message()
        return psycopg.OperationalError(text or "the database has ended the replication")

    async def _ready(
        self, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]
    ) -> None:
        socket = self._pgconn.socket
        ready = self._waiting = self._loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        add(socket, wake)
        try:
            await ready
        finally:
            self._waiting = None
            remove(socket)


async def open_replication(definition: Definition, session: str) -> ReplicationConnection:
    """Open a replication connection whose `application_name` is `session`. Raises `SourceError`."""
    connection = await connect(
        definition.dsn,
        name=definition.name,
        settings=dict(SESSION_SETTINGS),
        parameters={"replication": "database", "application_name": session},
    )
    return ReplicationConnection(connection, definition)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
