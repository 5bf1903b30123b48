"""What the coordinator needs from outside, and what it hands over.

All ports are calls with a callback. A callback is called exactly once, and may be called before the
port's call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from dragoman.broker.transactions.state import TopicPartition
from dragoman.errors import DragomanError

Done: TypeAlias = Callable[[DragomanError | None], None]


class StateRecord(msgspec.Struct, frozen=True):
    """A record for the internal topic. `value` None removes the id (a tombstone)."""

    transactional_id: str
    key: bytes
    value: bytes | None


class Markers(msgspec.Struct, frozen=True):
    """The end of one transaction, to be told to everything enrolled in it."""

    transactional_id: str
    producer_id: int
    #: Of the marker; one above the records' when the transaction changes the epoch.
    epoch: int
    commit: bool
    #: In order, so that a run repeats exactly.
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]


class Persist(Protocol):
    def __call__(self, records: Sequence[StateRecord], done: Done) -> None:
        """Append the records, which all belong to one partition, in the order of the calls.

        `done(None)`: they are durable. `done(error)`: they are not in the log and never will be,
        or the partition has been unloaded because that is not known.
        """
        ...


class WriteMarkers(Protocol):
    def __call__(self, markers: Markers, done: Done) -> None:
        """Append a control marker to every partition and end the staged offsets of every group.

        `done(None)`: all are durable; a partition or group that was deleted counts as done.
        `done(error)`: some are missing; the same call comes again later, and may find some
        markers written. After `done`, nothing more may be written for this call: the producer may
        have begun its next transaction under the same epoch.
        """
        ...


class AllocateBlock(Protocol):
    def __call__(self, done: Callable[[range | DragomanError], None]) -> None:
        """Reserve producer ids. They are durably reserved when `done` gets them, and never given
        out again; later blocks lie above earlier ones.
        """
        ...
