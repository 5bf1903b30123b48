"""The same client for code without an event loop: every call waits for its result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Self, TypeVar

from dragoman.client_core.blocking import BlockingClient, BlockingPart, opening, waiting
from dragoman.protocols.minibroker.client.client import MinibrokerClient
from dragoman.protocols.minibroker.client.settings import ClientSettings
from dragoman.protocols.minibroker.client.subscription import (
    GroupSubscription,
    Subscription,
)
from dragoman.protocols.minibroker.messages import Delivered, Published

AnySubscription = TypeVar("AnySubscription", bound=Subscription)


class BlockingSubscription(BlockingPart[AnySubscription]):
    """See `Subscription`."""

    @property
    def partitions(self) -> tuple[int, ...]:
        return self._part.partitions

    def next(self, timeout_s: float | None = None) -> Delivered | None:
        """The next record; None when there was none in time, or the subscription was closed."""
        return self._thread.run(lambda: self._next(timeout_s))

    async def _next(self, timeout_s: float | None) -> Delivered | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._part, None)
        except TimeoutError:
            return None

    def __iter__(self) -> Iterator[Delivered]:
        while (record := self.next()) is not None:
            yield record


class BlockingGroupSubscription(BlockingSubscription[GroupSubscription]):
    """See `GroupSubscription`."""

    commit = waiting(GroupSubscription.commit)


class BlockingMinibrokerClient(BlockingClient[MinibrokerClient]):
    """`MinibrokerClient` with methods that wait. Their meaning is described there."""

    def __init__(self, addresses: str, settings: ClientSettings | None = None) -> None:
        super().__init__(
            "dragoman-minibroker-client", lambda: MinibrokerClient(addresses, settings)
        )

    def open(self) -> Self:
        self._thread.run(self._client.open)
        return self

    publish = waiting(MinibrokerClient.publish)
    commit = waiting(MinibrokerClient.commit)
    subscribe = opening(MinibrokerClient.subscribe, BlockingSubscription[Subscription])
    join = opening(MinibrokerClient.join, BlockingGroupSubscription)

    def publish_many(self, topic: str, payloads: list[bytes], key: bytes = b"") -> list[Published]:
        """All at once, in order: their durability costs little more than that of one."""
        return self._thread.run(lambda: self._publish_many(topic, payloads, key))

    async def _publish_many(self, topic: str, payloads: list[bytes], key: bytes) -> list[Published]:
        publish = self._client.publish
        return await asyncio.gather(*(publish(topic, each, key) for each in payloads))
