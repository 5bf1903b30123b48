"""The batches of staged pieces, a megabyte at a time, wherever they are staged.

From this node's own copy of the staging partition when it has all of a piece; else from the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dragoman.broker.errors import InvalidPublication, NotLeader, StagedRecordsGone, UnknownTopic
from dragoman.broker.publications import Piece
from dragoman.broker.publishing.state import STAGING_TOPIC
from dragoman.broker.reading import Batches, ReadBatches
from dragoman.errors import DragomanError, OffsetOutOfRangeError
from dragoman.limits import PUBLISH_SLICE_BYTES
from dragoman.log.batch import BatchHeader, read_header
from dragoman.log.partition import PartitionLog
from dragoman.rpc import Node, Reply
from dragoman.types import Buffer

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker


class StagedBatch(NamedTuple):
    #: Of the piece that it belongs to.
    number: int
    header: BatchHeader
    batch: memoryview


Got: TypeAlias = Callable[[list[StagedBatch] | DragomanError], None]


class StagedSlices:
    def __init__(self, broker: Broker, pieces: Sequence[Piece]) -> None:
        self._broker = broker
        self._pieces = pieces
        self._number = 0
        self._offset = pieces[0].first_offset if pieces else 0

    def next(self, got: Got) -> None:
        """The next batches, none at the end; or `StagedRecordsGone` when some are not there any
        more, `InvalidPublication` when the offsets are not those of whole batches.
        """
        if self._number == len(self._pieces):
            got([])
            return
        piece = self._pieces[self._number]
        try:
            found = self._find(piece)
            if isinstance(found, PartitionLog):
                got(self._read(found, piece))
                return
        except DragomanError as error:
            got(error)
            return

        def answered(answer: Reply[Batches] | DragomanError) -> None:
            try:
                batches = self._taken(piece, answer)
            except DragomanError as error:
                got(error)
            else:
                got(batches)

        request = ReadBatches(
            topic=STAGING_TOPIC,
            partition=piece.partition,
            offset=self._offset,
            bytes_max=PUBLISH_SLICE_BYTES,
            is_committed_only=False,
            is_from_oldest=True,
        )
        self._broker.rpc.begin(request, Node(found)).then(answered)

    def _find(self, piece: Piece) -> PartitionLog | int:
        """The partition's log, if what is wanted is here; else the node that leads it."""
        topic = self._broker.image.topics.get(STAGING_TOPIC)
        if topic is None or not 0 <= piece.partition < len(topic.partitions):
            raise UnknownTopic(f"there is no partition {piece.partition} of {STAGING_TOPIC}")
        partition = topic.partitions[piece.partition]
        if partition.leader != self._broker.node_id:
            try:
                held = self._broker.held(partition).log
            except NotLeader:
                return partition.leader
            is_here = held.log_start_offset <= self._offset and (
                piece.next_offset <= held.high_watermark
            )
            return held if is_here else partition.leader
        return self._broker.replica(partition).log

    def _read(self, log: PartitionLog, piece: Piece) -> list[StagedBatch]:
        self._check(piece, log.log_start_offset, log.high_watermark)
        found = log.read(self._offset, PUBLISH_SLICE_BYTES, piece.next_offset)
        return self._cut(piece, found.buffers)

    def _taken(self, piece: Piece, answer: Reply[Batches] | DragomanError) -> list[StagedBatch]:
        if isinstance(answer, OffsetOutOfRangeError):
            raise InvalidPublication(f"{_name(piece)}: {answer}")
        if isinstance(answer, DragomanError):
            raise answer
        reply = answer.answer
        self._check(piece, reply.log_start_offset, reply.high_watermark)
        return self._cut(piece, [answer.body])

    def _check(self, piece: Piece, log_start_offset: int, high_watermark: int) -> None:
        first, end = piece.first_offset, piece.next_offset
        if not 0 <= first < end <= high_watermark:
            raise InvalidPublication(
                f"{_name(piece)}: {first} to {end} is not in 0 .. {high_watermark}"
            )
        if self._offset < log_start_offset:
            raise StagedRecordsGone(
                f"{_name(piece)}: staged records {self._offset} to {end} are gone, the log starts "
                f"at {log_start_offset}: the batch has to be written again"
            )

    def _cut(self, piece: Piece, buffers: Sequence[Buffer]) -> list[StagedBatch]:
        found: list[StagedBatch] = []
        end = piece.next_offset
        for buffer in buffers:
            view, position = memoryview(buffer), 0
            while position < len(view) and self._offset < end:
                header = read_header(view, position)
                if header.base_offset != self._offset:
                    raise InvalidPublication(f"{_name(piece)}: no batch begins at {self._offset}")
                if header.last_offset >= end:
                    raise InvalidPublication(f"{_name(piece)}: no batch ends at {end}")
                batch = view[position : position + header.size]
                found.append(StagedBatch(self._number, header, batch))
                position += header.size
                self._offset = header.last_offset + 1
        if not found:
            raise InvalidPublication(f"{_name(piece)}: no batch ends at {end}")
        if self._offset == end:
            self._number += 1
            if self._number < len(self._pieces):
                self._offset = self._pieces[self._number].first_offset
        return found


def _name(piece: Piece) -> str:
    return f"{STAGING_TOPIC}-{piece.partition}"
