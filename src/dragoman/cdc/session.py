"""One session of a capture, from its position to the first error or to `end`.

`open` ends the transaction that a predecessor left open, finds the position, and checks the
database against it. `run` then reads, writes and confirms. Any failure ends the session, and the
next session begins at the committed position, so all durable state is in the topics and the
database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import psycopg

from dragoman.captures.definition import Definition
from dragoman.cdc.catalog import SourceCatalog
from dragoman.cdc.events import Encoder, TopicNeeded
from dragoman.cdc.position import (
    Position,
    check_slot,
    check_system,
    check_timeline,
    last_position,
    positions_partition,
)
from dragoman.cdc.source.connection import Connection, connect, refusal
from dragoman.cdc.source.notifications import Listener
from dragoman.cdc.source.publication import Prepared, prepare, take_over
from dragoman.cdc.source.replication import ReplicationConnection, System, open_replication
from dragoman.cdc.spool import Spool
from dragoman.cdc.stream import Counts, Snapshots, Stream
from dragoman.cdc.writer import LogWriter
from dragoman.errors import CdcError
from dragoman.limits import CAPTURE_CONFIRM_S, CAPTURE_FEEDBACK_S, CAPTURE_STOP_S
from dragoman.protocols.kafka.client.client import KafkaClient
from dragoman.protocols.kafka.client.errors import ProducerFencedError
from dragoman.protocols.kafka.client.transactions import TransactionalProducer
from dragoman.protocols.kafka.client.values import TopicPartition
from dragoman.protocols.postgres.codec import Decoder, encode_status, format_lsn, parse_lsn
from dragoman.protocols.postgres.constants import SESSION_SETTINGS
from dragoman.types import Lsn

HEARTBEAT: Final = "heartbeat"
#: Errors of a heartbeat in a read-only database, and for a role without the privilege.
_NO_HEARTBEAT: Final = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege)
#: PostgreSQL truncates longer names.
_SESSION_NAME_MAX: Final = 63


class TakenOverError(CdcError):
    """A later process of the same capture has fenced this one."""


class CaptureContext(msgspec.Struct, frozen=True, kw_only=True):
    """State shared by all sessions of a capture."""

    definition: Definition
    incarnation: str
    spool: str
    client: KafkaClient
    producer: TransactionalProducer
    counts: Counts
    make_snapshots: Callable[[Definition, Encoder, Prepared], Snapshots]
    listener: Listener


class Session:
    """Call `open`, then `run` or `rewind`, then `close` in any case. Each may be called once."""

    def __init__(self, context: CaptureContext) -> None:
        self._context = context
        self._definition = context.definition
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._replication: ReplicationConnection | None = None
        self._where: TopicPartition | None = None
        self._stream: Stream | None = None
        self._spool: Spool | None = None
        self._writer: LogWriter | None = None
        self._encoder: Encoder | None = None
        self.snapshots: Snapshots | None = None
        self.prepared: Prepared | None = None
        #: The last committed position.
        self.position = Position(lsn=0)
        #: Whether the position has moved since the session was opened.
        self.has_moved = False
        self._reported_lsn = 0
        self._is_ending = False
        self._ended = asyncio.Event()
        self._failed: asyncio.Future[CdcError] = self._loop.create_future()
        self._sent_at = 0.0

    # ---- opening

    async def open(self) -> None:
        """Raises `SourceError`, other `CdcError`s, and the errors of the client."""
        context, definition = self._context, self._definition
        try:
            await context.producer.initialise()
        except ProducerFencedError:
            raise TakenOverError("another process has taken over the capture") from None
        self._where = await positions_partition(context.client, definition.name)
        found = await last_position(context.client, self._where, definition.name)
        if found is not None and found.incarnation != context.incarnation:
            found = None
        self._connection = await connect(
            definition.dsn, name=definition.name, settings=dict(SESSION_SETTINGS)
        )
        is_known = found is not None and bool(found.slot)
        system = None
        if found is not None and is_known:
            # Checked before anything is created, because this may be the wrong database.
            system = await self._identify()
            check_system(definition, found, system)
        self.prepared = await prepare(self._connection, definition, is_known=is_known)
        if self.prepared.slot is None:
            self.position = found or Position(lsn=0, incarnation=context.incarnation)
            return
        if self.prepared.slot.active_pid:
            # Initialising the producer has fenced the process that holds the slot.
            await take_over(self._connection, definition, self._session_name)
        system = system or await self._identify()
        confirmed = parse_lsn(self.prepared.slot.confirmed_lsn)
        if found is None:
            found = Position(
                lsn=confirmed,
                incarnation=context.incarnation,
                system=system.identifier,
                slot=definition.slot_name,
                timeline=system.timeline,
            )
            # Once the position names the slot, the loss of the slot is detected.
            await self._new_writer(lambda _position: None).write_alone(found)
        check_slot(definition, found, confirmed)
        self.position = msgspec.structs.replace(found, timeline=system.timeline)
        if found.timeline != system.timeline:
            assert self._replication is not None
            end = await self._replication.end_of_timeline(found.timeline, system.timeline)
            check_timeline(definition, found, end)

    @property
    def _session_name(self) -> str:
        """A name unique to this capture. A capture of the same name and slot may belong to another
        cluster.
        """
        return f"dragoman {self._context.incarnation} {self._definition.name}"[:_SESSION_NAME_MAX]

    async def _identify(self) -> System:
        self._replication = await open_replication(self._definition, self._session_name)
        return await self._replication.identify()

    async def rewind(self, lsn: int) -> None:
        """Move the position back. Raises `CdcError` if the slot does not retain the WAL."""
        assert self.prepared is not None
        assert self._where is not None
        if self.prepared.slot is None:
            raise CdcError("a capture without tables has no position and cannot be rewound")
        confirmed = parse_lsn(self.prepared.slot.confirmed_lsn)
        if not confirmed <= lsn <= self.position.lsn:
            raise CdcError(
                f"{format_lsn(lsn)} is out of reach: expected {format_lsn(confirmed)} to"
                f" {format_lsn(self.position.lsn)}, which the database retains (see"
                " `keep_wal_bytes` of the capture)"
            )
        position = msgspec.structs.replace(self.position, lsn=lsn)
        writer = self._new_writer(lambda _position: None)
        await writer.write_alone(position)
        self.position = position

    async def close(self) -> None:
        if self._spool is not None:
            self._spool.remove()
        if self._replication is not None:
            await self._replication.close()
        if self._connection is not None:
            await self._connection.close()

    def _new_writer(self, confirm: Callable[[Position], None]) -> LogWriter:
        assert self._where is not None
        return LogWriter(
            self._context.producer,
            self._definition.name,
            self._where,
            self.position,
            confirm=confirm,
            now_ms=lambda: time.time_ns() // 1_000_000,
        )

    # ---- running

    async def run(self, begun: Callable[[], None]) -> None:
        """Returns after `end`. `begun` is called as soon as changes may arrive."""
        assert self._connection is not None
        self._writer = self._new_writer(self._confirmed)
        definition = self._definition
        encoder = Encoder(
            definition, database=self._connection.info.dbname, system=self.position.system
        )
        self._encoder = encoder
        catalog = SourceCatalog(
            self._context.client, self._connection, definition, encoder, self._writer.batch_bytes
        )
        # Created in advance, because a consumer that requests a topic first would create it with
        # defaults.
        captured = () if self.prepared is None else self.prepared.tables
        for topic in encoder.topics_to_be((each.schema, each.name) for each in captured):
            await catalog.need(topic)
        jobs: list[Callable[[], Awaitable[None]]] = [self._raise_failure]
        if definition.channels:
            jobs.append(lambda: self._listen(encoder, catalog))
        if self._replication is not None:
            await self._start(self._replication, encoder, catalog)
            jobs += [self._feedback, self._heartbeat]
            assert self.snapshots is not None
            jobs.append(self.snapshots.run)
        begun()
        tasks = [asyncio.create_task(self._run_job(each)) for each in (self._writer.run, *jobs)]
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, *tasks), return_when=asyncio.FIRST_COMPLETED)
            _raise_first(reading, *tasks)
            await self._finish(tasks)
        finally:
            for task in (reading, *tasks):
                task.cancel()
            await asyncio.gather(reading, *tasks, return_exceptions=True)

    async def _run_job(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a task of the session. The session continues when the task returns because it has
        nothing to do.
        """
        await job()
        await self._loop.create_future()

    async def _raise_failure(self) -> None:
        raise await self._failed

    async def _listen(self, encoder: Encoder, catalog: SourceCatalog) -> None:
        writer = self._writer
        assert writer is not None

        async def deliver(channel: str, payload: str, now_us: int) -> None:
            while True:
                try:
                    writer.insert(encoder.notification(channel, payload, now_us))
                    break
                except TopicNeeded as topic:
                    await catalog.need(topic)
            self._context.counts.rows += 1
            await writer.room()

        await self._context.listener.run(deliver)

    async def _start(
        self, replication: ReplicationConnection, encoder: Encoder, catalog: SourceCatalog
    ) -> None:
        context, definition = self._context, self._definition
        assert self._writer is not None
        assert self.prepared is not None
        await catalog.learn_types()
        self.snapshots = context.make_snapshots(definition, encoder, self.prepared)
        self.snapshots.replaced(self.position.snapshot)
        self._spool = Spool(context.spool)
        self._stream = Stream(
            decoder=Decoder(replication.version),
            encoder=encoder,
            snapshots=self.snapshots,
            spool=self._spool,
            writer=self._writer,
            catalog=catalog,
            position=self.position,
            heartbeat_prefix=f"dragoman.{definition.name}.{HEARTBEAT}",
            marks=definition.transactions,
            counts=context.counts,
        )
        await replication.start(self.position.lsn)

    async def _read(self) -> None:
        replication, stream = self._replication, self._stream
        if replication is None or stream is None:
            await self._ended.wait()
            return
        while not self._is_ending or stream.is_inside:
            if await stream.take(await replication.receive()):
                self._send_status()

    def end(self) -> None:
        """Make `run` return after the transaction in progress."""
        self._is_ending = True
        self._ended.set()
        if self._replication is not None:
            self._replication.interrupt()

    def fail(self, error: CdcError) -> None:
        """End the session at once with this error."""
        if not self._failed.done():
            self._failed.set_result(error)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """After reading has ended, write and confirm what was read."""
        assert self._writer is not None
        idle = asyncio.create_task(self._writer.idle())
        try:
            await asyncio.wait(
                (idle, *tasks), timeout=CAPTURE_STOP_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            idle.cancel()
        _raise_first(*tasks)
        if self._replication is not None:
            self._send_status()

    # ---- confirming

    def _confirmed(self, position: Position) -> None:
        self.has_moved = True
        self.position = position

    async def _feedback(self) -> None:
        while True:
            await asyncio.sleep(CAPTURE_CONFIRM_S)
            is_due = self._loop.time() - self._sent_at >= CAPTURE_FEEDBACK_S
            if is_due or self._to_report() != self._reported_lsn:
                self._send_status()

    def _to_report(self) -> int:
        kept = self.position.lsn - self._definition.keep_wal_bytes
        return max(kept, self._reported_lsn, 0)

    def _send_status(self) -> None:
        assert self._replication is not None
        self._reported_lsn = self._to_report()
        self._sent_at = self._loop.time()
        self._replication.send(encode_status(Lsn(self._reported_lsn), time.time_ns() // 1000))

    async def _heartbeat(self) -> None:
        """Advance the position while the captured tables do not change."""
        pause_s = self._definition.heartbeat_s
        assert self._connection is not None
        prefix = f"dragoman.{self._definition.name}.{HEARTBEAT}"
        while pause_s > 0:
            await asyncio.sleep(pause_s)
            try:
                await self._connection.execute(
                    b"SELECT pg_logical_emit_message(true, %s, '')", (prefix,)
                )
            except _NO_HEARTBEAT:
                # The database's keepalives advance the position as well.
                return
            except psycopg.Error as error:
                raise refusal(error, self._definition.dsn) from None

    # ---- for reports

    @property
    def warnings(self) -> tuple[str, ...]:
        known = () if self.prepared is None else self.prepared.warnings
        snapshots = () if self.snapshots is None else self.snapshots.warnings
        tables = () if self._encoder is None else self._encoder.warnings
        return tuple(dict.fromkeys((*known, *tables, *snapshots, *self._context.listener.warnings)))

    @property
    def lag_bytes(self) -> int:
        if self._stream is None or not self._stream.wal_end:
            return -1
        return max(0, self._stream.wal_end - self.position.lsn)

    @property
    def lag_s(self) -> float:
        if self._stream is None:
            return -1.0
        if self._writer is not None and self._writer.is_idle and not self._stream.is_inside:
            return 0.0
        return max(0.0, time.time() - self.position.time_us / 1e6)


def _raise_first(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
