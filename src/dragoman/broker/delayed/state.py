"""Delayed and held records as values, and the index in memory of one partition that stores them.

A `StoredPartition` belongs to one leadership of a partition of the internal topic. For each record
it has the target and the next time of interest, never the contents. Each target partition has a
`TargetQueue`: the due records, in order, and the one batch of them that is decided.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import msgspec

from dragoman.log.batch import Record
from dragoman.log.producer import SEQUENCE_MASK
from dragoman.outcome import Outcome

#: Obsolete entries that an agenda may have, beyond the number of records.
_STALE_MAX: Final = 1000


class Token(NamedTuple):
    """Names a stored record: partition id and offset in the internal topic."""

    partition_id: int
    offset: int


class Target(NamedTuple):
    """The partition that a record is delivered to."""

    topic: str
    partition: int

    @property
    def name(self) -> str:
        """All records for one target are stored in one partition, where they keep their order."""
        return f"{self.topic}-{self.partition}"


class Content(msgspec.Struct, frozen=True):
    """A stored record, its target and its labels."""

    target: Target
    record: Record
    #: Identity of the owner of a held record, in the terms of its protocol.
    labels: dict[str, str] = {}


class Phase(IntEnum):
    #: Delayed: due at `when_ms`.
    WAITING = 0
    #: Held: the owner is asked at `when_ms` unless it has decided.
    HELD = 1
    #: The owner's decision is being written.
    DECIDING = 2
    #: Due, and in the queue of its target.
    DUE = 3


class Entry:
    """One stored record. Times are wall-clock milliseconds."""

    __slots__ = ("checks", "is_released", "phase", "queue", "size", "when_ms")

    def __init__(self, queue: TargetQueue, when_ms: int, phase: Phase, size: int) -> None:
        self.queue = queue
        self.when_ms = when_ms
        self.phase = phase
        #: Upper bound of its size in a batch.
        self.size = size
        self.is_released = False
        #: Number of checks by this node.
        self.checks = 0


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """A decided batch for a partition, as it is stored.

    Any later process can deliver the batch from this alone: the target recognises one that it has.
    """

    producer_id: int
    first_sequence: int
    #: Time of the decision, which is the timestamp of the records.
    decided_ms: int
    #: The offsets of the records in the internal topic.
    offsets: tuple[int, ...]

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + len(self.offsets)) & SEQUENCE_MASK


class TargetQueue:
    """A target partition, by its id: a new topic of the same name is another."""

    __slots__ = (
        "batch",
        "count",
        "is_busy",
        "is_stalled",
        "next_sequence",
        "producer_id",
        "ready",
        "target_id",
    )

    def __init__(self, target_id: int) -> None:
        self.target_id = target_id
        #: Stored records for the target.
        self.count = 0
        #: The decided batch, until it is known to be done.
        self.batch: Batch | None = None
        #: The producer id of this leadership at the target; -1: not used yet.
        self.producer_id = -1
        self.next_sequence = 0
        #: Offsets of due records that are in no batch yet.
        self.ready: deque[int] = deque()
        #: A batch is being written or delivered.
        self.is_busy = False
        self.is_stalled = False


class Undecided(NamedTuple):
    """A decision that is being written, and the calls that wait for it."""

    is_release: bool
    waiting: list[Outcome[None]]


class StoredPartition:
    def __init__(self, index: int) -> None:
        self.index = index
        self.entries: dict[int, Entry] = {}
        self.queues: dict[int, TargetQueue] = {}
        self.deciding: dict[int, Undecided] = {}
        #: The producer id of this leadership; -1: not known yet.
        self.producer_id = -1
        #: Whether the leadership has ended, so that later results are ignored.
        self.is_gone = False
        #: (time, offset) entries; obsolete ones are skipped.
        self._agenda: list[tuple[int, int]] = []

    def queue(self, target_id: int) -> TargetQueue:
        found = self.queues.get(target_id)
        if found is None:
            found = self.queues[target_id] = TargetQueue(target_id)
        return found

    def add(self, offset: int, entry: Entry) -> None:
        self.remove(offset)
        self.entries[offset] = entry
        entry.queue.count += 1
        self.look_at(offset, entry, entry.when_ms)

    def remove(self, offset: int) -> None:
        """Forget a record. One that is not there is no error."""
        entry = self.entries.pop(offset, None)
        if entry is not None:
            entry.queue.count -= 1

    def look_at(self, offset: int, entry: Entry, when_ms: int) -> None:
        entry.when_ms = when_ms
        heappush(self._agenda, (when_ms, offset))
        if len(self._agenda) > 2 * len(self.entries) + _STALE_MAX:
            # Entries decided long before their time would otherwise stay until then.
            self._agenda = [
                (each.when_ms, number)
                for number, each in self.entries.items()
                if each.phase <= Phase.HELD
            ]
            heapify(self._agenda)

    @property
    def next_ms(self) -> int | None:
        """The time of the next record that may be due."""
        return self._agenda[0][0] if self._agenda else None

    def due(self, now_ms: int, most: int) -> list[int]:
        """Offsets of due records, in order of time and arrival."""
        # A record whose time was changed back is in the agenda twice.
        found: dict[int, None] = {}
        agenda = self._agenda
        while agenda and agenda[0][0] <= now_ms and len(found) < most:
            when_ms, offset = heappop(agenda)
            entry = self.entries.get(offset)
            if entry is not None and entry.when_ms == when_ms and entry.phase <= Phase.HELD:
                found[offset] = None
        return list(found)

    def offsets_for(self, target_id: int) -> list[int]:
        """The offsets of all records for a target."""
        return [
            offset for offset, each in self.entries.items() if each.queue.target_id == target_id
        ]
