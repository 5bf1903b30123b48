"""Staged records on the node that leads their destination: checked, and later copied into it.

Both go through the pieces a megabyte at a time (`Walk`), with others served in between; what lies
in staging partitions of other nodes is asked for. A copy gives each batch the writer's producer id
and the next sequence. What is in the partition already, from an earlier attempt at the same copy,
by this node or another, is told by the partition's producer state and left out. Batches keep their
borders, so the state ends at one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.broker.errors import InvalidPublication, PublishedRecordsLost
from dragoman.broker.produce import as_configured, check_expansion, check_rules
from dragoman.broker.publications import Destination, Piece, Target
from dragoman.broker.publishing.slices import StagedBatch, StagedSlices
from dragoman.broker.publishing.state import PRODUCER_EPOCH
from dragoman.broker.replica import Acknowledge, Replica
from dragoman.checksum import crc32c
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.log.batch import read_header, stamp_producer
from dragoman.log.producers import SEQUENCE_MASK

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.publishing")


def next_sequence(replica: Replica, producer_id: int) -> int:
    """What the partition takes next of a producer. From one that it does not know, or has
    forgotten, that is 0.
    """
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else known.next_sequence


class Walk:
    """Has `visit` called with every batch; then `done`. What `visit` raises ends it.

    `between` is called after each slice with what goes on.
    """

    def __init__(
        self,
        broker: Broker,
        pieces: tuple[Piece, ...],
        visit: Callable[[StagedBatch], None],
        between: Callable[[Acknowledge], None],
        done: Acknowledge,
    ) -> None:
        self._broker = broker
        self._slices = StagedSlices(broker, pieces)
        self._visit = visit
        self._between = between
        self._done = done

    def go_on(self) -> None:
        self._slices.next(self._got)

    def _got(self, batches: list[StagedBatch] | DragomanError) -> None:
        try:
            if isinstance(batches, DragomanError):
                raise batches
            for each in batches:
                self._visit(each)
        except DragomanError as error:
            self._done(error)
            return
        is_last = not batches

        def settled(error: DragomanError | None) -> None:
            if error is not None or is_last:
                self._done(error)
            else:
                # Others first: a large batch takes many slices.
                self._broker.scheduler.call_soon(self.go_on)

        self._between(settled)


# ---- before the decision


def check(broker: Broker, destination: Destination, done: Acknowledge) -> None:
    """Whether the pieces are there, are what they are said to be, and fit the topic."""
    try:
        replica = broker.find(destination.topic, destination.partition)
        if replica.metadata.topic.is_internal:
            name = destination.topic
            raise InvalidPublication(f"topic {name!r} is written by the broker only")
    except DragomanError as error:
        done(error)
        return
    now_ms = broker.clock.wall_ms()
    found: dict[int, tuple[int, int]] = {}

    def visit(staged: StagedBatch) -> None:
        check_expansion(replica, staged.batch, staged.header)
        check_rules(replica, staged.batch, staged.header, now_ms)
        count, checksum = found.get(staged.number, (0, 0))
        checksum = crc32c(staged.batch[17:21], checksum)
        found[staged.number] = (count + staged.header.record_count, checksum)

    def looked_through(error: DragomanError | None) -> None:
        if error is None:
            for number, piece in enumerate(destination.pieces):
                error = error or _difference(piece, *found.get(number, (0, 0)))
        done(error)

    Walk(broker, destination.pieces, visit, lambda go_on: go_on(None), looked_through).go_on()


def _difference(piece: Piece, count: int, checksum: int) -> DragomanError | None:
    if (count, checksum) == (piece.record_count, piece.checksum):
        return None
    return InvalidPublication(
        f"staged records {piece.partition}:{piece.first_offset} to {piece.next_offset}: "
        f"{count} records with checksum {checksum:08x}, "
        f"expected {piece.record_count} with {piece.checksum:08x}"
    )


# ---- after it


def copy(broker: Broker, target: Target, producer_id: int, done: Acknowledge) -> None:
    """Append what is missing of a target that this node leads; `done` comes when all of it is
    committed. After an error the same call takes up where this one ended, here or where the
    partition is led by then. `PublishedRecordsLost`: not under these sequences.
    """
    metadata = broker.image.partitions.get(target.partition_id)
    if metadata is None:
        text = "the topic of %d records was deleted before they were published"
        log.warning(text, target.record_count)
        done(None)
        return
    try:
        _Copy(broker, metadata, target, producer_id, done).start()
    except DragomanError as error:
        done(error)


class _Copy:
    def __init__(
        self,
        broker: Broker,
        metadata: PartitionMetadata,
        target: Target,
        producer_id: int,
        done: Acknowledge,
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._target = target
        self._producer_id = producer_id
        self._done = done
        self._to_skip = 0
        self._sequence = target.first_sequence

    def start(self) -> None:
        target = self._target
        expected = next_sequence(self._broker.replica(self._metadata), self._producer_id)
        to_skip = (expected - target.first_sequence) & SEQUENCE_MASK
        if to_skip > target.record_count:
            # Only when the partition has lost records that were committed, which a power cut can
            # do where `durability` is `os`. What it lost was at its end, hence all of this batch.
            raise PublishedRecordsLost(target.partition_id, expected)
        pieces = list(target.pieces)
        while pieces and to_skip >= pieces[0].record_count:
            count = pieces.pop(0).record_count
            to_skip -= count
            self._sequence = (self._sequence + count) & SEQUENCE_MASK
        self._to_skip = to_skip
        Walk(self._broker, tuple(pieces), self._append, self._await, self._done).go_on()

    def _append(self, staged: StagedBatch) -> None:
        count = staged.header.record_count
        if self._to_skip:
            self._to_skip -= count
            assert self._to_skip >= 0, (self._target, self._producer_id)
        else:
            broker = self._broker
            # Another node may lead by now.
            replica = broker.replica(self._metadata)
            batch = bytearray(staged.batch)
            stamp_producer(batch, self._producer_id, PRODUCER_EPOCH, self._sequence)
            now_ms = broker.clock.wall_ms()
            fitted = as_configured(replica, memoryview(batch), read_header(batch), now_ms)
            # Not `place`: whether the batch fits the topic was asked before the decision.
            replica.log.append(*fitted, replica.leader_epoch)
        self._sequence = (self._sequence + count) & SEQUENCE_MASK

    def _await(self, go_on: Acknowledge) -> None:
        """One slice: appended together, hence durable together."""
        try:
            replica = self._broker.replica(self._metadata)
        except DragomanError as error:
            go_on(error)
            return
        # Up to the end of the log: a copy that failed may have left appends under way.
        replica.when_committed(replica.log.log_end_offset, go_on)
