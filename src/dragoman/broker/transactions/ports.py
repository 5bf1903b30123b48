"""What the coordinator needs from outside, and what it hands over.

Every port returns an outcome, which may be settled before the call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from dragoman.broker.transactions.state import TopicPartition
from dragoman.outcome import Outcome


class StateRecord(msgspec.Struct, frozen=True):
    """A record for the internal topic. `value` None removes the id (a tombstone)."""

    transactional_id: str
    key: bytes
    value: bytes | None


class Markers(msgspec.Struct, frozen=True):
    """The end of one transaction, which goes to every participant that is enrolled in it."""

    transactional_id: str
    producer_id: int
    #: The epoch of the markers: one above that of the records if the transaction changes it.
    epoch: int
    commit: bool
    #: In order, so that a run repeats exactly.
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]


class Persist(Protocol):
    def __call__(self, records: Sequence[StateRecord]) -> Outcome[None]:
        """Append the records, which all belong to one partition, in the order of the calls.

        Succeeds when they are durable. An error means that they are not in the log and never will
        be, or that the partition has been unloaded because that is unknown.
        """
        ...


class WriteMarkers(Protocol):
    def __call__(self, markers: Markers) -> Outcome[None]:
        """Append a control marker to every partition and end the staged offsets of every group.

        Succeeds when all are durable; a partition or group that was deleted counts as ended. An
        error means that some are missing: the same call comes again later, and may find some
        markers written. Once settled, nothing more may be written for this call: the producer may
        have begun its next transaction under the same epoch.
        """
        ...


class AllocateBlock(Protocol):
    def __call__(self) -> Outcome[range]:
        """Reserve producer ids. On success they are durably reserved and never given out again;
        later blocks lie above earlier ones.
        """
        ...
