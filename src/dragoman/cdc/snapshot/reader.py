"""Reads the rows of a table in chunks by key, in the text format of COPY.

Each chunk is read in one transaction. It locks the table before its first query, because a table
that ALTER TABLE rewrites in between would appear empty. The transaction determines which other
transactions the chunk includes (`Visibility`), and which columns and rows of the table are
published.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.waiting import Wait

from dragoman.captures.definition import Definition
from dragoman.cdc.snapshot.window import Key, Visibility
from dragoman.cdc.source.connection import Connection, SourceError, connect, refusal
from dragoman.cdc.source.publication import SourceTable, quote, rows
from dragoman.limits import SNAPSHOT_CHUNK_BYTES
from dragoman.protocols.postgres.codec import decode_line
from dragoman.protocols.postgres.constants import SESSION_SETTINGS
from dragoman.protocols.postgres.messages import Column, Identity, Relation, Row

#: Bytes of rows to read in one loop turn.
_TURN_BYTES = 64 << 10
_SETTINGS = SESSION_SETTINGS | {
    # Makes the query fail if a policy would hide rows.
    "row_security": "off",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A chunk is read in index order, never by sorting the rest of the table.
    "enable_sort": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # The commit of a mark waits for synchronous standbys, too, so it follows every commit that
    # does.
    "synchronous_commit": "remote_apply",
    "default_transaction_read_only": "off",
}


class Shape(msgspec.Struct, frozen=True):
    """The columns of a table, as published, while a chunk is read."""

    relation: Relation
    #: Indexes of the key columns in a row.
    key_places: tuple[int, ...]
    #: The row filter of the publication, or an empty string.
    row_filter: str

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.relation.columns]

    def divided(self, line: bytes) -> Row:
        return decode_line(line, len(self.relation.columns))

    def key_of(self, line: bytes) -> Key:
        # Most keys are the first columns of their table, so the columns after them are not parsed.
        width = max(self.key_places) + 1
        row = decode_line(b"\t".join(line.split(b"\t", width)[:width]), width)
        return tuple(row[place] for place in self.key_places)  # type: ignore[misc]


class RowChunk(msgspec.Struct):
    lines: dict[Key, bytes | Row]
    bytes: int
    #: Whether the table has no rows after this chunk.
    is_last: bool


class ChunkReader:
    """Owns one connection for reading, and one for marks."""

    def __init__(self, reading: Connection, marking: Connection, definition: Definition) -> None:
        self._reading = reading
        self._marking = marking
        self._definition = definition

    async def mark(self, prefix: str, content: bytes) -> None:
        """Write a mark. Returns when the mark is in the WAL."""
        await rows(
            self._marking,
            "SELECT pg_logical_emit_message(true, %s::text, %s::text)",
            prefix,
            content.decode(),
        )

    async def query(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Query outside the transaction of the chunk."""
        return await rows(self._marking, query, *arguments)

    async def visibility(self) -> Visibility:
        """The transactions that are visible now."""
        return Visibility.parse((await self.query("SELECT pg_current_snapshot()::text"))[0][0])

    async def session(self) -> Connection:
        """Open another connection with the same settings."""
        return await _session(self._definition)

    # ---- one chunk

    async def begin(self, table: SourceTable) -> Visibility:
        """Begin the transaction of a chunk. It sees the current state of the table until `end`."""
        await self._reading.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        only = "" if table.is_partitioned else "ONLY "
        lock = f"LOCK TABLE {only}{table.quoted} IN ACCESS SHARE MODE"
        await self._reading.execute(lock.encode())
        ((text,),) = await rows(self._reading, "SELECT pg_current_snapshot()::text")
        return Visibility.parse(text)

    async def end(self) -> None:
        if self._reading.info.transaction_status != pq.TransactionStatus.IDLE:
            await self._reading.execute("ROLLBACK")

    async def describe(self, table: SourceTable) -> Shape:
        is_listed = self._reading.info.server_version >= 150000
        published = await rows(
            self._reading,
            "SELECT coalesce(p.rowfilter, ''), p.attnames::text[] FROM pg_publication_tables p"
            " WHERE pubname = %s AND schemaname = %s AND tablename = %s"
            if is_listed
            else "SELECT '', ARRAY(SELECT attname::text FROM pg_attribute a JOIN pg_class c"
            " ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE %s <> '' AND nspname = %s AND relname = %s AND attgenerated = '')",
            self._definition.publication_name,
            table.schema,
            table.name,
        )
        if not published:
            name = self._definition.publication_name
            raise SourceError(
                f"{table.label} is not in the publication {name} any more",
                f"ALTER PUBLICATION {name} ADD TABLE {table.quoted};",
            )
        ((row_filter, names),) = published
        # Only releases from 18 on send generated columns, although 15 lists them.
        sends_generated = self._reading.info.server_version >= 180000
        found = await rows(
            self._reading,
            "SELECT attname::text, atttypid::int8, atttypmod FROM pg_attribute"
            " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attname = ANY (%s)"
            " AND (attgenerated = '' OR %s) ORDER BY attnum",
            table.oid,
            names,
            sends_generated,
        )
        is_whole = table.identity == Identity.FULL
        columns = tuple(
            Column(name, type_oid, modifier, is_whole or name in table.key)
            for name, type_oid, modifier in found
        )
        relation = Relation(
            0, table.oid, table.schema, table.name, Identity(table.identity), columns
        )
        places = {column.name: place for place, column in enumerate(columns)}
        if not set(table.key) <= set(places):
            raise SourceError(
                f"the publication leaves out columns of the key of {table.label}",
                f"ALTER PUBLICATION {self._definition.publication_name} SET TABLE … with"
                f" {', '.join(table.key)} among the columns of {table.quoted};",
            )
        return Shape(relation, tuple(places[name] for name in table.key), row_filter)

    async def read(
        self, table: SourceTable, shape: Shape, after: Key | None, count_max: int
    ) -> RowChunk:
        """Read rows after a key, in key order, up to a number of rows or bytes."""
        order = ", ".join(quote(name) for name in table.key).encode()
        behind = b""
        if after is not None:
            behind = b"(%b) > (%b)" % (order, b", ".join(_literal(text) for text in after))
        tail = b"ORDER BY %b LIMIT %d" % (order, count_max)
        chunk = RowChunk({}, 0, is_last=True)
        async for lines in self._copy(_selection(table, shape, behind, tail)):
            for line in lines:
                if chunk.bytes >= SNAPSHOT_CHUNK_BYTES:
                    chunk.is_last = False
                    await self._stop_copying()
                    return chunk
                chunk.lines[shape.key_of(line)] = line
                chunk.bytes += len(line)
        chunk.is_last = len(chunk.lines) < count_max
        return chunk

    def read_whole(self, table: SourceTable, shape: Shape) -> AsyncIterator[list[bytes]]:
        """Read all rows of a table, in any order."""
        return self._copy(_selection(table, shape, b"", b""))

    async def _copy(self, query: bytes) -> AsyncIterator[list[bytes]]:
        pgconn = self._reading.pgconn
        try:
            await self._reading.wait(_start_copying(pgconn, query))
            is_over = False
            while not is_over:
                lines, is_over = await self._reading.wait(_lines(pgconn))
                yield lines
        except psycopg.Error as error:
            raise refusal(error, self._definition.dsn) from None

    async def _stop_copying(self) -> None:
        await self._reading.cancel_safe()
        try:
            while not (await self._reading.wait(_lines(self._reading.pgconn)))[1]:
                pass
        except psycopg.errors.QueryCanceled:
            pass


