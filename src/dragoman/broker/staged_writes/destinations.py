"""The leader of a destination checks staged records before the decision, and copies them after it.

Both read the pieces one slice per loop turn, so that other requests are served in between. A copy
gives each batch the writer's producer id and the next sequence. Batches that an earlier attempt has
appended, on this node or another, are recognised by the partition's producer state and skipped.
Batches keep their borders, so the state ends at one of them.

A slice has a megabyte. It comes from this node's own replica of the staging partition if that has
all of the piece, and from the leader otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import (
    InvalidPublication,
    NotLeader,
    PublishedRecordsLost,
    StagedRecordsGone,
    UnknownTopic,
)
from dragoman.broker.partitions import Partitions
from dragoman.broker.produce import as_configured, check_expansion, check_rules
from dragoman.broker.readers import ReadBatches
from dragoman.broker.staged_writes.publication import (
    PRODUCER_EPOCH,
    STAGING_TOPIC,
    Destination,
    Piece,
    Target,
)
from dragoman.checksum import crc32c
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import PUBLISH_SLICE_BYTES
from dragoman.log.batch import BatchHeader, read_header, stamp_producer
from dragoman.log.partition import PartitionLog
from dragoman.log.producer import SEQUENCE_MASK
from dragoman.outcome import Outcome, acknowledge_to, acknowledged, pause, start
from dragoman.replication.replica import Replica
from dragoman.rpc import Answer, Call, Done, Node, Registry, Request, Rpc
from dragoman.types import Buffer

log = logging.getLogger("dragoman.staged_writes")


class CheckPieces(Request[Done], frozen=True, kw_only=True, tag="CheckPieces"):
    """Whether the pieces exist, are sound, and may be appended to a partition that the node
    leads.
    """

    destination: Destination


class SequenceNumber(Answer, frozen=True, kw_only=True, tag="SequenceNumber"):
    number: int


class NextSequence(Request[SequenceNumber], frozen=True, kw_only=True, tag="NextSequence"):
    """The next sequence of a producer on a partition that the node leads."""

    topic: str
    partition: int
    producer_id: int


class CopyPieces(Request[Done], frozen=True, kw_only=True, tag="CopyPieces"):
    """Append the missing part of the pieces to a partition that the node leads. Answered when all
    of them are committed, which may take longer than the caller waits.
    """

    target: Target
    producer_id: int


class Destinations:
    def __init__(self, context: NodeContext, partitions: Partitions, rpc: Rpc) -> None:
        self._context = context
        self._partitions = partitions
        self._rpc = rpc
        #: Calls that wait for a copy, by partition, producer and first sequence.
        self._copying: dict[tuple[int, int, int], list[Outcome[None]]] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(CheckPieces, self._check_pieces)
        registry.serve(NextSequence, self._next_sequence)
        registry.serve(CopyPieces, self._copy_pieces)

    async def _check_pieces(self, call: Call[CheckPieces]) -> Done:
        await self.check(call.request.destination)
        return Done()

    async def _next_sequence(self, call: Call[NextSequence]) -> SequenceNumber:
        replica = self._partitions.find(call.request.topic, call.request.partition)
        return SequenceNumber(number=next_sequence(replica, call.request.producer_id))

    async def _copy_pieces(self, call: Call[CopyPieces]) -> Done:
        """Repeated calls share one copy: a large one takes longer than the caller waits for the
        answer.
        """
        target, producer_id = call.request.target, call.request.producer_id
        key = (target.partition_id, producer_id, target.first_sequence)
        copied: Outcome[None] = Outcome()
        waiting = self._copying.get(key)
        if waiting is not None:
            waiting.append(copied)
        else:
            self._copying[key] = [copied]
            copying = start(self.copy(target, producer_id))
            copying.then(acknowledge_to(partial(self._copied, key)))
        await copied
        return Done()

    def _copied(self, key: tuple[int, int, int], error: DragomanError | None) -> None:
        for each in self._copying.pop(key):
            each.acknowledge(error)

    # ---- before the decision

    async def check(self, destination: Destination) -> None:
        """Raises unless the pieces exist, have the stated contents, and fit the topic."""
        replica = self._partitions.find(destination.topic, destination.partition)
        if replica.metadata.topic.is_internal:
            raise InvalidPublication(f"topic {destination.topic!r} is written by the broker only")
        now_ms = self._context.clock.wall_ms()
        found: dict[int, tuple[int, int]] = {}

        def visit(staged: StagedBatch) -> None:
            check_expansion(replica, staged.batch, staged.header)
            check_rules(replica, staged.batch, staged.header, now_ms)
            count, checksum = found.get(staged.number, (0, 0))
            checksum = crc32c(staged.batch[17:21], checksum)
            found[staged.number] = (count + staged.header.record_count, checksum)

        batches = self._open(destination.pieces)
        while await batches.visit_slice(visit):
            # A large piece has many slices: others are served between them.
            await pause(self._context.scheduler, 0)
        for number, piece in enumerate(destination.pieces):
            _compare(piece, *found.get(number, (0, 0)))

    def _open(self, pieces: Sequence[Piece]) -> StagedBatches:
        return StagedBatches(self._context, self._partitions, self._rpc, pieces)

    # ---- after it

    async def copy(self, target: Target, producer_id: int) -> None:
        """Append the missing part of a target that this node leads, and wait until it is committed.

        After an error, a repeated call continues, here or on the new leader.
        `PublishedRecordsLost`: other sequences are needed.
        """
        metadata = self._context.image.partitions.get(target.partition_id)
        if metadata is None:
            text = "the topic of %d records was deleted before they were published"
            log.warning(text, target.record_count)
            return
        copy = _Copy(self._context, self._partitions, metadata, target, producer_id)
        batches = self._open(copy.missing_pieces())
        while True:
            is_more = await batches.visit_slice(copy.append)
            await copy.committed()
            if not is_more:
                return
            await pause(self._context.scheduler, 0)


def next_sequence(replica: Replica, producer_id: int) -> int:
    """The next sequence of a producer on the partition; 0 if the partition does not know it, or has
    forgotten it.
    """
    states = replica.log.producers
    known = None if states is None else states.producers().get(producer_id)
    return 0 if known is None else known.next_sequence


class _Copy:
    """Append the missing part of a target, batch by batch."""

    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        metadata: PartitionMetadata,
        target: Target,
        producer_id: int,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._metadata = metadata
        self._target = target
        self._producer_id = producer_id
        self._to_skip = 0
        self._sequence = target.first_sequence

    def _replica(self) -> Replica:
        """The partition. Raises `NotLeader` once another node leads it."""
        return self._partitions.replica(self._metadata)

    def missing_pieces(self) -> list[Piece]:
        """The pieces that are missing in the partition, in whole or in part."""
        target = self._target
        expected = next_sequence(self._replica(), self._producer_id)
        to_skip = (expected - target.first_sequence) & SEQUENCE_MASK
        if to_skip > target.record_count:
            # Only when the partition has lost committed records, after a power cut where
            # `durability` is `os`. It has lost its end, and so all of this batch.
            raise PublishedRecordsLost(target.partition_id, expected)
        pieces = list(target.pieces)
        while pieces and to_skip >= pieces[0].record_count:
            count = pieces.pop(0).record_count
            to_skip -= count
            self._sequence = (self._sequence + count) & SEQUENCE_MASK
        self._to_skip = to_skip
        return pieces

    def append(self, staged: StagedBatch) -> None:
        count = staged.header.record_count
        if self._to_skip:
            self._to_skip -= count
            assert self._to_skip >= 0, (self._target, self._producer_id)
        else:
            replica = self._replica()
            batch = bytearray(staged.batch)
            stamp_producer(batch, self._producer_id, PRODUCER_EPOCH, self._sequence)
            now_ms = self._context.clock.wall_ms()
            fitted = as_configured(replica, memoryview(batch), read_header(batch), now_ms)
            # `place` would repeat checks that the batch passed before the decision.
            replica.log.append(*fitted, replica.leader_epoch)
        self._sequence = (self._sequence + count) & SEQUENCE_MASK

    def committed(self) -> Outcome[None]:
        """Settled when the whole log is committed: a failed copy may have left appends in
        flight.
        """
        replica = self._replica()
        return acknowledged(partial(replica.when_committed, replica.log.log_end_offset))


def _compare(piece: Piece, count: int, checksum: int) -> None:
    if (count, checksum) != (piece.record_count, piece.checksum):
        raise InvalidPublication(
            f"staged records {piece.partition}:{piece.first_offset} to {piece.next_offset}: "
            f"{count} records with checksum {checksum:08x}, "
            f"expected {piece.record_count} with {piece.checksum:08x}"
        )


class StagedBatch(NamedTuple):
    #: The number of the piece that it belongs to.
    number: int
    header: BatchHeader
    batch: memoryview


class StagedBatches:
    def __init__(
        self, context: NodeContext, partitions: Partitions, rpc: Rpc, pieces: Sequence[Piece]
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._rpc = rpc
        self._pieces = pieces
        self._number = 0
        self._offset = pieces[0].first_offset if pieces else 0

    async def visit_slice(self, visit: Callable[[StagedBatch], None]) -> bool:
        """Call `visit` with each batch of the next slice. Returns False if all were visited before.

        Raises what `visit` raises; `StagedRecordsGone` when some batches are not there any more;
        `InvalidPublication` when the offsets are not those of whole batches.
        """
        if self._number == len(self._pieces):
            return False
        for each in await self._next_slice(self._pieces[self._number]):
            visit(each)
        return True

    async def _next_slice(self, piece: Piece) -> list[StagedBatch]:
        found = self._find(piece)
        if isinstance(found, PartitionLog):
            self._check(piece, found.log_start_offset, found.high_watermark)
            read = found.read(self._offset, PUBLISH_SLICE_BYTES, piece.next_offset)
            return self._cut(piece, read.buffers)
        request = ReadBatches(
            topic=STAGING_TOPIC,
            partition=piece.partition,
            offset=self._offset,
            bytes_max=PUBLISH_SLICE_BYTES,
            is_committed_only=False,
            is_from_oldest=True,
        )
        try:
            reply = await self._rpc.exchange(request, Node(found))
        except OffsetOutOfRangeError as error:
            raise InvalidPublication(f"{piece.staging_partition}: {error}") from None
        self._check(piece, reply.answer.log_start_offset, reply.answer.high_watermark)
        return self._cut(piece, [reply.body])

    def _find(self, piece: Piece) -> PartitionLog | int:
        """The log of the staging partition if this node has all of the piece; else the leader."""
        topic = self._context.image.topics.get(STAGING_TOPIC)
        if topic is None or not 0 <= piece.partition < len(topic.partitions):
            raise UnknownTopic(f"there is no partition {piece.partition} of {STAGING_TOPIC}")
        partition = topic.partitions[piece.partition]
        if partition.leader != self._context.node_id:
            try:
                held = self._partitions.held(partition).log
            except NotLeader:
                return partition.leader
            is_here = held.log_start_offset <= self._offset and (
                piece.next_offset <= held.high_watermark
            )
            return held if is_here else partition.leader
        return self._partitions.replica(partition).log

    def _check(self, piece: Piece, log_start_offset: int, high_watermark: int) -> None:
        first, end = piece.first_offset, piece.next_offset
        if not 0 <= first < end <= high_watermark:
            raise InvalidPublication(
                f"{piece.staging_partition}: {first} to {end} is not in 0 .. {high_watermark}"
            )
        if self._offset < log_start_offset:
            raise StagedRecordsGone(
                f"{piece.staging_partition}: staged records {self._offset} to {end} are gone, "
                f"the log starts at {log_start_offset}: the batch has to be written again"
            )

    def _cut(self, piece: Piece, buffers: Sequence[Buffer]) -> list[StagedBatch]:
        found: list[StagedBatch] = []
        end, where = piece.next_offset, piece.staging_partition
        for buffer in buffers:
            view, position = memoryview(buffer), 0
            while position < len(view) and self._offset < end:
                header = read_header(view, position)
                if header.base_offset != self._offset:
                    raise InvalidPublication(f"{where}: no batch begins at {self._offset}")
                if header.last_offset >= end:
                    raise InvalidPublication(f"{where}: no batch ends at {end}")
                batch = view[position : position + header.size]
                found.append(StagedBatch(self._number, header, batch))
                position += header.size
                self._offset = header.last_offset + 1
        if not found:
            raise InvalidPublication(f"{where}: no batch ends at {end}")
        if self._offset == end:
            self._number += 1
            if self._number < len(self._pieces):
                self._offset = self._pieces[self._number].first_offset
        return found
