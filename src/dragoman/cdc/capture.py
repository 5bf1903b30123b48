"""The lifecycle of a capture: consecutive sessions, and reports to its node.

    starting ─► snapshotting / streaming ─► waiting ─► starting …     an error that may pass
        │                                └► failed  ─► starting …     an error for an operator
        └──────────► paused ─────► starting                           on command

A failed capture is retried, too, at long intervals, because an operator may fix the cause in the
database. No changes are lost: the slot retains the WAL that was not captured.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

import msgspec
import psycopg

from dragoman.captures.control import (
    Command,
    Done,
    Pause,
    Report,
    Resume,
    Rewind,
    Snapshot,
    Start,
    State,
    Status,
    Stop,
)
from dragoman.captures.definition import Definition
from dragoman.cdc.events import Encoder
from dragoman.cdc.session import CaptureContext, Session, TakenOverError
from dragoman.cdc.source.connection import SourceError, refusal
from dragoman.cdc.source.notifications import Listener
from dragoman.cdc.source.publication import Prepared
from dragoman.cdc.source.wal_guard import WalGuard
from dragoman.cdc.spool import SpoolFullError
from dragoman.cdc.stream import Counts, Snapshots
from dragoman.client_core.errors import ClientError
from dragoman.client_core.tls import TlsSettings
from dragoman.errors import CdcError, DecodeError, DragomanError
from dragoman.limits import CAPTURE_REPORT_S, CAPTURE_RETRY_MAX_S, CAPTURE_RETRY_MIN_S
from dragoman.protocols.kafka.client.client import KafkaClient
from dragoman.protocols.kafka.client.errors import BatchTooLargeError
from dragoman.protocols.kafka.client.login import SaslLogin
from dragoman.protocols.kafka.client.transactions import TransactionOptions
from dragoman.protocols.kafka.client.values import ClientSettings
from dragoman.protocols.postgres.codec import format_lsn, parse_lsn

_log = logging.getLogger(__name__)
#: The longest timeout that brokers allow by default, because a database transaction may be large.
_TRANSACTION_TIMEOUT_MS = 900_000
#: Maximum number of tables, and of warnings, in a report. The node kills a process that sends too
#: long a line.
_SHOWN_MAX = 1000
_CLIENT = ClientSettings(client_id="dragoman-cdc", operation_timeout_s=20.0)


def _settings(start: Start) -> ClientSettings:
    """How to connect to the nodes."""
    login = start.login
    return msgspec.structs.replace(
        _CLIENT,
        login=login and SaslLogin(name=login.name, password=login.password),
        tls=TlsSettings(ca=start.authorities) if start.is_encrypted else None,
    )


class Capture:
    """`run` captures until it is stopped; `take` receives commands."""

    def __init__(
        self,
        start: Start,
        report: Callable[[Report], None],
        make_snapshots: Callable[[Definition, Encoder, Prepared], Snapshots],
    ) -> None:
        self._start = start
        self._definition = start.definition
        self._report = report
        self._make_snapshots = make_snapshots
        self._counts = Counts()
        self._session: Session | None = None
        self._is_paused = start.is_paused
        self._is_stopping = False
        self._rewinds: list[Rewind] = []
        self._snapshots: list[Snapshot] = []
        #: Tables of acknowledged snapshot commands that no session has recorded yet.
        self._promised: tuple[str, ...] = ()
        #: Set by every command, to end a pause.
        self._woken = asyncio.Event()
        self._state: State = "starting"
        self._problem = ""
        self._failures = 0
        self._rate = _Rate()
        self._guard = WalGuard(self._definition, self._guarded)

    # ---- commands

    def take(self, command: Command) -> None:
        match command:
            case Pause():
                self._is_paused = True
            case Resume():
                self._is_paused = False
            case Stop():
                self._is_stopping = True
            case Rewind():
                self._rewinds.append(command)
            case Snapshot():
                self._snapshots.append(command)
                if self._session is not None and self._state in ("streaming", "snapshotting"):
                    self._request_snapshots(self._session)
                    return
            case Start():
                _log.error("ignored a second start command")
                return
        self._woken.set()
        if self._session is not None and not isinstance(command, Resume | Snapshot):
            self._session.end()

    def _request_snapshots(self, session: Session) -> None:
        commands, self._snapshots = self._snapshots, []
        for each in commands:
            try:
                _requested(session, each.tables)
            except DragomanError as error:
                self._report(Done(id=each.id, problem=str(error)))
            else:
                self._report(Done(id=each.id))

    # ---- life

    async def run(self) -> None:
        """Returns after a `Stop`, or when another process has taken over."""
        self._report(self._status())
        background = [asyncio.create_task(self._report_regularly())]
        if self._definition.tables or self._definition.outbox:
            background.append(asyncio.create_task(self._guard.run()))
        # The client connects with its first request.
        client = KafkaClient(self._start.bootstrap, _settings(self._start))
        try:
            await self._live(client)
        finally:
            for task in background:
                task.cancel()
            await client.close()
            self._become("stopped", self._problem)

    async def _live(self, client: KafkaClient) -> None:
        context = CaptureContext(
            definition=self._definition,
            incarnation=self._start.incarnation,
            spool=self._start.spool,
            client=client,
            producer=client.transactional_producer(
                TransactionOptions(
                    transactional_id=self._definition.transactional_id,
                    transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                )
            ),
            counts=self._counts,
            make_snapshots=self._make_snapshots,
            listener=Listener(self._definition),
        )
        while not self._is_stopping:
            self._woken.clear()
            if self._is_paused and not self._rewinds:
                self._become("paused")
                await self._woken.wait()
                continue
            try:
                await self._one_session(context)
            except TakenOverError as error:
                self._problem = str(error)
                return
            except DragomanError as error:
                await self._recover(error)

    async def _one_session(self, context: CaptureContext) -> None:
        if not self._problem:
            self._become("starting")
        session = Session(context)
        self._session = session
        try:
            await session.open()
            await self._rewind(session)
            if self._is_paused or self._is_stopping:
                return
            await session.run(lambda: self._begun(session))
        except psycopg.Error as error:
            raise refusal(error, self._definition.dsn) from None
        except OSError as error:
            raise CdcError(f"files of transactions in progress: {error}") from error
        finally:
            self._session = None
            if session.snapshots is not None:
                self._promised = session.snapshots.pending or self._promised
            if session.has_moved:
                self._failures = 0
            await session.close()

    def _begun(self, session: Session) -> None:
        self._become("streaming")
        promised, self._promised = self._promised, ()
        if promised and session.snapshots is not None:
            with suppress(CdcError):  # raised for tables that are no longer captured
                session.snapshots.request(promised)
        self._request_snapshots(session)

    def _guarded(self, error: SourceError) -> None:
        """Called when the database retains too much WAL."""
        if self._session is not None:
            self._session.fail(error)

    async def _rewind(self, session: Session) -> None:
        commands, self._rewinds = self._rewinds, []
        for each in commands:
            try:
                await session.rewind(parse_lsn(each.lsn))
            except DragomanError as error:
                self._report(Done(id=each.id, problem=str(error)))
                if not isinstance(error, CdcError | DecodeError):
                    raise
            else:
                self._report(Done(id=each.id))

    async def _recover(self, error: DragomanError) -> None:
        """Report the error, and wait until the next attempt or a command."""
        self._failures += 1
        pause_s = CAPTURE_RETRY_MAX_S
        if _is_transient(error):
            self._become("waiting", _explained(error))
            grown = CAPTURE_RETRY_MIN_S * 2.0 ** min(self._failures - 1, 20)
            pause_s = min(CAPTURE_RETRY_MAX_S, grown) * random.uniform(0.8, 1.0)
        else:
            self._become("failed", _explained(error))
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        else:
            self._failures = 0

    # ---- reports

    def _become(self, state: State, problem: str = "") -> None:
        if (state, problem) != (self._state, self._problem):
            if problem:
                _log.warning("capture %s: %s", self._definition.name, problem)
            self._state, self._problem = state, problem
            self._report(self._status())

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(CAPTURE_REPORT_S)
            self._report(self._status())

    def _status(self) -> Status:
        session, counts = self._session, self._counts
        rate = self._rate.at(asyncio.get_running_loop().time(), counts.rows)
        if session is None:
            return Status(
                state=self._state,
                problem=self._problem,
                retained_bytes=self._guard.retained_bytes,
                rows=counts.rows,
                transactions=counts.transactions,
                bytes=counts.bytes,
                warnings=self._guard.warnings,
            )
        tables = () if session.snapshots is None else session.snapshots.tables
        is_snapshotting = any(not each.is_done for each in tables)
        state = self._state
        if state == "streaming" and is_snapshotting:
            state = "snapshotting"
        return Status(
            state=state,
            problem=self._problem,
            lsn=format_lsn(session.position.lsn) if session.position.lsn else "",
            lag_bytes=session.lag_bytes,
            lag_s=session.lag_s,
            retained_bytes=self._guard.retained_bytes,
            rows=counts.rows,
            transactions=counts.transactions,
            bytes=counts.bytes,
            rows_per_s=rate,
            # Tables whose snapshot is in progress come first.
            tables=tuple(sorted(tables, key=lambda each: each.is_done)[:_SHOWN_MAX]),
            warnings=(*self._guard.warnings, *session.warnings)[:_SHOWN_MAX],
        )


class _Rate:
    """Rows per second, measured over at least one report interval."""

    def __init__(self) -> None:
        self._since = 0.0
        self._rows = 0
        self._rate = 0.0

    def at(self, now: float, rows: int) -> float:
        if not self._since:
            self._since, self._rows = now, rows
        elif now - self._since >= CAPTURE_REPORT_S:
            self._rate = (rows - self._rows) / (now - self._since)
            self._since, self._rows = now, rows
        return round(self._rate, 1)


def _requested(session: Session, tables: tuple[str, ...]) -> None:
    if session.snapshots is None:
        raise CdcError("a capture without tables cannot take a snapshot")
    session.snapshots.request(tables)


def _is_transient(error: DragomanError) -> bool:
    """Whether a retry may succeed without an operator."""
    if isinstance(error, SourceError):
        return error.is_transient
    if isinstance(error, SpoolFullError | BatchTooLargeError):
        return True
    # The broker may accept the records later, for example after a change of a topic's
    # configuration. Each attempt first settles the transaction of the last one.
    return isinstance(error, ClientError)


def _explained(error: DragomanError) -> str:
    if isinstance(error, BatchTooLargeError):
        return (
            f"a row is larger than its topic allows: raise max.message.bytes of the topic ({error})"
        )
    if isinstance(error, ClientError):
        return f"the broker: {error}"
    return str(error)
