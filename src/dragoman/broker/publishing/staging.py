"""The topic in which attempts leave their records until it is known which attempts count.

An ordinary internal topic, with two differences. Clients may write to it, by ordinary Produce
requests, under an identity that `open` gave them: its epoch is one that no other producer ever has,
so that the batches themselves say whether they belong here. And its beginning moves by rules of its
own, since record timestamps come from the user and say nothing about the age of an attempt:

- what was published, or will never be, is *released* by the publisher; the start moves over it as
  soon as nothing before it is in use;
- what nobody released, the work of attempts that died, goes when it is `STAGING_AGE_MAX_S` old;
- what is *held*, because a publication is under way, stays whatever its age.

What was released and how old records are is kept in memory only: after a restart the age counts
from the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from dragoman.broker.errors import (
    InvalidPublication,
    InvalidRecord,
    NotAuthorized,
    StagedRecordsGone,
)
from dragoman.broker.publishing.state import Piece
from dragoman.broker.replica import Replica
from dragoman.broker.topics import NewTopic
from dragoman.broker.transactions import ProducerIds
from dragoman.checksum import crc32c
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    PRODUCER_EPOCH_MAX,
    PUBLISH_SLICE_BYTES,
    STAGING_AGE_MARKS,
    STAGING_AGE_MAX_S,
    STAGING_PARTITIONS,
    STAGING_PRODUCER_IDLE_MS_MAX,
    STAGING_RELEASED_MAX,
    STAGING_SEGMENT_BYTES,
)
from dragoman.log.batch import BatchHeader, read_header
from dragoman.log.partition import PartitionLog

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

STAGING_TOPIC: Final = "__staged_records"
#: Of every batch that is staged, and of no other: ordinary producers stay below it.
STAGING_EPOCH: Final = PRODUCER_EPOCH_MAX + 1
_LONG_MAX: Final = (1 << 63) - 1
#: Batches are kept as they were sent, and only `Staging` removes them.
_CONFIG: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": str((1 << 31) - 1),
    "message.timestamp.after.max.ms": str(_LONG_MAX),
    "message.timestamp.before.max.ms": str(_LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": str(STAGING_SEGMENT_BYTES),
}


class StagingPlace(msgspec.Struct, frozen=True):
    """Where an attempt is to stage its records, and as whom."""

    topic: str
    partition: int
    producer_id: int
    epoch: int


Opened: TypeAlias = Callable[[StagingPlace | DragomanError], None]


def check_writable(topic: TopicMetadata, header: BatchHeader) -> None:
    """Whether a client may write this batch to the topic. Raises `NotAuthorized`.

    Internal topics are the broker's own, except that attempts bring their records to this one.
    """
    if not topic.is_internal:
        return
    if topic.name != STAGING_TOPIC or header.producer_epoch != STAGING_EPOCH:
        raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
    if header.is_transactional:
        raise InvalidRecord("staged records cannot be part of a transaction")


class Staging:
    def __init__(self, broker: Broker, producer_ids: ProducerIds) -> None:
        self._broker = broker
        self._producer_ids = producer_ids
        broker.topics.reserve(STAGING_TOPIC)
        self._opened = 0
        #: By staging partition: pieces nobody needs any more, first offset to next offset.
        self._released: dict[int, dict[int, int]] = {}
        #: By whoever needs them: the first offset in each staging partition.
        self._held: dict[str, dict[int, int]] = {}
        #: By staging partition: when the log ended where, oldest first.
        self._ends: dict[int, deque[tuple[float, int]]] = {}

    # ---- attempts

    def open(self, opened: Opened) -> None:
        """A place for one attempt; attempts take turns over the partitions."""
        new = NewTopic(
            name=STAGING_TOPIC,
            partition_count=STAGING_PARTITIONS,
            config=dict(_CONFIG),
            is_internal=True,
        )

        def ensured(error: DragomanError | None) -> None:
            if error is not None:
                opened(error)
            else:
                self._producer_ids.next(identified)

        def identified(producer_id: int | DragomanError) -> None:
            if isinstance(producer_id, DragomanError):
                opened(producer_id)
                return
            self._opened += 1
            count = len(self._broker.image.topics[STAGING_TOPIC].partitions)
            index = self._opened % count
            opened(StagingPlace(STAGING_TOPIC, index, producer_id, STAGING_EPOCH))

        self._broker.ensure_topic(new, ensured)

    # ---- reading

    def batches(self, piece: Piece) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a piece, a megabyte in memory at a time.

        Raises `StagedRecordsGone` when some are not there any more, `InvalidPublication` when the
        offsets are not those of whole batches.
        """
        log = self._broker.find(STAGING_TOPIC, piece.partition).log
        offset, end = piece.first_offset, piece.next_offset
        if not 0 <= offset < end <= log.high_watermark:
            raise InvalidPublication(
                f"{log.describe()}: {offset} to {end} is not in 0 .. {log.high_watermark}"
            )
        while offset < end:
            if offset < log.log_start_offset:
                raise StagedRecordsGone(
                    f"{log.describe()}: staged records {offset} to {end} are gone, "
                    f"the log starts at {log.log_start_offset}: the batch has to be written again"
                )
            found = log.read(offset, PUBLISH_SLICE_BYTES, end)
            for buffer in found.buffers:
                view, position = memoryview(buffer), 0
                while position < len(view):
                    header = read_header(view, position)
                    if header.base_offset != offset:
                        raise InvalidPublication(f"{log.describe()}: no batch begins at {offset}")
                    yield header, view[position : position + header.size]
                    position += header.size
                    offset = header.last_offset + 1
            if not found.buffers:
                raise InvalidPublication(f"{log.describe()}: no batch ends at {end}")

    def verify(self, piece: Piece) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The same, and at the end count and checksum must be as the piece says."""
        count = checksum = 0
        for header, batch in self.batches(piece):
            count += header.record_count
            checksum = crc32c(batch[17:21], checksum)
            yield header, batch
        if (count, checksum) != (piece.record_count, piece.checksum):
            raise InvalidPublication(
                f"staged records {piece.partition}:{piece.first_offset} to {piece.next_offset}: "
                f"{count} records with checksum {checksum:08x}, "
                f"expected {piece.record_count} with {piece.checksum:08x}"
            )

    # ---- what may go

    def hold(self, owner: str, pieces: Iterable[Piece]) -> None:
        """Keep everything from the first of these pieces on until `owner` lets go."""
        first: dict[int, int] = {}
        for piece in pieces:
            known = first.get(piece.partition, piece.first_offset)
            first[piece.partition] = min(known, piece.first_offset)
        self._held[owner] = first

    def let_go(self, owner: str) -> None:
        self._held.pop(owner, None)

    def release(self, pieces: Iterable[Piece]) -> None:
        """Nobody needs these any more."""
        for piece in pieces:
            released = self._released.setdefault(piece.partition, {})
            if len(released) >= STAGING_RELEASED_MAX:
                # Behind a gap that only age will close; age will then take these too.
                released.clear()
            released[piece.first_offset] = piece.next_offset

    def sweep(self) -> None:
        """Move the start of each staging partition as far as nobody needs what is before it."""
        topic = self._broker.image.topics.get(STAGING_TOPIC)
        for partition in topic.partitions if topic is not None else ():
            replica = self._broker.replica(partition)
            start = self._free_below(partition.index, replica)
            if start > replica.log.log_start_offset:
                replica.delete_below(start)

    def _free_below(self, index: int, replica: Replica) -> int:
        log = replica.log
        held = [first[index] for first in self._held.values() if index in first]
        start = max(log.log_start_offset, self._too_old_below(index, log))
        released = self._released.get(index, {})
        while start in released:
            start = released[start]
        start = min([start, log.high_watermark, *held])
        self._released[index] = {first: end for first, end in released.items() if end > start}
        return start

    def _too_old_below(self, index: int, log: PartitionLog) -> int:
        """Where the log ended `STAGING_AGE_MAX_S` ago, as far as is known."""
        clock = self._broker.clock
        now = clock.monotonic()
        ends = self._ends.setdefault(index, deque())
        if not ends or now - ends[-1][0] >= STAGING_AGE_MAX_S / STAGING_AGE_MARKS:
            ends.append((now, log.high_watermark))
            if log.producers is not None:
                # Every attempt is a producer, and none comes back.
                log.producers.expire(clock.wall_ms(), STAGING_PRODUCER_IDLE_MS_MAX)
        offset = 0
        while ends and now - ends[0][0] >= STAGING_AGE_MAX_S:
            offset = ends.popleft()[1]
        return offset
