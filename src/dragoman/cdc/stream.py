"""The stream converts WAL messages to events, in commit order.

Most transactions arrive as a whole after their commit. A large one arrives in blocks while it is in
progress; the blocks are spooled, and replayed when the commit arrives. A prepared transaction is
sent when it is prepared, if the slot was created with `two_phase`.

    Begin … Commit                          BeginPrepare … Prepare
    StreamStart … StreamStop, … StreamCommit | StreamAbort | StreamPrepare

Transactions before the position are already in the topics, so they are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol, TypeAlias

import msgspec

from dragoman.captures.control import TableProgress
from dragoman.cdc.events import Encoder, TopicNeeded
from dragoman.cdc.events.marks import SNAPSHOTS
from dragoman.cdc.events.records import EventRecord, Transaction
from dragoman.cdc.position import Position, Progress
from dragoman.cdc.spool import Spool
from dragoman.cdc.writer import LogWriter
from dragoman.errors import DecodeError
from dragoman.limits import CAPTURE_RECORDS_AT_A_TIME
from dragoman.protocols.postgres import messages as m
from dragoman.protocols.postgres.codec import MESSAGE_START, Decoder, Keepalive, decode_frame

_WAL_DATA: Final = ord("w")
_STREAM_STOP: Final = ord("E")
#: A snapshot sends records of this topic between its rows; they do not count as rows.
_MARKS: Final = SNAPSHOTS.replace(":", ".")
_ROWS: Final = frozenset(b"IUD")
Row: TypeAlias = m.Insert | m.Update | m.Delete
Change: TypeAlias = Row | m.Truncate


class Catalog(Protocol):
    """Topics of the broker and the catalogue of the database, as the encoder needs them."""

    async def need(self, topic: TopicNeeded) -> None:
        """Create a topic unless it exists, and give the encoder the number of its partitions."""

    async def describe(self, relation: m.Relation) -> tuple[str, ...]:
        """Return the columns of the table's primary key, if they matter. Looks up types that the
        encoder does not know.
        """


# ---- snapshots, which are taken concurrently with the stream


class SnapshotChunk(msgspec.Struct, frozen=True):
    """Records to write at a mark of the stream, in the same Kafka transaction as the progress."""

    #: Iterated with pauses for the event loop. After `TopicNeeded`, the next call returns the same
    #: record.
    records: Iterable[EventRecord] | AsyncIterable[EventRecord]
    progress: Progress


class Snapshots(Protocol):
    """The stream's port to the snapshots. No method blocks, except `run`.

    Calls are in commit order: for each transaction, `begin`, then its changes and messages in the
    order in which the database sent them.
    """

    #: Whether `changed` must be called. Read before every change, so it must be cheap.
    is_watching: bool
    #: Tables whose requested snapshot is not recorded in the position yet.
    pending: tuple[str, ...]

    def begin(self, transaction: Transaction) -> None:
        """Changes until the next call belong to this transaction."""

    def changed(self, relation: m.Relation, change: Change) -> bool:
        """Whether to send the change. False if a snapshot contains or will contain it."""

    def message(self, prefix: str, content: bytes) -> SnapshotChunk | None:
        """A message of `pg_logical_emit_message`, from any session of the database."""

    def replaced(self, progress: Progress) -> None:
        """Called when the stream starts or restarts after this progress. Windows are discarded."""

    async def run(self) -> None:
        """Read tables concurrently with the stream until cancelled. Raises `CdcError` for a problem
        that needs an operator, and other errors for a transient one.
        """

    def request(self, tables: tuple[str, ...]) -> None:
        """Read these tables again; all tables if none is named. Raises `CdcError`."""

    @property
    def tables(self) -> tuple[TableProgress, ...]:
        """The progress of each table, for reports."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons why snapshots are delayed, for reports."""


# ---- the stream


class Counts:
    """Totals since the process started."""

    __slots__ = ("bytes", "rows", "transactions")

    def __init__(self) -> None:
        self.rows = 0
        self.transactions = 0
        self.bytes = 0


