"""Pulls from queues: the filter, the request, the broker's response, and the pull consumer.

A pull consumer reads the queues that the application names. It may commit offsets for its group,
but has no share of the group's queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq.bodies import (
    ConsumerData,
    ConsumeType,
    MessageQueue,
    SubscriptionData,
)
from dragoman.protocols.rocketmq.client.errors import NotFoundError, refusal
from dragoman.protocols.rocketmq.client.membership import ConsumerMember, Membership
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, received
from dragoman.protocols.rocketmq.client.offsets import QueueOffsets
from dragoman.protocols.rocketmq.client.remoting import Fields, Remoting
from dragoman.protocols.rocketmq.client.routes import Routes
from dragoman.protocols.rocketmq.constants import PullFlag, Request, Response
from dragoman.protocols.rocketmq.messages import tag_hash
from dragoman.world import Clock

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"


class Filter(msgspec.Struct, frozen=True):
    """A filter of the messages of a topic.

    The expression is tags separated by `||`, `*` for all messages, or a condition if the type is
    `SQL92`.
    """

    expression: str = ALL
    type: str = TAG

    @property
    def tags(self) -> frozenset[str]:
        """The tags of messages that match. The empty set matches all messages."""
        if self.type != TAG or self.expression.strip() in ("", ALL):
            return frozenset()
        return frozenset(each.strip() for each in self.expression.split("||") if each.strip())

    def kept(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages whose tags match. Brokers compare only hashes of tags."""
        tags = self.tags
        return [each for each in messages if not tags or each.tags in tags]

    def subscription(self, topic: str, version: int) -> SubscriptionData:
        """The filter as it is sent in requests."""
        tags = sorted(self.tags)
        return SubscriptionData(
            topic=topic,
            sub_string=self.expression.strip() or ALL,
            tags_set=tags,
            code_set=[tag_hash(each) for each in tags],
            sub_version=version,
            expression_type=self.type,
        )


class PullStatus(IntEnum):
    FOUND = Response.SUCCESS
    #: The offset is the end of the queue.
    NO_NEW_MESSAGE = Response.PULL_NOT_FOUND
    #: The filter matches none of the messages at the offset.
    NO_MATCHED_MESSAGE = Response.PULL_RETRY_IMMEDIATELY
    #: The queue does not have the offset; `next_offset` is a valid one.
    OFFSET_ILLEGAL = Response.PULL_OFFSET_MOVED


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    queue: MessageQueue
    offset: int
    subscription: SubscriptionData
    max_count: int = 32
    #: How long the broker may wait for messages; 0 for not at all.
    suspend_ms: int = 0
    #: The offset that the pull also commits for the group.
    commit_offset: int | None = None
    #: The master (0) or the slave to pull from. Masters suggest slaves.
    broker_id: int = 0


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    status: PullStatus
    messages: list[ReceivedMessage] = []
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    suggested_broker_id: int = 0


async def pull(remoting: Remoting, routes: Routes, request: Pull) -> Pulled:
    """Pull messages from a queue. Raises `ClientError` and `DecodeError`."""
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if request.suspend_ms else 0)
    # Slaves do not accept commits.
    if request.commit_offset is not None and request.broker_id == 0:
        flags |= PullFlag.COMMIT_OFFSET
    fields: Fields = {
        "consumerGroup": request.group,
        "topic": request.queue.topic,
        "queueId": request.queue.queue_id,
        "queueOffset": request.offset,
        "maxMsgNums": request.max_count,
        "sysFlag": int(flags),
        "commitOffset": request.commit_offset or 0,
        "suspendTimeoutMillis": request.suspend_ms,
        "subscription": request.subscription.sub_string,
        "subVersion": request.subscription.sub_version,
        "expressionType": request.subscription.expression_type,
        "bname": request.queue.broker_name,
    }
    address = remoting.broker(routes.any_of(request.queue.broker_name, request.broker_id))
    timeout_s = remoting.settings.request_timeout_s + request.suspend_ms / 1000
    response = await remoting.request(address, Request.PULL_MESSAGE, fields, timeout_s=timeout_s)
    try:
        status = PullStatus(response.code)
    except ValueError:
        raise refusal(response, address) from None
    found = response.fields
    try:
        return Pulled(
            status=status,
            messages=received(response.body, request.queue) if status is PullStatus.FOUND else [],
            next_offset=int(found.get("nextBeginOffset", request.offset)),
            min_offset=int(found.get("minOffset", 0)),
            max_offset=int(found.get("maxOffset", 0)),
            suggested_broker_id=int(found.get("suggestWhichBrokerId", 0)),
        )
    except ValueError:
        raise DecodeError(f"{address} answered a pull with {found}") from None


_EVERYTHING: Final = Filter()


class PullConsumer(ConsumerMember):
    def __init__(
        self,
        group: str,
        remoting: Remoting,
        routes: Routes,
        membership: Membership,
        queue_offsets: QueueOffsets,
        clock: Clock,
    ) -> None:
        super().__init__(group, membership)
        self._remoting = remoting
        self._routes = routes
        self._queue_offsets = queue_offsets
        self._version = clock.wall_ms()
        self._filters: dict[str, Filter] = {}
        #: The offset of the next pull from each queue.
        self._positions: dict[MessageQueue, int] = {}
        #: The broker id that the master suggests for the next pull.
        self._broker_ids: dict[MessageQueue, int] = {}

    # ---- queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read.

        Raises `TopicNotFoundError`, and `RocketmqError` when the group cannot be joined.
        """
        await self.start()
        route = await self._routes.refreshed(topic)
        self._filters.setdefault(topic, _EVERYTHING)
        await self._membership.greet(is_joining=True)
        return route.read_queues

    async def first_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message."""
        return await self._queue_offsets.min_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset of the message that will be stored next."""
        return await self._queue_offsets.max_offset(queue)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or later."""
        return await self._queue_offsets.search_offset(queue, timestamp_ms)

    # ---- reading

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the next pull."""
        self._positions[queue] = offset

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next pull: initially the committed offset or, without one, the oldest
        message.
        """
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
        """Pull the next messages of a queue, and advance the position.

        `wait_s` is how long the broker waits when there are no messages.
        """
        await self.start()
        if queue.topic not in self._filters:
            await self.queues(queue.topic)
        # A producer may have dropped the route, including the broker's address.
        await self._routes.route(queue.topic)
        offset = await self.position(queue)
        wanted = Filter(wanted) if isinstance(wanted, str) else wanted
        request = Pull(
            group=self.group,
            queue=queue,
            offset=offset,
            subscription=wanted.subscription(queue.topic, self._version),
            max_count=max_count,
            suspend_ms=int(wait_s * 1000),
            # If this pull fails, the next one goes to the master.
            broker_id=self._broker_ids.pop(queue, 0),
        )
        found = await pull(self._remoting, self._routes, request)
        self._broker_ids[queue] = found.suggested_broker_id
        if self._positions[queue] == offset:
            # `seek` was not called during the pull.
            self._positions[queue] = found.next_offset
        found.messages[:] = wanted.kept(found.messages)
        return found

    # ---- committed offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group, or None."""
        try:
            return await self._queue_offsets.query_consume_offset(queue, self.group)
        except NotFoundError:
            return None

    async def commit(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Commit the offset of the next message to read: the given offset, or the position."""
        if offset is None:
            offset = await self.position(queue)
        await self._queue_offsets.update_consume_offset(queue, self.group, offset)

    # ---- requests of brokers

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.ACTIVELY,
            subscription_data_set=[
                each.subscription(topic, self._version) for topic, each in self._filters.items()
            ],
        )
