"""Delayed and held records that this node stores, by the topics that they are for."""

from __future__ import annotations

from typing import Protocol

from dragoman.api.access import Access, Rights
from dragoman.api.declaration import PageLimit
from dragoman.api.delayed_values import DelayedPage, DelayedTopic
from dragoman.api.topics import page_of
from dragoman.broker.delayed import DelayedRecords
from dragoman.cluster.metadata import MetadataImage
from dragoman.security.access import Caller, Operation


class DelayedBroker(Rights, Protocol):
    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def delayed(self) -> DelayedRecords: ...


class DelayedService:
    def __init__(self, broker: DelayedBroker) -> None:
        self._broker = broker
        self._access = Access(broker)

    def list_delayed(self, caller: Caller, after: str, limit: PageLimit) -> DelayedPage:
        self._access.require_cluster(caller, Operation.DESCRIBE)
        store = self._broker.delayed.store
        counts: dict[str, int] = {}
        for partition_id, count in store.counts().items():
            # Records for a topic that was just deleted are about to be dropped.
            partition = self._broker.image.partitions.get(partition_id)
            if partition is not None:
                name = partition.topic.name
                counts[name] = counts.get(name, 0) + count
        names, following = page_of(counts, after, limit)
        return DelayedPage(
            node_id=self._broker.node_id,
            items=tuple(DelayedTopic(topic=name, records=counts[name]) for name in names),
            next=following,
            records=store.record_count,
        )