class Stream:
    def __init__(
        self,
        *,
        decoder: Decoder,
        encoder: Encoder,
        snapshots: Snapshots,
        spool: Spool,
        writer: LogWriter,
        catalog: Catalog,
        position: Position,
        heartbeat_prefix: str,
        marks: bool,
        counts: Counts,
    ) -> None:
        self._decode = decoder.decode
        self._encoder = encoder
        self._change = encoder.change
        self._snapshots = snapshots
        self._spool = spool
        self._writer = writer
        self._catalog = catalog
        self._heartbeat_prefix = heartbeat_prefix
        self._marks = marks
        self._counts = counts
        #: Everything before this position is in the topics or in the writer.
        self.position = position
        self._start_lsn = position.lsn
        self._relations: dict[int, m.Relation] = {}
        #: The transaction of the current messages; None between transactions and in a skipped one.
        self._transaction: Transaction | None = None
        self._progress: Progress | None = None
        self._has_events = False
        self._has_rows = False
        #: Whether a transaction has begun and not ended.
        self.is_inside = False
        self._is_in_block = False
        #: The last known end of the database's WAL.
        self.wal_end = 0

    # ---- frames

    async def take(self, frames: Sequence[bytes]) -> bool:
        """Process frames. Returns whether the server wants a reply. Raises `DecodeError`."""
        wants_reply = False
        if frames:
            self.wal_end = max(self.wal_end, decode_frame(frames[-1]).wal_end)
        counts, decode = self._counts, self._decode
        for frame in frames:
            if frame[0] != _WAL_DATA:
                wants_reply |= self._keepalive(frame)
                continue
            counts.bytes += len(frame)
            kind = frame[MESSAGE_START]
            if self._is_in_block:
                if kind != _STREAM_STOP:
                    self._spool.append(frame[MESSAGE_START:])
                    continue
            elif kind in _ROWS and self._has_rows:
                # Nearly all messages are rows, so rows bypass the coroutine.
                message: Row = decode(frame, MESSAGE_START)  # type: ignore[assignment]
                try:
                    self._row(message)
                except TopicNeeded:
                    await self._first_row(message)
                continue
            await self._dispatch(decode(frame, MESSAGE_START))
        await self._writer.room()
        return wants_reply

    def _keepalive(self, frame: bytes) -> bool:
        message = decode_frame(frame)
        if not isinstance(message, Keepalive):
            raise DecodeError("a frame of the WAL contains no message")
        if not self.is_inside and message.wal_end > self.position.lsn:
            # The server has sent everything that was committed before. After a restart it sends
            # transactions in progress again, because their commits are later.
            self._advance(message.wal_end)
        return message.wants_reply

    async def _dispatch(self, message: m.Message) -> None:
        match message:
            case m.Begin(lsn, time_us, xid):
                await self._begin(lsn, xid, time_us, is_new=lsn >= self._start_lsn)
            case m.Commit(lsn, end_lsn, time_us):
                await self._end(end_lsn)
            case m.Insert() | m.Update() | m.Delete():
                await self._first_row(message)
            case m.Truncate():
                await self._truncate(message)
            case m.Relation():
                await self._relation(message)
            case m.Type():
                self._encoder.type(message)
            case m.LogicalMessage():
                await self._message(message)
            case m.Origin():
                pass
            case m.StreamStart(xid):
                self._spool.open(xid)
                self._is_in_block = True
            case m.StreamStop():
                self._spool.close()
                self._is_in_block = False
            case m.StreamAbort(xid, sub_xid):
                self._spool.cut(xid, sub_xid)
            case m.StreamCommit(xid, lsn, end_lsn, time_us):
                await self._replay(xid, lsn, end_lsn, time_us, is_new=lsn >= self._start_lsn)
            case m.StreamPrepare(lsn, end_lsn, time_us, xid):
                await self._replay(xid, lsn, end_lsn, time_us, is_new=True)
            case m.BeginPrepare(lsn, _, time_us, xid):
                await self._begin(lsn, xid, time_us, is_new=True)
            case m.Prepare(_, end_lsn):
                # A transaction that was prepared before the slot was created is sent at its commit,
                # and is sent again unless the position is past the commit.
                if end_lsn > self.position.lsn:
                    await self._end(end_lsn)
            case m.CommitPrepared(_, end_lsn) if self.is_inside:
                await self._end(end_lsn)
            case m.CommitPrepared(_, end_lsn) | m.RollbackPrepared(_, end_lsn):
                self._advance(end_lsn)

    # ---- transactions

    async def _begin(self, lsn: int, xid: int, time_us: int, *, is_new: bool) -> None:
        if self.is_inside:
            raise DecodeError("a transaction begins within another one")
        self.is_inside = True
        self._has_events = self._has_rows = False
        self._progress = None
        if not is_new:
            return
        self._transaction = transaction = Transaction(lsn=lsn, xid=xid, time_us=time_us)
        self._snapshots.begin(transaction)

    async def _end(self, end_lsn: int) -> None:
        if not self.is_inside:
            raise DecodeError("a transaction ends that has not begun")
        transaction, self._transaction = self._transaction, None
        self.is_inside = False
        if transaction is None:
            return
        if not (self._has_events or self._progress is not None):
            self._advance(end_lsn, transaction.time_us)
            return
        if self._has_rows and self._marks:
            await self._write(lambda: self._encoder.commit(transaction))
        snapshot = self.position.snapshot if self._progress is None else self._progress
        self.position = msgspec.structs.replace(
            self.position, lsn=end_lsn, time_us=transaction.time_us, snapshot=snapshot
        )
        self._counts.transactions += 1
        self._writer.commit(self.position)

    def _advance(self, lsn: int, time_us: int = 0) -> None:
        if lsn <= self.position.lsn:
            return
        self.position = msgspec.structs.replace(
            self.position, lsn=lsn, time_us=time_us or self.position.time_us
        )
        self._writer.advance(self.position)

    async def _replay(
        self, xid: int, lsn: int, end_lsn: int, time_us: int, *, is_new: bool
    ) -> None:
        await self._begin(lsn, xid, time_us, is_new=is_new)
        for count, message in enumerate(self._spool.messages(xid)):
            await self._dispatch(self._decode(message))
            if count % CAPTURE_RECORDS_AT_A_TIME == 0:
                await self._pause()
        self._spool.drop(xid)
        await self._end(end_lsn)

    # ---- changes and messages

    async def _first_row(self, message: Row) -> None:
        """The slow path of `_row`, for the first row of a transaction or topic and for spooled
        rows.
        """
        transaction = self._transaction
        if transaction is None:
            return
        if not self._has_rows:
            await self._mark_begin(transaction)
        while True:
            try:
                self._row(message)
                return
            except TopicNeeded as topic:
                await self._catalog.need(topic)

    def _row(self, message: Row) -> None:
        transaction = self._transaction
        assert transaction is not None
        if self._snapshots.is_watching and not self._snapshots.changed(
            self._known(message.relation_id), message
        ):
            return
        records = self._change(message, transaction)
        if records:
            self._counts.rows += 1
            self._has_events = True
            self._writer.add(records)

    async def _mark_begin(self, transaction: Transaction) -> None:
        """Send the BEGIN event before the first row: a transaction without rows has no such
        events.
        """
        self._has_rows = True
        if self._marks:
            await self._write(lambda: self._encoder.begin(transaction))

    async def _truncate(self, message: m.Truncate) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        left = tuple(
            number
            for number in message.relation_ids
            if not self._snapshots.is_watching
            or self._snapshots.changed(self._known(number), message)
        )
        if left:
            rest = msgspec.structs.replace(message, relation_ids=left)
            if not self._has_rows:
                await self._mark_begin(transaction)
            await self._write(lambda: self._change(rest, transaction))

    async def _relation(self, message: m.Relation) -> None:
        """Process a description even in a skipped transaction, because the server does not repeat
        it.
        """
        self._relations[message.id] = message
        key = await self._catalog.describe(message)
        await self._write(lambda: self._encoder.relation(message, key, self._transaction))

    async def _message(self, message: m.LogicalMessage) -> None:
        transaction = self._transaction
        if transaction is None or not message.is_transactional:
            return
        if message.prefix == self._heartbeat_prefix:
            await self._write(lambda: self._encoder.heartbeat(transaction))
            return
        chunk = self._snapshots.message(message.prefix, message.content)
        if chunk is not None:
            await self._chunk(chunk)

    async def _chunk(self, chunk: SnapshotChunk) -> None:
        self._progress = chunk.progress
        self._has_events = True
        if isinstance(chunk.records, AsyncIterable):
            some = partial(_some_async, aiter(chunk.records))
        else:
            some = partial(_some, iter(chunk.records))
        is_more = True
        while is_more:
            taken: list[EventRecord] = []
            try:
                await some(taken)
                is_more = len(taken) == CAPTURE_RECORDS_AT_A_TIME
            except TopicNeeded as topic:
                await self._catalog.need(topic)
            self._writer.add(taken)
            self._counts.rows += sum(record.topic != _MARKS for record in taken)
            await self._pause()

    def _known(self, number: int) -> m.Relation:
        try:
            return self._relations[number]
        except KeyError:
            raise DecodeError(f"a change of table {number}, which was not described") from None

    # ---- writing

    async def _write(self, encode: Callable[[], list[EventRecord]]) -> None:
        records = await self._until_made(encode)
        if records:
            self._has_events = True
            self._writer.add(records)

    async def _until_made(self, encode: Callable[[], list[EventRecord]]) -> list[EventRecord]:
        while True:
            try:
                return encode()
            except TopicNeeded as topic:
                await self._catalog.need(topic)

    async def _pause(self) -> None:
        await self._writer.room()
        await asyncio.sleep(0)


async def _some(records: Iterator[EventRecord], taken: list[EventRecord]) -> None:
    """Take as many records as one loop turn allows."""
    taken.extend(islice(records, CAPTURE_RECORDS_AT_A_TIME))


async def _some_async(records: AsyncIterator[EventRecord], taken: list[EventRecord]) -> None:
    async for record in records:
        taken.append(record)
        if len(taken) == CAPTURE_RECORDS_AT_A_TIME:
            return
