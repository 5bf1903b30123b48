"""A writer as a value: who it is, what it published last, and what it still has to publish.

    decided      the next batch id, with the pieces that make up the batch and where they go
    published    the same batch id, with nothing left to do

A decision is final. From its record alone any later process can finish the batch: it names the
producer id and, for each partition, the sequence of the first record, so that what is in the
partition already can be told from what is missing.
"""

from __future__ import annotations

import msgspec

#: Batch ids count up from 0.
NO_BATCH = -1
#: Of the batches that a writer publishes; they never need another.
PRODUCER_EPOCH = 0


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Staged batches that follow each other: offsets `first_offset` up to `next_offset`.

    `checksum` is the CRC-32C over the CRC fields of the batches, in order.
    """

    partition: int
    first_offset: int
    next_offset: int
    record_count: int
    checksum: int


class Destination(msgspec.Struct, frozen=True):
    """The pieces that are to go to one partition, in order."""

    topic: str
    partition: int
    pieces: tuple[Piece, ...]


class Target(msgspec.Struct, frozen=True, array_like=True):
    """A destination that was decided on. Named by its id: a new topic of that name is another."""

    partition_id: int
    first_sequence: int
    pieces: tuple[Piece, ...]

    @property
    def record_count(self) -> int:
        return sum(piece.record_count for piece in self.pieces)


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stored of one writer. Times are wall-clock milliseconds."""

    writer_id: str
    #: The run of batch ids that this is. Another one may not use the same writer id.
    query_id: str
    producer_id: int
    #: The last batch that was decided on.
    batch_id: int
    #: What is left to publish of it.
    targets: tuple[Target, ...] = ()
    #: It writes one batch in its life, so that it can be forgotten soon.
    is_single: bool = False
    updated_ms: int

    @property
    def is_decided(self) -> bool:
        return bool(self.targets)


def published(old: Writer, now_ms: int) -> Writer:
    return msgspec.structs.replace(old, targets=(), updated_ms=now_ms)
