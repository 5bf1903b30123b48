"""The machine that publishes staged batches: a decision, then roll forward.

    publish ── check ──► [persist: decided] ──► [copy] ──► [persist: published] ──► reply
                           ^ from here on the batch will be published, whatever happens

Everything before the decision can be lost without a trace: the batch is then written again by new
attempts. Everything after it can be repeated: copying leaves out what is there already. So after a
restart, or on the node that takes over, it is enough to go on with every writer whose last record
is a decision.

A writer does one thing at a time. Publications that come meanwhile wait and are then looked at
afresh: most often they repeat the one under way, and find it done.

It knows no log and no wire. Records leave through `persist`; `check` looks at the staged pieces
before the decision, `decide_targets` gives each partition's next sequence, `copy` moves them after
it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

import msgspec

from dragoman.broker.errors import (
    InvalidPublication,
    Overloaded,
    PublishedRecordsLost,
    ShuttingDown,
    WriterOfAnotherQuery,
)
from dragoman.broker.internal import KeyValue
from dragoman.broker.publications import Destination, Piece, Publication, Target
from dragoman.broker.publishing import records
from dragoman.broker.publishing.state import Writer, published
from dragoman.broker.replica import Acknowledge
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
from dragoman.world import Clock

log = logging.getLogger("dragoman.publishing")

#: Takes whether the batch had been published before, or why it was not.
ReplyPublished: TypeAlias = Callable[[bool | DragomanError], None]


class Ports(Protocol):
    """What a publisher needs of the broker. Each call answers exactly once."""

    def require(self, writer_id: str) -> None:
        """Raises unless this node decides about the writer's batches and knows of the earlier."""
        ...

    def persist(self, writer_id: str, record: KeyValue, done: Acknowledge) -> None: ...

    def new_producer_id(self, done: Callable[[int | DragomanError], None]) -> None: ...

    def check(self, destinations: Sequence[Destination], done: Acknowledge) -> None:
        """Whether the pieces are there, are what they are said to be, and fit their topics."""
        ...

    def decide_targets(
        self,
        destinations: Sequence[Destination],
        producer_id: int,
        done: Callable[[tuple[Target, ...] | DragomanError], None],
    ) -> None:
        """Where the pieces go, under which sequences."""
        ...

    def copy(self, writer: Writer, done: Acknowledge) -> None:
        """`PublishedRecordsLost`: a partition needs other sequences than those decided."""
        ...

    def hold(self, writer_id: str, pieces: Sequence[Piece]) -> None:
        """Keep the pieces, until `let_go`."""
        ...

    def let_go(self, writer_id: str, unneeded: Sequence[Piece]) -> None: ...


class _Entry:
    __slots__ = ("is_busy", "is_gone", "reply", "waiting", "writer")

    def __init__(self, writer: Writer | None = None) -> None:
        #: As it is stored; None until the first decision.
        self.writer = writer
        self.is_busy = False
        #: Another node has the writer now: what the ports still report is to be ignored.
        self.is_gone = False
        #: Takes the outcome of what is under way.
        self.reply: ReplyPublished | None = None
        self.waiting: deque[tuple[Publication, ReplyPublished]] = deque()


