"""`RocketmqAdmin`: administration of offsets, messages and dead letters, and of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from enum import StrEnum
from typing import Final, Self, TypeVar

import msgspec

from dragoman.client_core.errors import ClientError, UnreachableError
from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.client import operations as table
from dragoman.protocols.rocketmq.client.cluster_admin import ClusterAdmin
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    NotFoundError,
    RocketmqError,
    TopicNotFoundError,
)
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, Sent
from dragoman.protocols.rocketmq.client.operations import Operation, Value
from dragoman.protocols.rocketmq.client.producer import Outgoing
from dragoman.protocols.rocketmq.client.pull import ALL, TAG, Filter, Pull, Pulled, PullStatus, pull
from dragoman.protocols.rocketmq.constants import DLQ_PREFIX, RETRY_PREFIX, Property, Response
from dragoman.protocols.rocketmq.messages import host_text, read_message_id

Result = TypeVar("Result")

#: In place of a time: the end of each queue.
LATEST: Final = -1
#: The group of tools, which sends no heartbeats.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_TIME_MAX_MS: Final = (1 << 63) - 1
_PULL_COUNT: Final = 32
#: Properties that are removed from a dead letter when it is sent again.
_DROPPED: Final = frozenset(
    (
        Property.DELAY,
        Property.RETRY_TOPIC,
        Property.REAL_TOPIC,
        Property.REAL_QUEUE_ID,
        Property.ORIGIN_MESSAGE_ID,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.DLQ_ORIGIN_TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID,
        "MIN_OFFSET",
        "MAX_OFFSET",
        "CONSUME_START_TIME",
    )
)


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The offsets of a group in each queue, its retry topic included."""

    offsets: dict[MessageQueue, bodies.OffsetWrapper]
    tps: float = 0.0

    @property
    def lag(self) -> int:
        """The number of messages that the group has not consumed."""
        return sum(lag_of(each) for each in self.offsets.values())


def lag_of(offsets: bodies.OffsetWrapper) -> int:
    return max(0, offsets.broker_offset - max(0, offsets.consumer_offset))


class TrackKind(StrEnum):
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    NOT_CONSUMED_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    BROADCASTING = "CONSUME_BROADCASTING"
    PULL = "PULL"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a group has consumed a message."""

    group: str
    kind: TrackKind
    detail: str = ""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group has failed to consume too many times."""

    group: str
    #: The topic that the message was first sent to.
    origin_topic: str
    origin_message_id: str
    message: ReceivedMessage


