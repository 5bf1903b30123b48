"""Retries and dead letters: messages that a consumer sends back because it failed to process them
(36).

A copy of the message goes to the group's topic `%RETRY%GROUP` after a delay, or after too many
retries to `%DLQ%GROUP` for operators. The original record stays unchanged, whatever protocol wrote
it.
"""

from __future__ import annotations

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.protocols.rocketmq.constants import DELAY_LEVELS_S, DLQ_PREFIX, RETRY_PREFIX, Property
from dragoman.protocols.rocketmq.handlers.names import check_group_name, physical_offset, spelling
from dragoman.protocols.rocketmq.handlers.queries import Found, readable_record
from dragoman.protocols.rocketmq.handlers.records import Sent, sent_again
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import own_topic
from dragoman.protocols.rocketmq.messages import offset_message_id

#: The delay level of the first retry when the client lets the broker choose.
_FIRST_LEVEL = 3


async def handle_consumer_send_msg_back(call: Call) -> Answer | None:
    group = call.text("group")
    check_group_name(group)
    call.authorize_member(group)
    physical = call.number("offset")
    level = call.number("delayLevel", 0)
    config = call.node.group_config(group)
    if config.retry_queue_nums <= 0:
        # The group is configured to drop failed messages.
        return None
    times_max = call.number("maxReconsumeTimes", -1)
    if times_max < 0:
        times_max = config.retry_max_times
    found = await readable_record(call, physical)
    sent = _copy(call, found, physical)
    times, sent.reconsume_times = sent.reconsume_times, sent.reconsume_times + 1
    if level < 0 or times >= times_max:
        return await dead_letter(call, group, sent)
    await _retry(call, group, sent, level or _FIRST_LEVEL + times, config.retry_queue_nums)
    return None


def _copy(call: Call, found: Found, physical: int) -> Sent:
    sent = sent_again(found.record)
    origin = call.fields.get("originTopic") or spelling(found.topic)
    sent.properties.setdefault(Property.RETRY_TOPIC, origin)
    # The request's `originMsgId` is not used: clients set it to the unique key, whereas RocketMQ
    # stores the offset message id, by which brokers find messages.
    message_id = offset_message_id(call.session.store_host, physical)
    sent.properties.setdefault(Property.ORIGIN_MESSAGE_ID, message_id)
    return sent


async def _retry(call: Call, group: str, sent: Sent, level: int, queues: int) -> None:
    broker = call.broker
    now_ms = broker.clock.wall_ms()
    due_ms = now_ms + DELAY_LEVELS_S[min(level, len(DELAY_LEVELS_S)) - 1] * 1000
    topic = await own_topic(call, RETRY_PREFIX + group, queues)
    queue = broker.random.randrange(len(topic.partitions))
    # This node has checked the right on the group, which the topic's leader does not know.
    await broker.delayed.delay(topic.name, queue, sent.record(now_ms), due_ms, NODE_ITSELF)


async def dead_letter(call: Call, group: str, sent: Sent) -> Answer:
    """Append a message to the group's dead letters, durably."""
    broker = call.broker
    properties = sent.properties
    origin = properties.get(Property.RETRY_TOPIC)
    if origin is not None:
        properties.setdefault(Property.DLQ_ORIGIN_TOPIC, origin)
    message_id = properties.get(Property.ORIGIN_MESSAGE_ID)
    if message_id is not None:
        properties.setdefault(Property.DLQ_ORIGIN_MESSAGE_ID, message_id)
    properties.pop(Property.DELAY, None)
    topic = await own_topic(call, DLQ_PREFIX + group, 1)
    partition = topic.partitions[0]
    record = sent.record(broker.clock.wall_ms())
    offset = await broker.leader_queues.append(partition, record, caller=NODE_ITSELF)
    physical = physical_offset(partition.partition_id, offset)
    return Answer(
        fields={
            "queueId": "0",
            "queueOffset": str(offset),
            "msgId": offset_message_id(call.session.store_host, physical),
        }
    )
