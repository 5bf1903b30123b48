"""How far groups are, and moving them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.errors import DecodeError
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpan,
    GroupOffsets,
    MessageQueue,
    OffsetWrapper,
    QueueTimeSpan,
)
from dragoman.protocols.rocketmq.client.admin.reaching import Reaching, gathered, table
from dragoman.protocols.rocketmq.client.errors import (
    GroupOfflineError,
    NotFoundError,
    TopicNotFoundError,
)
from dragoman.protocols.rocketmq.client.remoting import Fields
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Request

#: Instead of a time: the end of each queue.
LATEST = -1


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group is in each queue, those of its retry topic included."""

    offsets: dict[MessageQueue, OffsetWrapper]
    tps: float = 0.0

    @property
    def lag(self) -> int:
        """Messages that it has not consumed."""
        return sum(lag_of(each) for each in self.offsets.values())


def lag_of(offsets: OffsetWrapper) -> int:
    return max(0, offsets.broker_offset - max(0, offsets.consumer_offset))


class OffsetCalls(Reaching):
    # ---- progress

    async def examine_consume_stats(self, group: str, topic: str | None = None) -> GroupProgress:
        """Of one topic, or of all that it consumes. Raises `NotFoundError` and its like."""

        async def ask(broker: str) -> ConsumeStats:
            fields: Fields = {"consumerGroup": group, "topic": topic}
            return await self._read(broker, ConsumeStats, Request.GET_CONSUME_STATS, fields)

        brokers = await (
            self._group_brokers(group) if topic is None else self._topic_brokers(topic)
        )
        offsets: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for each in await gathered(ask, brokers):
            offsets |= bodies.by_queue(each.offset_table)
            tps += each.consume_tps
        return GroupProgress(offsets=dict(sorted(offsets.items())), tps=tps)

    #: The original has three names for it.
    examine_consume_stats_by_topic = examine_consume_stats_concurrent = examine_consume_stats

    async def fetch_consume_stats_in_broker(
        self, broker: str, *, is_order: bool = False
    ) -> BrokerConsumeStats:
        fields: Fields = {"isOrder": is_order}
        return await self._read(
            broker, BrokerConsumeStats, Request.GET_BROKER_CONSUME_STATS, fields
        )

    async def query_consume_time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        code, fields = Request.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group}
        spans: list[QueueTimeSpan] = []
        for broker in await self._topic_brokers(topic):
            answer = await self._ask(broker, code, fields)
            if bytes(answer.body[:1]) == b"[":
                spans += json.read(answer.body, list[QueueTimeSpan])
            else:
                spans += bodies.decode(answer.body, ConsumeTimeSpan).consume_time_span_set
        return spans

    async def get_consume_status(
        self, topic: str, group: str, client_addr: str = ""
    ) -> dict[str, dict[MessageQueue, int]]:
        """What members say of their offsets, by client id; all members unless one is named."""
        fields: Fields = {"topic": topic, "group": group, "clientAddr": client_addr or None}
        found: dict[str, dict[MessageQueue, int]] = {}
        for broker in await self._topic_brokers(topic):
            answer = await self._ask(broker, Request.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
            inner = bodies.decode(answer.body, GroupOffsets).consumer_table
            for client, offsets in inner.items():
                found.setdefault(client, {}).update(bodies.by_queue(offsets))
        return found

    # ---- moving

    async def reset_offset_by_timestamp(
        self, topic: str, group: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Where each queue is from now on. `LATEST` as the time skips everything.

        A group without members is moved at the broker. Without `force` offsets only go back.
        """
        fields: Fields = {
            "topic": topic,
            "group": group,
            "timestamp": timestamp_ms,
            "isForce": force,
        }
        moved: dict[MessageQueue, int] = {}
        for broker in await self._topic_brokers(topic):
            try:
                answer = await self._ask(broker, Request.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            except GroupOfflineError:
                moved |= await self._reset_offline(broker, topic, group, timestamp_ms, force)
                continue
            moved |= bodies.by_queue(_offsets(table(answer.body, "offsetTable")))
        return moved

    async def _reset_offline(
        self, broker: str, topic: str, group: str, timestamp_ms: int, force: bool
    ) -> dict[MessageQueue, int]:
        """As older tools do: find the offsets, and commit them for the group."""
        routes = self._client.routes
        moved: dict[MessageQueue, int] = {}
        for queue in (await routes.route(topic)).read_queues:
            if routes.any_of(queue.broker_name) != broker:
                continue
            if timestamp_ms == LATEST:
                offset = await self.max_offset(queue)
            else:
                offset = await self.search_offset(queue, timestamp_ms)
            try:
                present = await self.query_consume_offset(queue, group)
            except NotFoundError:
                present = offset
            if force or offset <= present:
                await self.update_consume_offset(queue, group, offset)
                moved[queue] = offset
        return moved

    async def update_consume_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        fields: Fields = {**_of_queue(queue), "consumerGroup": group, "commitOffset": offset}
        await self._ask(await self._broker_of(queue), Request.UPDATE_CONSUMER_OFFSET, fields)

    async def clone_group_offset(
        self, source: str, target: str, topic: str, *, is_offline: bool = False
    ) -> None:
        """Give a group the offsets of another one, for a topic and for its retries."""
        for each in (topic, RETRY_PREFIX + source):
            try:
                brokers = await self._topic_brokers(each)
            except TopicNotFoundError:
                if each == topic:
                    raise
                continue
            fields: Fields = {
                "srcGroup": source,
                "destGroup": target,
                "topic": each,
                "offline": is_offline,
            }
            for broker in brokers:
                await self._ask(broker, Request.CLONE_GROUP_OFFSET, fields)

    # ---- queues

    async def query_consume_offset(self, queue: MessageQueue, group: str) -> int:
        """Raises `NotFoundError` when nothing was committed."""
        fields: Fields = {"consumerGroup": group, "setZeroIfNotFound": False}
        return await self._offset(queue, Request.QUERY_CONSUMER_OFFSET, fields)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Of the first message stored at or after a time."""
        fields: Fields = {"timestamp": timestamp_ms}
        return await self._offset(queue, Request.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Of the message that will be stored next."""
        return await self._offset(queue, Request.GET_MAX_OFFSET)

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(queue, Request.GET_MIN_OFFSET)

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        return await self._offset(queue, Request.GET_EARLIEST_MSG_STORETIME, name="timestamp")

    async def _offset(
        self,
        queue: MessageQueue,
        code: int,
        fields: Fields | None = None,
        name: str = "offset",
    ) -> int:
        broker = await self._broker_of(queue)
        answer = await self._ask(broker, code, {**_of_queue(queue), **(fields or {})})
        try:
            return int(answer.fields[name])
        except (KeyError, ValueError):
            raise DecodeError(f"{broker} answered {code} with {answer.fields}") from None

    async def _broker_of(self, queue: MessageQueue) -> str:
        routes = self._client.routes
        if queue.broker_name not in routes.brokers:
            await routes.refreshed(queue.topic)
        return routes.any_of(queue.broker_name)


def _of_queue(queue: MessageQueue) -> dict[str, str | int | bool | None]:
    return {"topic": queue.topic, "queueId": queue.queue_id, "bname": queue.broker_name}


def _offsets(found: Mapping[str, json.Json]) -> dict[str, int]:
    return {key: offset for key, offset in found.items() if isinstance(offset, int)}
