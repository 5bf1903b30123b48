"""The coordinator of writers, which publishes staged batches: a decision, then roll forward.

    publish ── check ──► [persist: decided] ──► [copy] ──► [persist: published] ──► reply
                           ^ from here on the batch will be published, whatever happens

Everything before the decision can be lost without a trace: new attempts then write the batch again.
Everything after it can be repeated: copying skips what was copied before. So after a restart, or on
a new leader, it is enough to roll forward every writer whose last record is a decision.

A writer does one thing at a time. Publications that arrive meanwhile are queued and then examined
again: most of them repeat the one in progress, and find it done.

This module knows no log and no wire. Records are written by `persist`; `check` examines the staged
pieces before the decision, `decide_targets` returns each partition's next sequence, `copy` appends
the pieces after it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from dragoman.broker.errors import (
    InvalidPublication,
    Overloaded,
    PublishedRecordsLost,
    ShuttingDown,
    WriterOfAnotherQuery,
)
from dragoman.broker.internal_topic import KeyValue
from dragoman.broker.staged_writes import records
from dragoman.broker.staged_writes.publication import (
    Destination,
    Piece,
    Publication,
    Target,
    Writer,
    published,
)
from dragoman.errors import BrokerError, DragomanError
from dragoman.limits import (
    PUBLICATION_PIECES_MAX,
    PUBLICATIONS_WAITING_MAX,
    SINGLE_WRITER_IDLE_MS_MAX,
    WRITER_EXPIRIES_PER_SCAN,
    WRITER_ID_BYTES_MAX,
    WRITER_IDLE_MS_MAX,
    WRITERS_MAX,
)
from dragoman.outcome import Outcome, attempt, ignore, start
from dragoman.world import Clock

log = logging.getLogger("dragoman.staged_writes")
T = TypeVar("T")


class Ports(Protocol):
    """What a publisher needs from the broker."""

    def require(self, writer_id: str) -> None:
        """Raises unless this node coordinates the writer and knows of its earlier batches."""
        ...

    async def persist(self, writer_id: str, record: KeyValue) -> None: ...

    async def new_producer_id(self) -> int: ...

    async def check(self, destinations: Sequence[Destination]) -> None:
        """Raises unless the pieces exist, have the stated contents, and fit a topic."""
        ...

    async def decide_targets(
        self, destinations: Sequence[Destination], producer_id: int
    ) -> tuple[Target, ...]:
        """The target of each piece, with its sequence."""
        ...

    async def copy(self, writer: Writer) -> None:
        """`PublishedRecordsLost`: a partition needs other sequences than the decided ones."""
        ...

    def hold(self, writer_id: str, pieces: Sequence[Piece]) -> None:
        """Retain the pieces until `let_go`."""
        ...

    def let_go(self, writer_id: str, unneeded: Sequence[Piece]) -> None: ...


class _Moved(Exception):  # noqa: N818 # ends the work of a writer that this node has no longer
    """Another node has the writer, so the work on it here ends."""


class _Entry:
    __slots__ = ("is_busy", "is_gone", "reply", "retry", "waiting", "writer")

    def __init__(self, writer: Writer | None = None) -> None:
        #: The stored state; None until the first decision.
        self.writer = writer
        self.is_busy = False
        #: Whether another node has the writer, so that later results are ignored.
        self.is_gone = False
        #: The reply to the publication in progress.
        self.reply: Outcome[bool] | None = None
        #: Settled when a decided batch that met an error is to be retried.
        self.retry: Outcome[None] | None = None
        self.waiting: deque[tuple[Publication, Outcome[bool]]] = deque()


class Publisher:
    """Each partition of the internal topic that this node leads is loaded by `load`, record by
    record, and then `resume`.
    """

    def __init__(self, clock: Clock, ports: Ports, partition_of: Callable[[str], int]) -> None:
        """`partition_of` maps a writer to a partition of the internal topic."""
        self._clock = clock
        self._ports = ports
        self._partition_of = partition_of
        self._entries: dict[str, _Entry] = {}
        #: By writer id, decided batches that are not published yet, and those of them with an
        #: error.
        self._decided: dict[str, Writer] = {}
        self._stalled: dict[str, _Entry] = {}
        self._is_closed = False

    # ---- requests

    async def publish(self, publication: Publication) -> bool:
        """Publish a batch unless it was published before, and wait until it is readable. Returns
        whether it had been published before.
        """
        self._check_request(publication)
        writer_id = publication.writer_id
        entry = self._entries.setdefault(writer_id, _Entry())
        if entry.is_busy and len(entry.waiting) >= PUBLICATIONS_WAITING_MAX:
            raise Overloaded(f"writer {writer_id!r}: too many publications wait")
        reply: Outcome[bool] = Outcome()
        entry.waiting.append((publication, reply))
        if not entry.is_busy:
            self._occupy(entry, self._serve(writer_id, entry))
        return await reply

    def _check_request(self, publication: Publication) -> None:
        if self._is_closed:
            raise ShuttingDown("the node is stopping")
        self._ports.require(publication.writer_id)
        for text in (publication.writer_id, publication.query_id):
            if not 0 < len(text.encode()) <= WRITER_ID_BYTES_MAX:
                raise InvalidPublication(f"ids have 1 to {WRITER_ID_BYTES_MAX} bytes")
        if publication.batch_id < 0:
            raise InvalidPublication(f"batch id {publication.batch_id} is below 0")
        count = len(publication.pieces())
        if count > PUBLICATION_PIECES_MAX:
            raise InvalidPublication(f"{count} pieces; at most {PUBLICATION_PIECES_MAX}")
        is_known = publication.writer_id in self._entries
        if not is_known and len(self._entries) >= WRITERS_MAX:
            raise Overloaded(f"{WRITERS_MAX} writers are known already")

    # ---- the work of a writer

    def _occupy(self, entry: _Entry, work: Coroutine[object, None, None]) -> None:
        """Run a writer's work, which ends early if the writer moves away."""

        async def run() -> None:
            with suppress(_Moved):
                await work

        entry.is_busy = True
        start(run()).then(ignore)

    async def _step(self, entry: _Entry, step: Coroutine[object, None, T]) -> T:
        """The result of a step. Raises `_Moved` if the writer has moved."""
        result = await attempt(step)
        if entry.is_gone:
            raise _Moved
        if isinstance(result, DragomanError):
            raise result
        return result

    async def _serve(self, writer_id: str, entry: _Entry) -> None:
        """Publish the queued batches one by one."""
        while entry.waiting:
            publication, entry.reply = entry.waiting.popleft()
            self._reply(entry, await attempt(self._publish(entry, publication)))
        entry.is_busy = False
        if entry.writer is None and not entry.is_gone:
            self._entries.pop(writer_id, None)

    def _reply(self, entry: _Entry, result: bool | DragomanError) -> None:
        reply, entry.reply = entry.reply, None
        if reply is not None:
            reply.settle(result)

    async def _publish(self, entry: _Entry, publication: Publication) -> bool:
        writer, writer_id = entry.writer, publication.writer_id
        if writer is not None and writer.query_id != publication.query_id:
            raise WriterOfAnotherQuery(
                f"writer {writer_id!r} belongs to query {writer.query_id}, not to "
                f"{publication.query_id}: a new checkpoint needs a new writer id"
            )
        if writer is not None and publication.batch_id <= writer.batch_id:
            self._ports.let_go(writer_id, publication.pieces())
            return True
        self._ports.hold(writer_id, publication.pieces())
        try:
            decided = await self._decide(entry, publication)
        except DragomanError:
            # Nothing was changed.
            self._ports.let_go(writer_id, ())
            raise
        await self._roll_forward(entry, decided)
        return False

    # ---- the decision

    async def _decide(self, entry: _Entry, publication: Publication) -> Writer:
        ports, destinations = self._ports, publication.destinations
        await self._step(entry, ports.check(destinations))
        if entry.writer is not None:
            producer_id = entry.writer.producer_id
        else:
            producer_id = await self._step(entry, ports.new_producer_id())
        targets = await self._step(entry, ports.decide_targets(destinations, producer_id))
        writer = Writer(
            writer_id=publication.writer_id,
            query_id=publication.query_id,
            producer_id=producer_id,
            batch_id=publication.batch_id,
            targets=targets,
            is_single=publication.is_single,
            updated_ms=self._clock.wall_ms(),
        )
        return await self._store(entry, writer)

    async def _store(self, entry: _Entry, writer: Writer) -> Writer:
        record = records.to_record(writer)
        await self._step(entry, self._ports.persist(writer.writer_id, record))
        entry.writer = writer
        return writer

    # ---- after it

    async def _roll_forward(self, entry: _Entry, writer: Writer) -> None:
        """Publish a decided batch, retrying without limit."""
        writer_id = writer.writer_id
        while True:
            self._decided[writer_id] = writer
            try:
                try:
                    await self._step(entry, self._ports.copy(writer))
                except PublishedRecordsLost as lost:
                    log.error("writer %s: published records were lost: %s", writer_id, lost)
                    writer = await self._store(entry, _resequenced(writer, lost))
                    continue
                await self._store(entry, published(writer, self._clock.wall_ms()))
                break
            except DragomanError as error:
                await self._stall(entry, writer, error)
        del self._decided[writer_id]
        self._ports.let_go(writer_id, writer.pieces())

    async def _stall(self, entry: _Entry, writer: Writer, error: DragomanError) -> None:
        """Wait for `retry_stalled`."""
        log.warning(
            "writer %s: batch %d is decided and not yet published: %s; tried again",
            writer.writer_id,
            writer.batch_id,
            error,
        )
        self._stalled[writer.writer_id] = entry
        entry.retry = Outcome()
        await entry.retry
        if entry.is_gone:
            raise _Moved

    # ---- periodic work

    def retry_stalled(self) -> int:
        """Retry decided batches that met an error; returns how many."""
        stalled, self._stalled = self._stalled, {}
        for entry in stalled.values():
            self._retry(entry)
        return len(stalled)

    def _retry(self, entry: _Entry) -> None:
        retry, entry.retry = entry.retry, None
        if retry is not None:
            retry.succeed(None)

    def expire_idle(self) -> int:
        """Forget writers that were idle for too long; returns how many."""
        now_ms = self._clock.wall_ms()
        idle = [
            entry
            for entry in self._entries.values()
            if not entry.is_busy and entry.writer is not None and _is_idle(entry.writer, now_ms)
        ][:WRITER_EXPIRIES_PER_SCAN]
        for entry in idle:
            assert entry.writer is not None
            self._occupy(entry, self._forget(entry.writer.writer_id, entry))
        return len(idle)

    async def _forget(self, writer_id: str, entry: _Entry) -> None:
        # After an error the writer stays idle, and is found again.
        with suppress(DragomanError):
            removal = (records.encode_key(writer_id), None)
            await self._step(entry, self._ports.persist(writer_id, removal))
            entry.writer = None
        await self._serve(writer_id, entry)

    # ---- life

    def load(self, key: bytes, value: bytes | None) -> None:
        """Apply one record of the internal topic, in log order. Raises like `records`."""
        writer_id = records.decode_key(key)
        if value is None:
            self._entries.pop(writer_id, None)
        else:
            self._entries[writer_id] = _Entry(records.decode_value(writer_id, value))

    def resume(self, partition: int) -> int:
        """A partition is loaded: roll forward every batch that was decided; returns how many."""
        decided = [
            (entry, entry.writer)
            for entry in self._of_partition(partition).values()
            if entry.writer is not None and entry.writer.is_decided
        ]
        for entry, writer in decided:
            entry.is_busy = True
            self._ports.hold(writer.writer_id, writer.pieces())
        for entry, writer in decided:
            self._occupy(entry, self._finish(entry, writer))
        return len(decided)

    async def _finish(self, entry: _Entry, writer: Writer) -> None:
        await self._roll_forward(entry, writer)
        await self._serve(writer.writer_id, entry)

    def _of_partition(self, partition: int) -> dict[str, _Entry]:
        partition_of = self._partition_of
        return {
            name: each for name, each in self._entries.items() if partition_of(name) == partition
        }

    def is_publishing_to(self, partition_id: int) -> bool:
        """Whether a decided batch is in flight to a partition, which must then keep its producer
        state to recognise it.
        """
        return any(
            target.partition_id == partition_id
            for writer in self._decided.values()
            for target in writer.targets
        )

    def unload(self, partition: int, error: BrokerError) -> None:
        """Another node has a partition: refuse the queued publications with the error. That node
        completes decided batches.
        """
        entries = self._of_partition(partition)
        replies: list[Outcome[bool]] = []
        for writer_id, entry in entries.items():
            entry.is_gone = True
            for known in (self._entries, self._decided, self._stalled):
                known.pop(writer_id, None)
            self._ports.let_go(writer_id, ())
            replies += [reply for _, reply in entry.waiting]
            if entry.reply is not None:
                replies.append(entry.reply)
            entry.reply = None
            entry.waiting.clear()
        for reply in replies:
            reply.fail(error)
        for entry in entries.values():
            self._retry(entry)

    def close(self) -> None:
        """Stop for good: refuse the queued publications. The next start continues."""
        self._is_closed = True
        for partition in set(map(self._partition_of, self._entries)):
            self.unload(partition, ShuttingDown("the node is stopping"))


def _resequenced(writer: Writer, lost: PublishedRecordsLost) -> Writer:
    """The writer with the same batch, numbered so that the partition accepts it."""
    targets = [
        msgspec.structs.replace(each, first_sequence=lost.expected)
        if each.partition_id == lost.partition_id
        else each
        for each in writer.targets
    ]
    return msgspec.structs.replace(writer, targets=tuple(targets))


def _is_idle(writer: Writer, now_ms: int) -> bool:
    limit_ms = SINGLE_WRITER_IDLE_MS_MAX if writer.is_single else WRITER_IDLE_MS_MAX
    return now_ms - writer.updated_ms > limit_ms
