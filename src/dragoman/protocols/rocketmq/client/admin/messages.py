"""Messages looked for, read without a group, and handed to consumers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import StrEnum

import msgspec

from dragoman.dialing.errors import ClientError, UnreachableError
from dragoman.errors import DecodeError
from dragoman.limits import ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import (
    ConsumeQueueView,
    ConsumerConnection,
    DirectConsumption,
    MessageModel,
    MessageQueue,
    RequestMode,
)
from dragoman.protocols.rocketmq.client.admin.groups import GroupCalls
from dragoman.protocols.rocketmq.client.admin.offsets import OffsetCalls
from dragoman.protocols.rocketmq.client.admin.topics import TopicCalls
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    NotFoundError,
    RocketmqError,
)
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, received
from dragoman.protocols.rocketmq.client.pull import (
    ALL,
    TAG,
    Filter,
    Pull,
    Pulled,
    PullStatus,
    pull,
)
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.messages import host_text, read_message_id

#: The group of tools, which needs no heartbeat.
TOOLS_GROUP = "TOOLS_CONSUMER"
_TIME_MAX_MS = (1 << 63) - 1
_MESSAGE_AT_ONCE = 32


class TrackKind(StrEnum):
    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    NOT_CONSUMED_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    BROADCASTING = "CONSUME_BROADCASTING"
    PULL = "PULL"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True, kw_only=True):
    """What one group made of a message."""

    group: str
    kind: TrackKind
    detail: str = ""


class MessageCalls(TopicCalls, GroupCalls, OffsetCalls):
    # ---- one message

    async def view_message(self, topic: str, message_id: str) -> ReceivedMessage:
        """By its offset message id or its unique id: they look alike. Raises `NotFoundError`.

        A unique id names no broker, so what it names is dialled only when it is known as one, or
        when there is nothing else to try.
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
        """By its offset message id, at the broker that it names. Raises `NotFoundError`."""
        broker = _broker_in(message_id)
        if broker is None:
            text = f"{message_id!r} names no broker: it is no offset message id"
            raise NotFoundError(Response.QUERY_NOT_FOUND, text)
        fields: Fields = {"offset": read_message_id(message_id)[1], "topic": topic or None}
        try:
            answer = await self._ask(broker, Request.VIEW_MESSAGE_BY_ID, fields)
        except RocketmqError as error:
            if error.number == Response.SYSTEM_ERROR:
                raise NotFoundError(error.number, str(error)) from None
            raise
        return _single(received(answer.body), message_id)

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

    # ---- several

    async def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 32,
        begin_ms: int = 0,
        end_ms: int = _TIME_MAX_MS,
    ) -> list[ReceivedMessage]:
        """With this key, of all brokers, oldest first; empty when there are none."""
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
        fields: Fields = {
            "topic": topic,
            "key": key,
            "maxNum": max_count,
            "beginTimestamp": begin_ms,
            "endTimestamp": end_ms,
            "_UNIQUE_KEY_QUERY": "true" if is_unique else None,
        }
        found: list[ReceivedMessage] = []
        for broker in await self._topic_brokers(topic):
            try:
                answer = await self._ask(broker, Request.QUERY_MESSAGE, fields)
            except NotFoundError:
                continue
            found += received(answer.body)
        if not is_unique:
            # Brokers look for hashes of keys.
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
        """What is there, for no group. `wait_s` is how long the broker waits for something."""
        await self._broker_of(queue)
        subscription = Filter(expression).subscription(queue.topic, 0)
        asked = Pull(
            group=TOOLS_GROUP,
            queue=queue,
            offset=offset,
            subscription=subscription,
            max_count=max_count,
            suspend_ms=int(wait_s * 1000),
        )
        return await pull(self._client.remoting, self._client.routes, asked)

    async def query_message_by_time(
        self, topic: str, begin_ms: int, end_ms: int, *, max_count: int = 1000
    ) -> list[ReceivedMessage]:
        """Those stored from `begin_ms` on and before `end_ms`, oldest first.

        At most `max_count` of each queue are looked at.
        """
        count = min(max_count, ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX)
        found: list[ReceivedMessage] = []
        for queue in (await self._client.routes.refreshed(topic)).read_queues:
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
        """All messages from an offset to the present end."""
        end: int | None = None
        while end is None or offset < end:
            pulled = await self.pull_message(
                queue, offset, max_count=_MESSAGE_AT_ONCE, expression=expression
            )
            end = pulled.max_offset if end is None else end
            for each in pulled.messages:
                yield each
            is_stuck = pulled.status is PullStatus.NO_NEW_MESSAGE or pulled.next_offset == offset
            if is_stuck or pulled.next_offset < offset:
                return
            offset = pulled.next_offset

    # ---- by hand

    async def query_consume_queue(
        self, queue: MessageQueue, index: int, count: int, group: str = ""
    ) -> ConsumeQueueView:
        fields: Fields = {
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "index": index,
            "count": count,
            "consumerGroup": group or None,
        }
        broker = await self._broker_of(queue)
        return await self._read(broker, ConsumeQueueView, Request.QUERY_CONSUME_QUEUE, fields)

    async def consume_message_directly(
        self, group: str, client_id: str, topic: str, message_id: str
    ) -> DirectConsumption:
        """Have one member consume a message once more. Raises `GroupOfflineError`."""
        message = await self.view_message(topic, message_id)
        route = await self._client.routes.refreshed(topic)
        broker = host_text(message.store_host)
        name = next(
            (
                each.broker_name
                for each in route.data.broker_datas
                if broker in each.broker_addrs.values()
            ),
            "",
        )
        fields: Fields = {
            "consumerGroup": group,
            "clientId": client_id,
            "msgId": message.message_id,
            "brokerName": name,
            "topic": topic,
        }
        code = Request.CONSUME_MESSAGE_DIRECTLY
        return await self._read(broker, DirectConsumption, code, fields)

    async def resume_check_half_message(self, topic: str, message_id: str) -> None:
        """Have a transaction checked again that was given up."""
        host, _ = read_message_id(message_id)
        fields: Fields = {"topic": topic, "msgId": message_id}
        await self._ask(host_text(host), Request.RESUME_CHECK_HALF_MESSAGE, fields)

    async def set_message_request_mode(self, broker: str, mode: RequestMode) -> None:
        body = bodies.encode(mode)
        await self._ask(broker, Request.SET_MESSAGE_REQUEST_MODE, body=body)

    async def message_track_detail(self, message: ReceivedMessage) -> list[MessageTrack]:
        """What each group that consumes its topic made of it."""
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
        self, group: str, members: ConsumerConnection, message: ReceivedMessage
    ) -> TrackKind:
        if members.consume_type == "CONSUME_ACTIVELY":
            return TrackKind.PULL
        if members.message_model is MessageModel.BROADCASTING:
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


def _broker_in(message_id: str) -> str | None:
    """The address in an offset message id; None when it cannot be one."""
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
