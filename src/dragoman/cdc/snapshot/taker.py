"""Takes snapshots: reads the existing rows of tables, concurrently with the stream of changes.

First, resumed and repeated snapshots work alike. A table with a key is read in chunks. Each chunk
is sent when the stream reaches the chunk's mark, without the rows for which the stream is more
recent (`snapshot/window.py`). Its records are committed in the same Kafka transaction as the
progress of the table:

    reader   snapshot ── read a chunk ── write a mark ── wait ── snapshot ── read …
    stream   … changes, which the window records … mark: chunk and progress … changes …

There is no other state. After a failure, the next process resumes after the last committed key, and
nothing is sent twice.

A table without a key is read as a whole, and so is an outbox, because consumers of their records
cannot recognise duplicate rows. Changes of these tables are not sent before the snapshot, which
contains them. The mark is written right after the snapshot was taken, and the rows are read and
sent while the stream waits at the mark. If a change lies between the two (the snapshot does not
show it, and the mark comes after it), the table is read again.

A table that was just published is read once every transaction that was open at that time has ended,
because the stream does not contain their earlier changes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

import msgspec
import psycopg

from dragoman.captures.control import TableProgress
from dragoman.captures.definition import Definition, any_matches, table_matches
from dragoman.cdc.events import Encoder, Transaction
from dragoman.cdc.position import Progress
from dragoman.cdc.snapshot.chunk import ChunkRecords, Reading, RowEncoder, WholeRecords
from dragoman.cdc.snapshot.reader import ChunkReader, Shape, open_reader
from dragoman.cdc.snapshot.state import Pace, TableState, kept, shown, states_of
from dragoman.cdc.snapshot.window import Recent
from dragoman.cdc.source.connection import SourceError, connect, refusal
from dragoman.cdc.source.publication import Prepared, SourceTable, prepare
from dragoman.cdc.stream import Change, SnapshotChunk
from dragoman.errors import CdcError, ConfigError
from dragoman.limits import (
    SNAPSHOT_CHUNK_BYTES,
    SNAPSHOT_LOOK_PAUSE_MAX_S,
    SNAPSHOT_NEW_TABLES_S,
    SNAPSHOT_RETRY_S,
)
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.types import TYPES_QUERY

_log = logging.getLogger(__name__)
#: A spoiled chunk is read again with half as many rows, but not with fewer than this.
_ROWS_MIN = 100
_LEFT = "left "


class _Mark(msgspec.Struct, frozen=True):
    """The content of a mark, a message in the WAL. Marks of other processes are ignored."""

    process: str
    number: int


_decode_mark = msgspec.json.Decoder(_Mark).decode


class SnapshotTaker:
    """Takes the snapshots of one session. Implements `cdc.stream.Snapshots`."""

    def __init__(self, definition: Definition, encoder: Encoder, prepared: Prepared) -> None:
        self._definition = definition
        self._encoder = encoder
        #: Whether the slot was just created, so that it contains all relevant transactions.
        self._is_new = prepared.is_new
        #: Whether tables were published while open transactions may have written to them.
        self._is_unsettled = False
        self._added = prepared.added
        self._is_publishing = prepared.is_publishing
        #: Warnings of the most recent call of `prepare`.
        self._later: tuple[str, ...] = ()
        self._tables = {table.label: table for table in prepared.tables}
        self._oids: set[int] = set()
        self._states: dict[str, TableState] = {}
        self._paces: dict[str, Pace] = {}
        #: By table, the number of rows in a chunk.
        self._limits: dict[str, int] = {}
        self._prefix = f"dragoman.{definition.name}.snapshot"
        self._process = secrets.token_hex(8)
        self._mark = 0
        self._recent = Recent()
        self._transaction: Transaction | None = None
        self._reading: Reading | None = None
        #: Tables whose changes are not sent, because the pending snapshot will contain them.
        self._hidden: set[int] = set()
        self.is_watching = False
        #: Whether the publication may contain tables that are not known here yet.
        self._is_adding = False
        self._requested: list[str] = []
        #: Tables with a snapshot request that is not committed yet.
        self.pending: tuple[str, ...] = ()
        #: Whether the current states are committed, and the number of the mark that commits them.
        self._is_noted = True
        self._noting = 0
        self._wake = asyncio.Event()
        self._is_live = asyncio.Event()
        #: By table or other subject, the reason why a snapshot is delayed.
        self._troubles: dict[str, str] = {}

    # ---- called by the stream

    def replaced(self, progress: Progress) -> None:
        self._states = states_of(progress)
        self._adopt(self._added)
        self._reading = None

    def _adopt(self, added: tuple[str, ...]) -> None:
        """Keep a state for each captured table, and for no other."""
        before = self._states
        is_done = self._definition.snapshot == "never"
        self._states = {}
        for label, table in self._tables.items():
            fresh = TableState(oid=table.oid, key=table.key, is_done=is_done)
            state = before.get(label, fresh)
            if state.oid != table.oid:
                state = fresh
            elif state.is_done and label in added and state is not fresh:
                self._trouble(
                    f"{_LEFT}{label}",
                    f"{label} had left the publication: its rows are sent again, but deletions"
                    " while it was not published are unknown",
                )
                state = msgspec.structs.replace(fresh, is_done=False, is_again=True)
            elif not state.is_done and state.key != table.key:
                state = msgspec.structs.replace(fresh, is_done=False, is_again=state.is_again)
            self._states[label] = state
        self._is_unsettled = not self._is_new and any(
            not state.is_done and state.last is None and (label in added or not state.is_again)
            for label, state in self._states.items()
        )
        # States of new tables need not be committed, because the next process detects the tables
        # again.
        self._is_noted = all(self._states.get(label) == state for label, state in before.items())
        self._hide()

    def begin(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._recent.add(transaction.xid)

    def changed(self, relation: m.Relation, change: Change) -> bool:
        reading = self._reading
        if reading is not None and relation.id == reading.table.oid:
            assert self._transaction is not None
            reading.changed(self._transaction.xid, relation, change)
        if relation.id in self._hidden:
            return False
        # A table without a known id was just published, and its snapshot follows.
        return not self._is_adding or relation.id in self._oids

    def message(self, prefix: str, content: bytes) -> SnapshotChunk | None:
        if prefix != self._prefix:
            return None
        try:
            mark = _decode_mark(content)
        except msgspec.MsgspecError:
            return None  # another session's message: any session may write some
        if mark.process != self._process:
            return None
        self._is_live.set()
        if mark.number == self._noting:
            self.pending = tuple(self._requested)
            return SnapshotChunk((), kept(self._states))
        reading = self._reading
        if reading is None or mark.number != reading.mark:
            return None
        return self._whole(reading) if reading.is_whole else self._part(reading)

    def _part(self, reading: Reading) -> SnapshotChunk | None:
        """Return the chunk at its mark."""
        assert self._transaction is not None
        label = reading.table.label
        lines = reading.window.close()
        reading.over.set()
        if lines is None:
            return None
        reading.is_sent = True
        assert reading.rows is not None
        state = self._states[label]
        after = state.behind(reading.last, reading.count, reading.size, is_done=reading.is_last)
        self._states[label] = after
        records = ChunkRecords(
            reading.rows,
            lines,
            self._transaction,
            is_first=state.last is None,
            rows_in_all=after.rows if after.is_done else -1,
        )
        return SnapshotChunk(records, kept(self._states))

    def _whole(self, reading: Reading) -> SnapshotChunk | None:
        assert self._transaction is not None
        if reading.window.has_hidden:
            reading.over.set()
            return None
        assert reading.rows is not None
        assert reading.source is not None
        # The rows do not contain later changes.
        self._hidden.discard(reading.table.oid)
        progress: Progress = {}

        def over(rows: int, size: int) -> None:
            label = reading.table.label
            self._states[label] = self._states[label].behind(None, rows, size, is_done=True)
            # The progress changes only after the records were written.
            progress.update(kept(self._states))
            reading.is_sent = True
            reading.over.set()

        records = WholeRecords(reading.rows, reading.source, self._transaction, over=over)
        return SnapshotChunk(records, progress)

    # ---- called for operators

    def request(self, tables: tuple[str, ...]) -> None:
        """Request that tables be read again. An outbox is read again only if it is named."""
        outbox = self._definition.outbox
        chosen = [
            label
            for label, table in self._tables.items()
            if any_matches(tables, table.schema, table.name)
            or not (tables or (outbox and table_matches(outbox, table.schema, table.name)))
        ]
        if not chosen:
            raise CdcError(
                f"{', '.join(tables) or 'no table'}: expected captured tables, which are"
                f" {', '.join(self._tables) or 'none'}"
            )
        self._requested += chosen
        self.pending = tuple(dict.fromkeys((*self.pending, *chosen)))
        self._wake.set()

    @property
    def tables(self) -> tuple[TableProgress, ...]:
        return tuple(
            shown(table, self._states[label], self._paces.get(label))
            for label, table in self._tables.items()
            if label in self._states
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self._later, *self._troubles.values())

    # ---- concurrent with the stream

    async def run(self) -> None:
        """Read tables until cancelled. Connects only while there are tables to read. Raises
        `SourceError`.
        """
        try:
            while True:
                if self._requested:
                    self._begin_again()
                if self._waiting() or not self._is_noted:
                    async with open_reader(self._definition) as reader:
                        await self._work(reader)
                if await self._is_quiet(SNAPSHOT_NEW_TABLES_S):
                    await self._look_for_tables()
        except psycopg.Error as error:
            raise refusal(error, self._definition.dsn) from None

    def _waiting(self) -> list[str]:
        """Tables to read: first those whose changes are held back until then, last the delayed
        ones.
        """
        waiting = [label for label, state in self._states.items() if not state.is_done]
        waiting.sort(key=lambda each: (each in self._troubles, not self._is_whole(each), each))
        return waiting

    async def _work(self, reader: ChunkReader) -> None:
        """Read until no table is left."""
        await self._write_mark(reader)
        await self._is_live.wait()
        while True:
            if self._requested:
                self._begin_again()
            if not self._is_noted:
                await self._note(reader)
            if self._is_unsettled:
                await self._wait_for_writers(reader)
            waiting = self._waiting()
            if not waiting:
                return
            if waiting[0] in self._troubles and await self._is_quiet(SNAPSHOT_RETRY_S):
                await self._look_for_tables()
                for label in self._troubles.keys() & self._tables.keys():
                    await self._take(reader, self._tables[label])
            elif waiting[0] not in self._troubles:
                await self._take(reader, self._tables[waiting[0]])

    async def _is_quiet(self, pause_s: float) -> bool:
        """Whether no request arrives within this time."""
        if self._requested:
            return False
        self._wake.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return True
        return False

    def _begin_again(self) -> None:
        chosen, self._requested = self._requested, []
        for label in chosen:
            table = self._tables.get(label)
            if table is not None:
                is_again = self._states[label].is_done or self._states[label].is_again
                self._states[label] = TableState(oid=table.oid, key=table.key, is_again=is_again)
                self._paces.pop(label, None)
                self._is_noted = False
        self._hide()

    async def _note(self, reader: ChunkReader) -> None:
        """Commit the states at once, so that requests survive a restart of the process."""
        self._is_noted = True
        self._noting = self._mark + 1
        await self._write_mark(reader)

    async def _take(self, reader: ChunkReader, table: SourceTable) -> None:
        """Read the next chunk of a table, or the whole table. A problem of one table does not delay
        other tables.
        """
        self._paces.setdefault(table.label, Pace(self._states[table.label].rows))
        try:
            await self._read(reader, table)
        except psycopg.errors.UndefinedTable:
            await reader.end()
            await self._look_for_tables()
        except (CdcError, ConfigError, psycopg.errors.InsufficientPrivilege) as error:
            if isinstance(error, SourceError) and error.is_transient:
                raise
            await reader.end()
            self._trouble(table.label, f"the snapshot of {table.label} waits: {error}")
        else:
            self._troubles.pop(table.label, None)
        finally:
            self._reading = None
            self._watch()

    def _trouble(self, about: str, text: str) -> None:
        if self._troubles.get(about) != text:
            _log.warning("%s", text)
        self._troubles[about] = text

    async def _read(self, reader: ChunkReader, table: SourceTable) -> None:
        label = table.label
        reading = Reading(table, self._recent, is_whole=self._is_whole(label))
        self._reading = reading
        self._watch()
        await self._look(reader, reading)
        shape = await reader.describe(table)
        await self._learn_types(reader, shape)
        reading.shape = shape
        reading.rows = RowEncoder(self._encoder, shape.relation, table.key)
        if reading.is_whole:
            reading.source = reader.read_whole(table, shape)
        else:
            await self._fill(reader, reading, shape)
            await reader.end()
        reading.mark = self._mark + 1
        await self._write_mark(reader)
        await reading.over.wait()
        await reader.end()
        if not reading.is_sent and not reading.is_whole:
            limit = reading.limit
            self._limits[label] = max(min(_ROWS_MIN, limit), limit // 2)

    async def _look(self, reader: ChunkReader, reading: Reading) -> None:
        pause_s = 0.001
        while True:
            visibility = await reader.begin(reading.table)
            if reading.window.saw(visibility) and not await self._is_something_prepared(reader):
                self._troubles.pop("prepared", None)
                return
            await reader.end()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, SNAPSHOT_LOOK_PAUSE_MAX_S)

    async def _is_something_prepared(self, reader: ChunkReader) -> bool:
        """Whether a prepared transaction exists. The stream contains its changes, but no snapshot
        includes them before its commit.
        """
        if not self._definition.two_phase:
            return False
        found = await reader.query(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1"
        )
        if found:
            gid = found[0][0]
            self._trouble("prepared", f"the snapshot waits for the prepared transaction {gid}")
        return bool(found)

    async def _fill(self, reader: ChunkReader, reading: Reading, shape: Shape) -> None:
        label = reading.table.label
        reading.limit = limit = self._limits.get(label, self._definition.snapshot_rows)
        state = self._states[label]
        chunk = await reader.read(reading.table, shape, state.last_key, limit)
        reading.count, reading.size = len(chunk.lines), chunk.bytes
        reading.is_last = chunk.is_last
        if chunk.lines:
            reading.last = next(reversed(chunk.lines))
            fitting = SNAPSHOT_CHUNK_BYTES * len(chunk.lines) // max(chunk.bytes, 1)
            self._limits[label] = max(1, min(self._definition.snapshot_rows, limit * 2, fitting))
        reading.fill(chunk)

    async def _learn_types(self, reader: ChunkReader, shape: Shape) -> None:
        if self._encoder.unknown_types(shape.relation):
            self._encoder.learn_types(await reader.query(TYPES_QUERY))

    async def _write_mark(self, reader: ChunkReader) -> None:
        self._mark += 1
        await reader.mark(self._prefix, msgspec.json.encode(_Mark(self._process, self._mark)))

    # ---- tables that are added later

    async def _look_for_tables(self) -> None:
        self._is_new = False
        self._oids = {table.oid for table in self._tables.values()}
        # If an administrator publishes the tables, changes of tables without a state are sent.
        self._is_adding = self._is_publishing and self._definition.snapshot == "initial"
        self._watch()
        async with await connect(self._definition.dsn, name=self._definition.name) as session:
            prepared = await prepare(session, self._definition, is_known=True)
        self._is_adding = False
        self._later = prepared.warnings
        self._tables = {table.label: table for table in prepared.tables}
        self._troubles = {
            about: text
            for about, text in self._troubles.items()
            if about in self._tables or about.startswith(_LEFT)
        }
        self._adopt(prepared.added)

    async def _wait_for_writers(self, reader: ChunkReader) -> None:
        # A transaction without an xid has written nothing, and will get a higher xid.
        ((number,),) = await reader.query("SELECT pg_current_xact_id()::text::int8")
        pause_s = 0.001
        while (await reader.visibility()).xmin < number:
            if pause_s == SNAPSHOT_LOOK_PAUSE_MAX_S:
                self._trouble(
                    "writers",
                    "the snapshot of new tables waits for transactions that were open before"
                    " (SELECT * FROM pg_stat_activity WHERE backend_xid IS NOT NULL;)",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, SNAPSHOT_LOOK_PAUSE_MAX_S)
        self._is_unsettled = False
        self._troubles.pop("writers", None)

    # ---- which changes the stream passes to `changed`

    def _is_whole(self, label: str) -> bool:
        table = self._tables[label]
        outbox = self._definition.outbox
        return not table.key or bool(outbox and table_matches(outbox, table.schema, table.name))

    def _hide(self) -> None:
        self._hidden = {
            table.oid
            for label, table in self._tables.items()
            if self._is_whole(label)
            and not self._states[label].is_done
            and not self._states[label].is_again
        }
        self._watch()

    def _watch(self) -> None:
        self.is_watching = bool(self._reading or self._hidden or self._is_adding)