class RocketmqAdmin(ClusterAdmin):
    """Operations are named as in RocketMQ's tools. `broker` is an address, `HOST:PORT`.

    All operations raise `ClientError`: `RocketmqError` when a server refuses the request, and
    `UnsupportedRequestError` when it does not support the request.
    """

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- offsets of queues

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._call_queue(table.MIN_OFFSET, queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the message that will be stored next."""
        return await self._call_queue(table.MAX_OFFSET, queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at a time or later."""
        return await self._call_queue(table.SEARCH_OFFSET, queue, timestamp_ms)

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        return await self._call_queue(table.EARLIEST_MESSAGE_STORE_TIME, queue)

    async def query_consume_offset(self, queue: MessageQueue, group: str) -> int:
        """Raises `NotFoundError` when nothing was committed."""
        return await self._call_queue(table.QUERY_CONSUME_OFFSET, queue, group, False)

    async def update_consume_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        await self._call_queue(table.UPDATE_CONSUME_OFFSET, queue, group, offset)

    async def _call_queue(
        self, row: Operation[Result], queue: MessageQueue, *values: Value
    ) -> Result:
        """Call an operation whose first fields name a queue."""
        broker = await self._broker_of(queue)
        return await self._call(
            row, broker, queue.topic, queue.queue_id, queue.broker_name, *values
        )

    # ---- offsets of groups

    async def examine_consume_stats(self, group: str, topic: str | None = None) -> GroupProgress:
        """The group's progress in one topic, or in all topics that it consumes."""
        brokers = await (
            self._group_brokers(group) if topic is None else self._topic_brokers(topic)
        )
        offsets: dict[MessageQueue, bodies.OffsetWrapper] = {}
        tps = 0.0
        for each in await self._call_all(table.EXAMINE_CONSUME_STATS, brokers, group, topic):
            offsets |= bodies.by_queue(each.offset_table)
            tps += each.consume_tps
        return GroupProgress(offsets=dict(sorted(offsets.items())), tps=tps)

    #: RocketMQ has three names for this operation.
    examine_consume_stats_by_topic = examine_consume_stats_concurrent = examine_consume_stats

    async def fetch_consume_stats_in_broker(
        self, broker: str, *, is_order: bool = False
    ) -> bodies.BrokerConsumeStats:
        return await self._call(table.FETCH_CONSUME_STATS_IN_BROKER, broker, is_order)

    async def query_consume_time_span(self, topic: str, group: str) -> list[bodies.QueueTimeSpan]:
        brokers = await self._topic_brokers(topic)
        found = await self._call_each(table.QUERY_CONSUME_TIME_SPAN, brokers, topic, group)
        return [span for each in found for span in each]

    async def get_consume_status(
        self, topic: str, group: str, client_addr: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets of members by client id, which brokers request from one member or all."""
        brokers = await self._topic_brokers(topic)
        values = (topic, group, client_addr or None)
        merged: dict[str, dict[MessageQueue, int]] = {}
        for found in await self._call_each(table.GET_CONSUME_STATUS, brokers, *values):
            for client, offsets in found.items():
                merged.setdefault(client, {}).update(offsets)
        return merged

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset a group's offsets by time. Returns the new offsets. `LATEST` skips all messages.

        Without `force`, offsets only move back.
        """
        row, values = table.RESET_OFFSET_BY_TIMESTAMP, (topic, group, timestamp_ms, force)
        moved: dict[MessageQueue, int] = {}
        for broker in await self._topic_brokers(topic):
            try:
                moved.update(await self._call(row, broker, *values))
            except GroupOfflineError:
                moved |= await self._reset_offline(broker, topic, group, timestamp_ms, force)
        return moved

    async def _reset_offline(
        self, broker: str, topic: str, group: str, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        """Reset the offsets of a group without members, for brokers that refuse the request."""
        moved: dict[MessageQueue, int] = {}
        for queue in (await self._routes.route(topic)).read_queues:
            if self._routes.any_of(queue.broker_name) != broker:
                continue
            if timestamp_ms == LATEST:
                offset = await self.max_offset(queue)
            else:
                offset = await self.search_offset(queue, timestamp_ms)
            try:
                committed = await self.query_consume_offset(queue, group)
            except NotFoundError:
                committed = offset
            if force or offset <= committed:
                await self.update_consume_offset(queue, group, offset)
                moved[queue] = offset
        return moved

    async def clone_group_offset(
        self, source: str, target: str, topic: str, *, is_offline: bool = False
    ) -> None:
        """Copy the offsets of a group to another one, for a topic and for the retry topic."""
        for each in (topic, RETRY_PREFIX + source):
            try:
                brokers = await self._topic_brokers(each)
            except TopicNotFoundError:
                if each == topic:
                    raise
                continue
            values = (source, target, each, is_offline)
            await self._call_each(table.CLONE_GROUP_OFFSET, brokers, *values)

    # ---- one message

    async def view_message(self, topic: str, message_id: str) -> ReceivedMessage:
        """A message by its offset message id or its unique id. Raises `NotFoundError`.

        The two look alike, but only an offset message id contains a broker's address. If the
        address is not that of a known broker, the id is tried as an offset message id last.
        """
        broker = _broker_in(message_id)
        if broker is not None and broker in await self._topic_brokers(topic):
            try:
                return await self.query_message_by_id(message_id, topic)
            except NotFoundError:
                return await self.query_message_by_unique_key(topic, message_id)
        try:
            return await self.query_message_by_unique_key(topic, message_id)
        except NotFoundError:
            if broker is None:
                raise
        try:
            return await self.query_message_by_id(message_id, topic)
        except UnreachableError as error:
            raise NotFoundError(Response.QUERY_NOT_FOUND, str(error)) from None

    async def query_message_by_id(self, message_id: str, topic: str = "") -> ReceivedMessage:
        """A message by its offset message id, from the broker in the id. Raises `NotFoundError`."""
        broker = _broker_in(message_id)
        if broker is None:
            text = f"{message_id!r} is not an offset message id: it contains no broker's address"
            raise NotFoundError(Response.QUERY_NOT_FOUND, text)
        offset = read_message_id(message_id)[1]
        try:
            found = await self._call(table.QUERY_MESSAGE_BY_ID, broker, offset, topic or None)
        except RocketmqError as error:
            if error.number == Response.SYSTEM_ERROR:
                raise NotFoundError(error.number, str(error)) from None
            raise
        return _single(found, message_id)

    async def query_message_by_unique_key(self, topic: str, unique_key: str) -> ReceivedMessage:
        """Raises `NotFoundError`."""
        found = await self._query(topic, unique_key, 32, 0, _TIME_MAX_MS, is_unique=True)
        kept = [each for each in found if each.unique_id == unique_key]
        return _single(kept or found, unique_key)

    async def query_message_by_offset(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Raises `NotFoundError`."""
        found = await self.pull_message(queue, offset, max_count=1)
        kept = [each for each in found.messages if each.queue_offset == offset]
        return _single(kept, f"{queue.topic}-{queue.broker_name}-{queue.queue_id}@{offset}")

    # ---- several messages

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 32,
        begin_ms: int = 0,
        end_ms: int = _TIME_MAX_MS,
    ) -> list[ReceivedMessage]:
        """The messages with a key, from all brokers, oldest first."""
        return await self._query(topic, key, max_count, begin_ms, end_ms)

    async def _query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_unique: bool = False,
    ) -> list[ReceivedMessage]:
        values = (topic, key, max_count, begin_ms, end_ms, "true" if is_unique else None)
        found: list[ReceivedMessage] = []
        for broker in await self._topic_brokers(topic):
            try:
                found.extend(await self._call(table.QUERY_MESSAGE, broker, *values))
            except NotFoundError:
                continue
        if not is_unique:
            # Brokers compare only hashes of keys.
            found = [each for each in found if key in each.keys or key == each.unique_id]
        return sorted(found, key=lambda each: each.store_ms)[:max_count]

    async def pull_message(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_count: int = 32,
        expression: str = ALL,
        wait_s: float = 0.0,
    ) -> Pulled:
        """Pull messages without a group. `wait_s` is how long the broker waits if there are
        none.
        """
        await self._broker_of(queue)
        subscription = Filter(expression).subscription(queue.topic, 0)
        request = Pull(
            group=TOOLS_GROUP,
            queue=queue,
            offset=offset,
            subscription=subscription,
            max_count=max_count,
            suspend_ms=int(wait_s * 1000),
        )
        return await pull(self._remoting, self._routes, request)

    async def query_message_by_time(
        self, topic: str, begin_ms: int, end_ms: int, *, max_count: int = 1000
    ) -> list[ReceivedMessage]:
        """The messages stored at `begin_ms` or later, and before `end_ms`, oldest first.

        At most `max_count` messages of each queue are read.
        """
        count = min(max_count, ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX)
        found: list[ReceivedMessage] = []
        for queue in (await self._routes.refreshed(topic)).read_queues:
            start = await self.search_offset(queue, begin_ms)
            taken = 0
            async for each in self.read_queue(queue, start):
                if each.store_ms >= end_ms or taken >= count:
                    break
                taken += 1
                found.append(each)
        return sorted(found, key=lambda each: each.store_ms)[:count]

    async def read_queue(
        self, queue: MessageQueue, offset: int = 0, *, expression: str = ALL
    ) -> AsyncIterator[ReceivedMessage]:
        """All messages from an offset to the queue's end at the time of the first pull."""
        end: int | None = None
        while end is None or offset < end:
            pulled = await self.pull_message(
                queue, offset, max_count=_PULL_COUNT, expression=expression
            )
            end = pulled.max_offset if end is None else end
            for each in pulled.messages:
                yield each
            is_stuck = pulled.status is PullStatus.NO_NEW_MESSAGE or pulled.next_offset == offset
            if is_stuck or pulled.next_offset < offset:
                return
            offset = pulled.next_offset

    async def query_consume_queue(
        self, queue: MessageQueue, index: int, count: int, group: str = ""
    ) -> bodies.ConsumeQueueView:
        broker = await self._broker_of(queue)
        values = (queue.topic, queue.queue_id, index, count, group or None)
        return await self._call(table.QUERY_CONSUME_QUEUE, broker, *values)

    async def consume_message_directly(
        self, group: str, client_id: str, topic: str, message_id: str
    ) -> bodies.DirectConsumption:
        """Make one member consume a message again. Raises `GroupOfflineError`."""
        message = await self.view_message(topic, message_id)
        route = await self._routes.refreshed(topic)
        broker = host_text(message.store_host)
        name = next(
            (
                each.broker_name
                for each in route.data.broker_datas
                if broker in each.broker_addrs.values()
            ),
            "",
        )
        values = (group, client_id, message.message_id, name, topic)
        return await self._call(table.CONSUME_MESSAGE_DIRECTLY, broker, *values)

    async def resume_check_half_message(self, topic: str, message_id: str) -> None:
        """Resume the checks of a transaction that was checked too often."""
        host, _ = read_message_id(message_id)
        await self._call(table.RESUME_CHECK_HALF_MESSAGE, host_text(host), topic, message_id)

    # ---- tracks

    async def message_track_detail(self, message: ReceivedMessage) -> list[MessageTrack]:
        """For each group that consumes the topic, whether it has consumed the message."""
        groups = await self.query_topic_consume_by_who(message.topic)
        return list(await asyncio.gather(*(self._track(each, message) for each in groups)))

    async def _track(self, group: str, message: ReceivedMessage) -> MessageTrack:
        try:
            members = await self.examine_consumer_connection_info(group)
            kind = await self._track_kind(group, members, message)
        except GroupOfflineError as error:
            return MessageTrack(group=group, kind=TrackKind.NOT_ONLINE, detail=str(error))
        except ClientError as error:
            return MessageTrack(group=group, kind=TrackKind.UNKNOWN, detail=str(error))
        return MessageTrack(group=group, kind=kind)

    async def _track_kind(
        self, group: str, members: bodies.ConsumerConnection, message: ReceivedMessage
    ) -> TrackKind:
        if members.consume_type == "CONSUME_ACTIVELY":
            return TrackKind.PULL
        if members.message_model is bodies.MessageModel.BROADCASTING:
            return TrackKind.BROADCASTING
        progress = await self.examine_consume_stats(group, message.topic)
        for queue, offsets in progress.offsets.items():
            if (queue.topic, queue.queue_id) != (message.topic, message.queue_id):
                continue
            if message.broker_name and queue.broker_name != message.broker_name:
                continue
            if offsets.consumer_offset <= message.queue_offset:
                return TrackKind.NOT_CONSUMED_YET
            wanted = members.subscription_table.get(message.topic)
            if wanted is not None and wanted.expression_type == TAG:
                kept = Filter(wanted.sub_string).kept([message])
                return TrackKind.CONSUMED if kept else TrackKind.CONSUMED_BUT_FILTERED
            return TrackKind.CONSUMED
        return TrackKind.UNKNOWN

    # ---- dead letters

    async def list_dead_letters(
        self, group: str, *, begin_ms: int = 0, end_ms: int | None = None, max_count: int = 1000
    ) -> list[DeadLetter]:
        """The dead letters of a group, oldest first."""
        topic, count = DLQ_PREFIX + group, min(max_count, ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX)
        try:
            queues = (await self._routes.refreshed(topic)).read_queues
        except TopicNotFoundError:
            return []
        found: list[DeadLetter] = []
        for queue in queues:
            start = await self.search_offset(queue, begin_ms) if begin_ms else 0
            async for message in self.read_queue(queue, start or await self.min_offset(queue)):
                if end_ms is not None and message.store_ms >= end_ms:
                    break
                found.append(_dead_letter(group, message))
                if len(found) >= count:
                    return found
        return found

    async def resend_dead_letters(self, letters: Iterable[DeadLetter]) -> list[Sent]:
        """Send dead letters to the retry topic of their group. No other group gets them.

        The dead letters also stay in their topic.
        """
        producer = self._client.own_producer
        return [await producer.deliver(_again(letter)) for letter in letters]


def _broker_in(message_id: str) -> str | None:
    """The address in an offset message id; None if the id contains none."""
    try:
        host, _ = read_message_id(message_id)
    except DecodeError:
        return None
    is_port = 0 < int.from_bytes(host[-4:], "big") < 65536
    return host_text(host) if is_port else None


def _single(found: list[ReceivedMessage], what: str) -> ReceivedMessage:
    if not found:
        raise NotFoundError(Response.QUERY_NOT_FOUND, f"there is no message {what}")
    return found[0]


def _again(letter: DeadLetter) -> Outgoing:
    message = letter.message
    properties = {
        name: value for name, value in message.properties.items() if name not in _DROPPED
    } | {
        Property.RETRY_TOPIC: letter.origin_topic,
        Property.ORIGIN_MESSAGE_ID: letter.origin_message_id,
    }
    return Outgoing(RETRY_PREFIX + letter.group, message.body, properties, flag=message.flag)


def _dead_letter(group: str, message: ReceivedMessage) -> DeadLetter:
    properties = message.properties
    origin = properties.get(Property.RETRY_TOPIC) or properties.get(Property.DLQ_ORIGIN_TOPIC)
    return DeadLetter(
        group=group,
        origin_topic=origin or message.topic,
        origin_message_id=properties.get(Property.ORIGIN_MESSAGE_ID)
        or properties.get(Property.DLQ_ORIGIN_MESSAGE_ID)
        or message.message_id,
        message=message,
    )
