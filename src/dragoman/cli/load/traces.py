"""Joins the batches that were sent with the offsets that were read: the latency end to end.

A broker's acknowledgement says where a batch begins. Its records may be read before the
acknowledgement arrives, or after, so both sides are kept until the other one comes. Nothing of this
is in the records, so it works with any compression and size.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final, NamedTuple

from dragoman.client.kafka import TopicPartition

#: Pieces that were read and that acknowledgements may still ask for.
_PIECES_MAX: Final = 10_000


class Sent(NamedTuple):
    #: The offset after its last record.
    end: int
    due: float
    records: int
    size: int


class _Piece(NamedTuple):
    """Offsets that were read together: from the piece before up to this one."""

    end: int
    read_at: float


class Traces:
    def __init__(self) -> None:
        self._unread: dict[TopicPartition, list[Sent]] = {}
        self._pieces: dict[TopicPartition, deque[_Piece]] = {}

    def sent(self, where: TopicPartition, sent: Sent) -> float | None:
        """When the batch was read, if it was."""
        pieces = self._pieces.get(where)
        if pieces and pieces[-1].end >= sent.end:
            return next(each.read_at for each in pieces if each.end >= sent.end)
        heapq.heappush(self._unread.setdefault(where, []), sent)
        return None

    def read(self, where: TopicPartition, end: int, now: float) -> list[Sent]:
        """Batches that are read now, because all records before the offset `end` are."""
        self._pieces.setdefault(where, deque(maxlen=_PIECES_MAX)).append(_Piece(end, now))
        unread = self._unread.get(where, [])
        found = []
        while unread and unread[0].end <= end:
            found.append(heapq.heappop(unread))
        return found

    @property
    def has_unread(self) -> bool:
        return any(self._unread.values())

    @property
    def unread(self) -> list[Sent]:
        return [each for batches in self._unread.values() for each in batches]
