"""Delayed and held records as values, and the index in memory of one partition that stores them.

A `StoredPartition` belongs to one leadership of a partition of the internal topic. For each record
it has the target and the time at which to look at the record, never what is in it. Each partition
that records go to has a `TargetQueue`: the records that have come due, in order, and the one batch
of them that is decided on.
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

#: Entries of an agenda that have no record any more, beyond as many as there are records.
_STALE_MAX: Final = 1000


class Token(NamedTuple):
    """Names a stored record: partition id and offset in the internal topic."""

    partition_id: int
    offset: int


class Target(NamedTuple):
    """The partition that a record goes to in the end."""

    topic: str
    partition: int

    @property
    def name(self) -> str:
        """All records for one partition are stored in one place, where they keep their order."""
        return f"{self.topic}-{self.partition}"


class Content(msgspec.Struct, frozen=True):
    """A stored record, its target and its labels."""

    target: Target
    record: Record
    #: Who may decide about a held record, in the terms of its protocol.
    labels: dict[str, str] = {}


class Phase(IntEnum):
    #: Comes due at `when_ms`.
    WAITING = 0
    #: Until its owner decides, who is asked at `when_ms`.
    HELD = 1
    #: The owner's decision is being written.
    DECIDING = 2
    #: Its time has come: part of the queue of its target.
    DUE = 3


class Entry:
    """One stored record. Times are wall-clock milliseconds."""

    __slots__ = ("checks", "is_released", "phase", "queue", "size", "when_ms")

    def __init__(self, queue: TargetQueue, when_ms: int, phase: Phase, size: int) -> None:
        self.queue = queue
        self.when_ms = when_ms
        self.phase = phase
        #: Bytes that it takes in a batch, at most.
        self.size = size
        self.is_released = False
        #: How often its owner was asked, by this node.
        self.checks = 0


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Records that are on their way to a partition, as the decision is stored.

    From this alone any later process can deliver the batch: the target recognises one that it has.
    """

    producer_id: int
    first_sequence: int
    #: When it was decided on, which is the timestamp of its records.
    decided_ms: int
    #: The offsets of the records in the internal topic.
    offsets: tuple[int, ...]

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + len(self.offsets)) & SEQUENCE_MASK


class TargetQueue:
    """One partition that records go to, by its id: a new topic of that name is another."""

    __slots__ = (
        "batch",
        "is_busy",
        "is_stalled",
        "next_sequence",
        "producer_id",
        "ready",
        "target_id",
    )

    def __init__(self, target_id: int) -> None:
        self.target_id = target_id
        #: The batch that is decided on and not known to be done.
        self.batch: Batch | None = None
        #: The producer id under which this leadership writes there; -1: it has not done so yet.
        self.producer_id = -1
        self.next_sequence = 0
        #: Offsets of records that have come due and are in no batch yet.
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
        #: The producer id under which this leadership writes; -1: not known yet.
        self.producer_id = -1
        #: The leadership is over: what is still reported is to be ignored.
        self.is_gone = False
        #: When to look at which offset. What has changed since is passed over.
        self._agenda: list[tuple[int, int]] = []

    def queue(self, target_id: int) -> TargetQueue:
        found = self.queues.get(target_id)
        if found is None:
            found = self.queues[target_id] = TargetQueue(target_id)
        return found

    def add(self, offset: int, entry: Entry) -> None:
        self.entries[offset] = entry
        self.look_at(offset, entry, entry.when_ms)

    def look_at(self, offset: int, entry: Entry, when_ms: int) -> None:
        entry.when_ms = when_ms
        heappush(self._agenda, (when_ms, offset))
        if len(self._agenda) > 2 * len(self.entries) + _STALE_MAX:
            # What was decided on long before its time would stay until then.
            self._agenda = [
                (each.when_ms, number)
                for number, each in self.entries.items()
                if each.phase <= Phase.HELD
            ]
            heapify(self._agenda)

    @property
    def next_ms(self) -> int | None:
        """When the next record may be due."""
        return self._agenda[0][0] if self._agenda else None

    def due(self, now_ms: int, most: int) -> list[int]:
        """Offsets of records whose time has come, earliest first, in the order they came."""
        # One that was put off and taken back is on the agenda twice.
        found: dict[int, None] = {}
        agenda = self._agenda
        while agenda and agenda[0][0] <= now_ms and len(found) < most:
            when_ms, offset = heappop(agenda)
            entry = self.entries.get(offset)
            if entry is not None and entry.when_ms == when_ms and entry.phase <= Phase.HELD:
                found[offset] = None
        return list(found)

    def offsets_for(self, target_id: int) -> list[int]:
        """The offsets of all records that go to a partition."""
        return [
            offset for offset, each in self.entries.items() if each.queue.target_id == target_id
        ]
