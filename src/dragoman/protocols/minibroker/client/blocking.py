"""The same client for code without an event loop: every call waits for its result.

The real client lives on a loop in a thread of its own; calls are handed over to it and may be made
from any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Self

from dragoman.dialing.errors import ClientClosedError
from dragoman.dialing.loop_thread import LoopThread
from dragoman.protocols.minibroker.client.client import MinibrokerClient
from dragoman.protocols.minibroker.client.settings import ClientSettings
from dragoman.protocols.minibroker.client.subscription import (
    GroupSubscription,
    OnRebalance,
    Subscription,
)
from dragoman.protocols.minibroker.messages import Delivered, Published


class BlockingSubscription:
    """See `Subscription`."""

    def __init__(self, thread: LoopThread, subscription: Subscription) -> None:
        self._thread = thread
        self._subscription = subscription

    @property
    def partitions(self) -> tuple[int, ...]:
        return self._subscription.partitions

    def next(self, timeout_s: float | None = None) -> Delivered | None:
        """The next record; None when there was none in time, or the subscription was closed."""
        return self._thread.run(lambda: self._next(timeout_s))

    async def _next(self, timeout_s: float | None) -> Delivered | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._subscription, None)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[Delivered]:
        while (record := self.next()) is not None:
            yield record

    def close(self) -> None:
        self._thread.run(lambda: self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingGroupSubscription(BlockingSubscription):
    """See `GroupSubscription`."""

    def __init__(self, thread: LoopThread, subscription: GroupSubscription) -> None:
        super().__init__(thread, subscription)
        self._member = subscription

    def commit(self, record: Delivered) -> None:
        self._thread.run(lambda: self._member.commit(record))


class BlockingMinibrokerClient:
    """`MinibrokerClient` with methods that wait. Their meaning is described there."""

    def __init__(self, addresses: str, settings: ClientSettings | None = None) -> None:
        self._thread = LoopThread("dragoman-minibroker-client")
        try:
            self._client = self._thread.make(lambda: MinibrokerClient(addresses, settings))
        except BaseException:
            self._thread.close()
            raise

    def open(self) -> Self:
        self._thread.run(lambda: self._client.open())
        return self

    def close(self) -> None:
        try:
            self._thread.run(lambda: self._client.close())
        except ClientClosedError:
            return
        self._thread.close()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, payload: bytes, key: bytes = b"") -> Published:
        return self._thread.run(lambda: self._client.publish(topic, payload, key))

    def publish_many(self, topic: str, payloads: list[bytes], key: bytes = b"") -> list[Published]:
        """All at once, in order: their durability costs little more than that of one."""
        return self._thread.run(lambda: self._publish_many(topic, payloads, key))

    async def _publish_many(self, topic: str, payloads: list[bytes], key: bytes) -> list[Published]:
        publish = self._client.publish
        return await asyncio.gather(*(publish(topic, each, key) for each in payloads))

    def subscribe(
        self, topic: str, partition: int = 0, offset: int | None = None
    ) -> BlockingSubscription:
        made = self._thread.run(lambda: self._client.subscribe(topic, partition, offset))
        return BlockingSubscription(self._thread, made)

    def join(
        self, topic: str, group: str, on_rebalance: OnRebalance | None = None
    ) -> BlockingGroupSubscription:
        """`on_rebalance` is called in the client's own thread."""
        made = self._thread.run(lambda: self._client.join(topic, group, on_rebalance))
        return BlockingGroupSubscription(self._thread, made)

    def commit(self, topic: str, group: str, partition: int, offset: int) -> None:
        self._thread.run(lambda: self._client.commit(topic, group, partition, offset))
