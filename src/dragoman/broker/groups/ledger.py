"""The committed offsets of one group, and those that open transactions have staged for it.

A plain book: it is told what durable records say and checks nothing. Which commits are valid is
decided in `broker/offsets.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from dragoman.broker.groups.records import CommittedOffset, TopicPartition
from dragoman.types import ProducerId


class Ledger:
    __slots__ = ("_committed", "_staged", "_unstable", "metadata_size")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._staged: dict[ProducerId, dict[TopicPartition, CommittedOffset]] = {}
        #: Characters of the metadata of committed offsets.
        self.metadata_size = 0
        #: Open transactions per partition.
        self._unstable: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        """Offsets of both sorts."""
        return len(self._committed) + self._unstable.total()

    @property
    def committed(self) -> Mapping[TopicPartition, CommittedOffset]:
        return MappingProxyType(self._committed)

    @property
    def producers(self) -> tuple[ProducerId, ...]:
        """Those with a transaction open here."""
        return tuple(self._staged)

    def staged(self, producer_id: ProducerId) -> Mapping[TopicPartition, CommittedOffset]:
        return MappingProxyType(self._staged.get(producer_id, {}))

    def is_unstable(self, partition: TopicPartition) -> bool:
        return partition in self._unstable

    def commit(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        old = self._committed.get(partition)
        self.metadata_size += len(offset.metadata) - (0 if old is None else len(old.metadata))
        self._committed[partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        old = self._committed.pop(partition, None)
        if old is not None:
            self.metadata_size -= len(old.metadata)

    def stage(
        self, producer_id: ProducerId, partition: TopicPartition, offset: CommittedOffset
    ) -> None:
        offsets = self._staged.setdefault(producer_id, {})
        if partition not in offsets:
            self._unstable[partition] += 1
        offsets[partition] = offset

    def unstage(self, producer_id: ProducerId, partition: TopicPartition) -> None:
        offsets = self._staged.get(producer_id, {})
        if offsets.pop(partition, None) is None:
            return
        self._unstable[partition] -= 1
        if not self._unstable[partition]:
            del self._unstable[partition]
        if not offsets:
            del self._staged[producer_id]
