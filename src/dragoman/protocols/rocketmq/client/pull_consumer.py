"""A consumer that reads the queues it is told to: for programs that keep their own order of things.

It belongs to a group, whose offsets it may commit, and takes part in no sharing of queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from dragoman.client_core.errors import ClientClosedError
from dragoman.protocols.rocketmq.bodies import (
    ConsumerData,
    ConsumeType,
    MessageQueue,
)
from dragoman.protocols.rocketmq.client.errors import NotFoundError, RocketmqError
from dragoman.protocols.rocketmq.client.fetching import Pull, Pulled, pull
from dragoman.protocols.rocketmq.client.filters import Filter
from dragoman.protocols.rocketmq.codec import Command
from dragoman.protocols.rocketmq.constants import Response

if TYPE_CHECKING:
    from dragoman.protocols.rocketmq.client.facade import RocketmqClient

_EVERYTHING: Final = Filter()


class PullConsumer:
    def __init__(self, client: RocketmqClient, group: str) -> None:
        self.group = group
        self._client = client
        self._version = client.clock.wall_ms()
        self._filters: dict[str, Filter] = {}
        #: Of the next pull.
        self._positions: dict[MessageQueue, int] = {}
        self._broker_ids: dict[MessageQueue, int] = {}
        self._is_started = False
        self._is_closed = False

    # ---- life

    async def start(self) -> None:
        """Not needed before pulling: the first call does it."""
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        if not self._is_started:
            self._client.membership.add_consumer(self)
            self._client.started(self.close)
            self._is_started = True

    async def close(self) -> None:
        """Commits nothing."""
        self._is_closed = True
        if self._is_started:
            self._is_started = False
            self._client.ended(self.close)
            await self._client.membership.remove_consumer(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Raises `TopicNotFoundError`, and `RocketmqError` when the group cannot be joined."""
        await self.start()
        route = await self._client.routes.refreshed(topic)
        self._filters.setdefault(topic, _EVERYTHING)
        await self._client.membership.greet(is_joining=True)
        return route.read_queues

    async def first_offset(self, queue: MessageQueue) -> int:
        return await self._client.admin.min_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Of the message that will be stored next."""
        return await self._client.admin.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Of the first message stored at or after a time."""
        return await self._client.admin.search_offset(queue, timestamp_ms)

    # ---- reading

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._positions[queue] = offset

    async def position(self, queue: MessageQueue) -> int:
        """Where the next pull begins: at first, what the group has committed, else the start."""
        found = self._positions.get(queue)
        if found is None:
            found = await self.committed(queue)
            if found is None:
                found = await self.first_offset(queue)
            self._positions.setdefault(queue, found)
        return self._positions[queue]

    async def pull(
        self,
        queue: MessageQueue,
        *,
        max_count: int = 32,
        wait_s: float = 0.0,
        wanted: str | Filter = _EVERYTHING,
    ) -> Pulled:
        """The next messages of a queue, and the position moves behind them.

        `wait_s` is how long the broker waits for one; clients wait for brokers half a minute.
        """
        await self.start()
        if queue.topic not in self._filters:
            await self.queues(queue.topic)
        # Brokers are known only while a route names them, and a producer may have had it forgotten.
        await self._client.routes.route(queue.topic)
        offset = await self.position(queue)
        wanted = Filter(wanted) if isinstance(wanted, str) else wanted
        asked = Pull(
            group=self.group,
            queue=queue,
            offset=offset,
            subscription=wanted.subscription(queue.topic, self._version),
            max_count=max_count,
            suspend_ms=int(wait_s * 1000),
            # After a failure it is the master's turn.
            broker_id=self._broker_ids.pop(queue, 0),
        )
        found = await pull(self._client, asked)
        self._broker_ids[queue] = found.suggested_broker_id
        if self._positions[queue] == offset:
            # Else somebody has sought another place meanwhile.
            self._positions[queue] = found.next_offset
        found.messages[:] = wanted.kept(found.messages)
        return found

    # ---- offsets of the group

    async def committed(self, queue: MessageQueue) -> int | None:
        """None when the group has committed nothing."""
        try:
            return await self._client.admin.query_consume_offset(queue, self.group)
        except NotFoundError:
            return None

    async def commit(self, queue: MessageQueue, offset: int | None = None) -> None:
        """The position unless an offset is given: the next message to be read."""
        if offset is None:
            offset = await self.position(queue)
        await self._client.admin.update_consume_offset(queue, self.group, offset)

    # ---- for brokers

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.ACTIVELY,
            subscription_data_set=[
                each.subscription(topic, self._version) for topic, each in self._filters.items()
            ],
        )

    def rebalance_soon(self) -> None:
        """It has no share."""

    async def reset_offsets(self, request: Command) -> None:
        raise _unable(request.code)

    def offsets(self, topic: str) -> Command:
        raise _unable(f"offsets of {topic}")

    def running_info(self) -> Command:
        raise _unable("running info")

    async def consume_directly(self, request: Command) -> Command:
        raise _unable(request.code)


def _unable(what: object) -> RocketmqError:
    return RocketmqError(Response.SYSTEM_ERROR, f"a pull consumer cannot do this: {what}")
