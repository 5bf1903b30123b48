"""Dead letters: messages that a group has given up, which can be looked at and sent again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.limits import ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX
from dragoman.protocols.rocketmq.client.admin.messages import MessageCalls
from dragoman.protocols.rocketmq.client.errors import TopicNotFoundError
from dragoman.protocols.rocketmq.client.messages import ReceivedMessage, Sent
from dragoman.protocols.rocketmq.client.producer import Outgoing
from dragoman.protocols.rocketmq.constants import DLQ_PREFIX, RETRY_PREFIX, Property

#: Of the message's earlier life.
_DROPPED = frozenset(
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


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    #: Where it was sent to.
    origin_topic: str
    origin_message_id: str
    message: ReceivedMessage


class DeadLetterCalls(MessageCalls):
    async def list_dead_letters(
        self, group: str, *, begin_ms: int = 0, end_ms: int | None = None, max_count: int = 1000
    ) -> list[DeadLetter]:
        """Oldest first; empty when the group has none."""
        topic, count = DLQ_PREFIX + group, min(max_count, ROCKETMQ_CLIENT_FOUND_MESSAGES_MAX)
        try:
            queues = (await self._client.routes.refreshed(topic)).read_queues
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
        """To the group's retry topic, so that no other group gets them again.

        The dead letters stay where they are.
        """
        producer = self._client.own_producer
        return [await producer.deliver(_again(letter)) for letter in letters]


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