@asynccontextmanager
async def open_reader(definition: Definition) -> AsyncIterator[ChunkReader]:
    """Raises `SourceError`."""
    async with AsyncExitStack() as stack:
        reading = await _session(definition)
        stack.push_async_callback(reading.close)
        marking = await _session(definition)
        stack.push_async_callback(marking.close)
        yield ChunkReader(reading, marking, definition)


async def _session(definition: Definition) -> Connection:
    return await connect(definition.dsn, name=definition.name, settings=_SETTINGS)


def _selection(table: SourceTable, shape: Shape, behind: bytes, tail: bytes) -> bytes:
    columns = ", ".join(quote(column.name) for column in shape.relation.columns)
    conditions = b" AND ".join(each for each in (behind, shape.row_filter.encode()) if each)
    where = b"WHERE " + conditions if conditions else b""
    only = "" if table.is_partitioned else "ONLY "
    chosen = f"SELECT {columns} FROM {only}{table.quoted}".encode()
    return b"COPY (%b %b %b) TO STDOUT" % (chosen, where, tail)


def _literal(text: bytes) -> bytes:
    """A literal without a type, which takes the type of the column that it is compared with."""
    return b"'%b'" % text.replace(b"'", b"''")


# ---- COPY with psycopg's wait loops, many rows per loop turn


def _start_copying(pgconn: pq.abc.PGconn, query: bytes) -> Generator[Wait, int, None]:
    pgconn.send_query(query)
    while pgconn.flush():
        yield Wait.W
    while pgconn.is_busy():
        yield Wait.R
        pgconn.consume_input()
    result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_OUT:
        if result is not None:
            yield from _end_copying(pgconn)
        raise _failure(pgconn, result)


def _lines(pgconn: pq.abc.PGconn) -> Generator[Wait, int, tuple[list[bytes], bool]]:
    """The lines that have arrived, and whether they are the last."""
    lines: list[bytes] = []
    room = _TURN_BYTES
    while room > 0:
        size, data = pgconn.get_copy_data(1)
        if size > 0:
            lines.append(bytes(data))
            room -= size
        elif size < 0:
            yield from _end_copying(pgconn)
            return lines, True
        elif lines:
            break
        else:
            yield Wait.R
            pgconn.consume_input()
    return lines, False


def _end_copying(pgconn: pq.abc.PGconn) -> Generator[Wait, int, None]:
    failed = None
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            break
        if result.status != pq.ExecStatus.COMMAND_OK:
            failed = result
    if failed is not None:
        raise _failure(pgconn, failed)


def _failure(pgconn: pq.abc.PGconn, result: pq.abc.PGresult | None) -> psycopg.Error:
    if result is not None:
        return psycopg.errors.error_from_result(result)
    return psycopg.OperationalError(pgconn.get_error_message() or "the connection was lost")
