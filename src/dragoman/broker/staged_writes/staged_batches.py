"""The batches of staged pieces, read a slice of a megabyte at a time.

A slice comes from this node's own replica of the staging partition if that has all of the piece,
and from the leader otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import InvalidPublication, NotLeader, StagedRecordsGone, UnknownTopic
from dragoman.broker.partitions import Partitions
from dragoman.broker.readers import ReadBatches
from dragoman.broker.staged_writes.publication import STAGING_TOPIC, Piece
from dragoman.errors import OffsetOutOfRangeError
from dragoman.limits import PUBLISH_SLICE_BYTES
from dragoman.log.batch import BatchHeader, read_header
from dragoman.log.partition import PartitionLog
from dragoman.rpc import Node, Rpc
from dragoman.types import Buffer


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
