"""What is published, and by whom, as values: pieces of staged records, destinations, writers.

A writer has published its batch, or it has decided on the next one:

    decided      the next batch id, with the pieces that make up the batch and where they go
    published    the same batch id, with nothing left to do

A decision is final. From its record alone any later process can finish the batch: it names the
producer id and, for each partition, the sequence of the first record, so that records that are in
the partition already can be distinguished from missing ones.
"""

from __future__ import annotations

from typing import Final

import msgspec

STAGING_TOPIC: Final = "__staged_records"


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Staged batches that follow each other: offsets `first_offset` up to `next_offset`.

    `checksum` is the CRC-32C over the CRC fields of the batches, in order.
    """

    partition: int
    first_offset: int
    next_offset: int
    record_count: int
    checksum: int

    @property
    def staging_partition(self) -> str:
        """The partition as texts name it."""
        return f"{STAGING_TOPIC}-{self.partition}"


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


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A request: one batch of a writer, and the pieces that make it up."""

    writer_id: str
    query_id: str
    batch_id: int
    is_single: bool = False
    destinations: tuple[Destination, ...]

    def pieces(self) -> list[Piece]:
        return [piece for each in self.destinations for piece in each.pieces]


#: The epoch of the batches that a writer publishes. It never needs another one.
PRODUCER_EPOCH = 0


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a writer as it is stored. Times are wall-clock milliseconds."""

    writer_id: str
    #: Identifies the series of batch ids. Another series may not use the same writer id.
    query_id: str
    producer_id: int
    #: The last batch that was decided on. Batch ids count up from 0.
    batch_id: int
    #: The parts of that batch that are not published yet.
    targets: tuple[Target, ...] = ()
    #: The writer publishes one batch in its life, so it can be forgotten soon.
    is_single: bool = False
    updated_ms: int

    @property
    def is_decided(self) -> bool:
        return bool(self.targets)

    def pieces(self) -> list[Piece]:
        return [piece for target in self.targets for piece in target.pieces]


def published(old: Writer, now_ms: int) -> Writer:
    return msgspec.structs.replace(old, targets=(), updated_ms=now_ms)
