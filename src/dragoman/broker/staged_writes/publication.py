"""What is published, as values: pieces of staged records, and the partitions that they go to."""

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