class Publisher:
    """Whoever gets a partition of the internal topic hands its records to `load`, then `resume`."""

    def __init__(self, clock: Clock, ports: Ports, partition_of: Callable[[str], int]) -> None:
        """`partition_of` says which partition of the internal topic keeps a writer."""
        self._clock = clock
        self._ports = ports
        self._partition_of = partition_of
        self._entries: dict[str, _Entry] = {}
        #: Decided and not yet published, by writer id; and those of them that met an error.
        self._decided: dict[str, Writer] = {}
        self._stalled: dict[str, _Entry] = {}
        self._is_closed = False

    # ---- requests

    def publish(self, publication: Publication, reply: ReplyPublished) -> None:
        """Publish a batch unless that was done before. The reply comes when it is readable."""
        try:
            self._check_request(publication)
        except BrokerError as error:
            reply(error)
            return
        entry = self._entries.setdefault(publication.writer_id, _Entry())
        if not entry.is_busy:
            self._begin(entry, publication, reply)
        elif len(entry.waiting) < PUBLICATIONS_WAITING_MAX:
            entry.waiting.append((publication, reply))
        else:
            reply(Overloaded(f"writer {publication.writer_id!r}: too many publications wait"))

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

    def _begin(self, entry: _Entry, publication: Publication, reply: ReplyPublished) -> None:
        writer = entry.writer
        if writer is not None and writer.query_id != publication.query_id:
            reply(
                WriterOfAnotherQuery(
                    f"writer {writer.writer_id!r} belongs to query {writer.query_id}, not to "
                    f"{publication.query_id}: a new checkpoint needs a new writer id"
                )
            )
            return
        pieces = publication.pieces()
        if writer is not None and publication.batch_id <= writer.batch_id:
            self._ports.let_go(publication.writer_id, pieces)
            reply(True)
            return
        entry.is_busy = True
        entry.reply = reply
        self._ports.hold(publication.writer_id, pieces)
        checked = partial(self._checked, entry, publication)
        self._ports.check(publication.destinations, checked)

    # ---- the decision

    def _checked(
        self, entry: _Entry, publication: Publication, error: DragomanError | None
    ) -> None:
        if entry.is_gone:
            return
        if error is not None:
            self._refuse(entry, publication.writer_id, error)
        elif entry.writer is not None:
            self._decide(entry, publication, entry.writer.producer_id)
        else:
            self._ports.new_producer_id(partial(self._decide, entry, publication))

    def _decide(
        self, entry: _Entry, publication: Publication, producer_id: int | DragomanError
    ) -> None:
        if entry.is_gone:
            return
        if isinstance(producer_id, DragomanError):
            self._refuse(entry, publication.writer_id, producer_id)
            return
        told = partial(self._persist_decision, entry, publication, producer_id)
        self._ports.decide_targets(publication.destinations, producer_id, told)

    def _persist_decision(
        self,
        entry: _Entry,
        publication: Publication,
        producer_id: int,
        targets: tuple[Target, ...] | DragomanError,
    ) -> None:
        if entry.is_gone:
            return
        writer_id = publication.writer_id
        if isinstance(targets, DragomanError):
            self._refuse(entry, writer_id, targets)
            return
        writer = Writer(
            writer_id=writer_id,
            query_id=publication.query_id,
            producer_id=producer_id,
            batch_id=publication.batch_id,
            targets=targets,
            is_single=publication.is_single,
            updated_ms=self._clock.wall_ms(),
        )

        def decided(error: DragomanError | None) -> None:
            if entry.is_gone:
                return
            if error is not None:
                self._refuse(entry, writer_id, error)
                return
            entry.writer = writer
            self._roll_forward(entry, writer)

        self._ports.persist(writer_id, records.to_record(writer), decided)

    def _refuse(self, entry: _Entry, writer_id: str, error: DragomanError) -> None:
        """Before the decision: nothing has happened."""
        self._ports.let_go(writer_id, ())
        self._finish(entry, writer_id, error)

    # ---- after it

    def _roll_forward(self, entry: _Entry, writer: Writer) -> None:
        if entry.is_gone:
            return
        self._decided[writer.writer_id] = writer
        self._ports.copy(writer, partial(self._copied, entry, writer))

    def _resequence(self, entry: _Entry, writer: Writer, lost: PublishedRecordsLost) -> None:
        """The same batch, under sequences that the partition will take."""
        log.error("writer %s: published records were lost: %s", writer.writer_id, lost)
        targets = [
            msgspec.structs.replace(each, first_sequence=lost.expected)
            if each.partition_id == lost.partition_id
            else each
            for each in writer.targets
        ]
        possible = msgspec.structs.replace(writer, targets=tuple(targets))

        def amended(error: DragomanError | None) -> None:
            if entry.is_gone:
                return
            if error is not None:
                self._stall(entry, writer, error)
                return
            entry.writer = possible
            self._roll_forward(entry, possible)

        self._ports.persist(writer.writer_id, records.to_record(possible), amended)

    def _copied(self, entry: _Entry, writer: Writer, error: DragomanError | None) -> None:
        if entry.is_gone:
            return
        if isinstance(error, PublishedRecordsLost):
            self._resequence(entry, writer, error)
            return
        if error is not None:
            self._stall(entry, writer, error)
            return
        after = published(writer, self._clock.wall_ms())

        def stored(error: DragomanError | None) -> None:
            if entry.is_gone:
                return
            if error is not None:
                self._stall(entry, writer, error)
                return
            entry.writer = after
            del self._decided[writer.writer_id]
            pieces = [piece for target in writer.targets for piece in target.pieces]
            self._ports.let_go(writer.writer_id, pieces)
            self._finish(entry, writer.writer_id, False)

        self._ports.persist(writer.writer_id, records.to_record(after), stored)

    def _stall(self, entry: _Entry, writer: Writer, error: DragomanError) -> None:
        log.warning(
            "writer %s: batch %d is decided and not yet published: %s; tried again",
            writer.writer_id,
            writer.batch_id,
            error,
        )
        self._stalled[writer.writer_id] = entry

    def _finish(self, entry: _Entry, writer_id: str, outcome: bool | DragomanError) -> None:
        reply, entry.reply, entry.is_busy = entry.reply, None, False
        if reply is not None:
            reply(outcome)
        while entry.waiting and not entry.is_busy:
            self._begin(entry, *entry.waiting.popleft())
        if entry.writer is None and not entry.is_busy and not entry.is_gone:
            self._entries.pop(writer_id, None)

    # ---- from time to time

    def retry_stalled(self) -> int:
        """Go on with decided batches that met an error; returns how many."""
        stalled, self._stalled = self._stalled, {}
        for entry in stalled.values():
            assert entry.writer is not None
            self._roll_forward(entry, entry.writer)
        return len(stalled)

    def expire_idle(self) -> int:
        """Forget writers that were idle for too long; returns how many."""
        now_ms = self._clock.wall_ms()
        idle = [
            entry
            for entry in self._entries.values()
            if not entry.is_busy and entry.writer is not None and _is_idle(entry.writer, now_ms)
        ][:WRITER_EXPIRIES_PER_SCAN]
        for entry in idle:
            self._forget(entry)
        return len(idle)

    def _forget(self, entry: _Entry) -> None:
        assert entry.writer is not None
        writer_id = entry.writer.writer_id
        entry.is_busy = True

        def removed(error: DragomanError | None) -> None:
            if entry.is_gone:
                return
            if error is None:
                entry.writer = None
            self._finish(entry, writer_id, True)

        self._ports.persist(writer_id, (records.encode_key(writer_id), None), removed)

    # ---- life

    def load(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the internal topic, in log order. Raises like `records`."""
        writer_id = records.decode_key(key)
        if value is None:
            self._entries.pop(writer_id, None)
        else:
            self._entries[writer_id] = _Entry(records.decode_value(writer_id, value))

    def resume(self, partition: int) -> int:
        """A partition is loaded: go on with every batch that was decided; returns how many."""
        decided = [
            (entry, entry.writer)
            for entry in self._of_partition(partition).values()
            if entry.writer is not None and entry.writer.is_decided
        ]
        for entry, writer in decided:
            entry.is_busy = True
            pieces = [piece for target in writer.targets for piece in target.pieces]
            self._ports.hold(writer.writer_id, pieces)
        for entry, writer in decided:
            self._roll_forward(entry, writer)
        return len(decided)

    def _of_partition(self, partition: int) -> dict[str, _Entry]:
        partition_of = self._partition_of
        return {
            name: each for name, each in self._entries.items() if partition_of(name) == partition
        }

    def is_publishing_to(self, partition_id: int) -> bool:
        """Whether a decided batch is on its way there: what the partition knows of its producer
        tells what is missing of it.
        """
        return any(
            target.partition_id == partition_id
            for writer in self._decided.values()
            for target in writer.targets
        )

    def unload(self, partition: int, error: BrokerError) -> None:
        """Another node has a partition: answer who waits, with the error. What was decided is that
        node's to finish.
        """
        replies = []
        for writer_id, entry in self._of_partition(partition).items():
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
            reply(error)

    def close(self) -> None:
        """Stop for good: answer who waits, go on after the next start."""
        self._is_closed = True
        for partition in set(map(self._partition_of, self._entries)):
            self.unload(partition, ShuttingDown("the node is stopping"))


def _is_idle(writer: Writer, now_ms: int) -> bool:
    limit_ms = SINGLE_WRITER_IDLE_MS_MAX if writer.is_single else WRITER_IDLE_MS_MAX
    return now_ms - writer.updated_ms > limit_ms
