"""What is kept aside, as values, and the index of one partition of the internal topic in memory.

A `Shelf` belongs to one leadership of such a partition. It knows of each record where it goes and
when it is to be looked at, never what is in it. Of each partition that records go to there is a
`Lane`: the records that have come due, in order, and the one batch of them that is decided on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dragoman.broker.replica import Acknowledge
from dragoman.errors import DragomanError
from dragoman.log.batch import Record
from dragoman.log.producers import SEQUENCE_MASK

#: Entries of an agenda that have no record any more, beyond as many as there are records.
_STALE_MAX: Final = 1000


class Token(NamedTuple):
    """Names a record that is kept aside: partition id and offset in the internal topic."""

    partition_id: int
    offset: int


class Target(NamedTuple):
    """Where a record goes in the end."""

    topic: str
    partition: int


class Content(msgspec.Struct, frozen=True):
    """A record that is kept aside, with what was said about it."""

    target: Target
    record: Record
    #: Of a held record: who may decide about it, in whatever terms its protocol has.
    labels: dict[str, str] = {}


TakeToken: TypeAlias = Callable[[Token | DragomanError], None]
TakeContent: TypeAlias = Callable[[Content | DragomanError], None]


class Phase(IntEnum):
    #: Comes due at `when_ms`.
    WAITING = 0
    #: Until somebody decides, who is asked for at `when_ms`.
    HELD = 1
    #: That somebody has decided is being written.
    DECIDING = 2
    #: Its time has come: part of its lane.
    DUE = 3


class Entry:
    """One record that is kept aside. Times are wall-clock milliseconds."""

    __slots__ = ("checks", "is_released", "lane", "phase", "size", "when_ms")

    def __init__(self, lane: Lane, when_ms: int, phase: Phase, size: int) -> None:
        self.lane = lane
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
    #: When it was decided on, which is what its records have for a time.
    decided_ms: int
    #: Of the records, in the internal topic.
    offsets: tuple[int, ...]

    @property
    def next_sequence(self) -> int:
        return (self.first_sequence + len(self.offsets)) & SEQUENCE_MASK


class Lane:
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
        #: What is decided on and not known to be done.
        self.batch: Batch | None = None
        #: As whom this leadership writes there; -1: it has not done so yet.
        self.producer_id = -1
        self.next_sequence = 0
        #: Offsets of records that have come due and are in no batch yet.
        self.ready: deque[int] = deque()
        #: A batch is being written or delivered.
        self.is_busy = False
        self.is_stalled = False


class Undecided(NamedTuple):
    """A decision that is being written, and who waits for it."""

    is_release: bool
    waiting: list[Acknowledge]


class Shelf:
    def __init__(self, index: int) -> None:
        self.index = index
        self.entries: dict[int, Entry] = {}
        self.lanes: dict[int, Lane] = {}
        self.deciding: dict[int, Undecided] = {}
        #: As whom this leadership writes; -1: not known yet.
        self.producer_id = -1
        #: The leadership is over: what is still reported is to be ignored.
        self.is_gone = False
        #: When to look at which offset. What has changed since is passed over.
        self._agenda: list[tuple[int, int]] = []

    def lane(self, target_id: int) -> Lane:
        found = self.lanes.get(target_id)
        if found is None:
            found = self.lanes[target_id] = Lane(target_id)
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
        """Of all records that go to a partition."""
        return [offset for offset, each in self.entries.items() if each.lane.target_id == target_id]
