"""A writer as a value: who it is, what it published last, and what it still has to publish.

    decided      the next batch id, with the pieces that make up the batch and where they go
    published    the same batch id, with nothing left to do

A decision is final. From its record alone any later process can finish the batch: it names the
producer id and, for each partition, the sequence of the first record, so that what is in the
partition already can be told from what is missing.
"""

from __future__ import annotations

import msgspec

from dragoman.broker.staged_writes.publication import Piece, Target

#: The epoch of the batches that a writer publishes. It never needs another one.
PRODUCER_EPOCH = 0


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stored of one writer. Times are wall-clock milliseconds."""

    writer_id: str
    #: The run of batch ids that this is. Another one may not use the same writer id.
    query_id: str
    producer_id: int
    #: The last batch that was decided on. Batch ids count up from 0.
    batch_id: int
    #: What is left to publish of it.
    targets: tuple[Target, ...] = ()
    #: It writes one batch in its life, so that it can be forgotten soon.
    is_single: bool = False
    updated_ms: int

    @property
    def is_decided(self) -> bool:
        return bool(self.targets)

    def pieces(self) -> list[Piece]:
        return [piece for target in self.targets for piece in target.pieces]


def published(old: Writer, now_ms: int) -> Writer:
    return msgspec.structs.replace(old, targets=(), updated_ms=now_ms)
