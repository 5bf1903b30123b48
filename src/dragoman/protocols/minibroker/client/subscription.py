"""Subscriptions: endless iterators of records.

A subscription survives reconnections. On a new connection it continues after the last record that
it received. A group subscription rejoins, and uncommitted records are delivered again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self, TypeAlias

from dragoman.client_core.errors import ClientError
from dragoman.protocols.minibroker import messages as m

#: A callback that receives the member's new partitions.
OnRebalance: TypeAlias = Callable[[tuple[int, ...]], None]


class Owner(Protocol):
    """The part of the client that a subscription uses."""

    async def unsubscribe(self, subscription: Subscription) -> None: ...

    def queue_changed(self, subscription: Subscription) -> None: ...

    async def commit(self, topic: str, group: str, partition: int, offset: int) -> None: ...


class Subscription:
    """`async for record in subscription`. Ends after `close`; raises when the server ends it."""

    def __init__(self, client: Owner, topic: str) -> None:
        self._client = client
        self.topic = topic
        self.partitions: tuple[int, ...] = ()
        #: Whether the server has accepted it once, so that it is repeated on every new connection.
        self.is_established = False
        self._queue: deque[m.Delivered] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._failure: ClientError | None = None

    @property
    def waiting_records(self) -> int:
        """Records received and not yet taken."""
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> m.Delivered:
        while not self._queue:
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        record = self._queue.popleft()
        self._client.queue_changed(self)
        return record

    async def close(self) -> None:
        """Unsubscribe. Records that were not taken are dropped."""
        await self._client.unsubscribe(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- called by the client

    def request(self) -> m.Subscribe:
        """The request to send on a new connection."""
        raise NotImplementedError

    def accept(self, record: m.Delivered) -> None:
        self._queue.append(record)
        self._changed.set()
        self._client.queue_changed(self)

    def assign(self, partitions: tuple[int, ...]) -> None:
        self.partitions = partitions

    def end(self, failure: ClientError | None = None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._failure = failure
            if failure is None:
                self._queue.clear()
            self._changed.set()


class PartitionSubscription(Subscription):
    """A subscription to one partition, from an offset or from the next record on."""

    def __init__(self, client: Owner, topic: str, partition: int, offset: int | None) -> None:
        super().__init__(client, topic)
        self._partition = partition
        #: Where a new connection starts; None for the next record.
        self._offset = offset

    def request(self) -> m.Subscribe:
        if self._offset is None:
            return m.SubscribeHead(topic=self.topic, partition=self._partition)
        return m.SubscribeOffset(topic=self.topic, partition=self._partition, offset=self._offset)

    def accept(self, record: m.Delivered) -> None:
        # Records of an earlier subscription to the topic may still be in flight.
        if record.partition != self._partition:
            return
        if self._offset is None or record.offset >= self._offset:
            self._offset = record.offset + 1
            super().accept(record)


class GroupSubscription(Subscription):
    """A subscription to the partitions that the group assigns to this member."""

    def __init__(
        self, client: Owner, topic: str, group: str, on_rebalance: OnRebalance | None
    ) -> None:
        super().__init__(client, topic)
        self.group = group
        self._on_rebalance = on_rebalance

    def request(self) -> m.Subscribe:
        # Uncommitted records will be delivered again.
        self._queue.clear()
        self._client.queue_changed(self)
        return m.SubscribeGroup(topic=self.topic, group=self.group)

    def assign(self, partitions: tuple[int, ...]) -> None:
        for lost in set(self.partitions) - set(partitions):
            # The new owner of the partition receives these records as well.
            kept = [each for each in self._queue if each.partition != lost]
            self._queue = deque(kept)
        super().assign(partitions)
        self._client.queue_changed(self)
        if self._on_rebalance is not None:
            self._on_rebalance(partitions)

    async def commit(self, record: m.Delivered) -> None:
        """Commit this record and all records before it in its partition."""
        await self._client.commit(self.topic, self.group, record.partition, record.offset + 1)
