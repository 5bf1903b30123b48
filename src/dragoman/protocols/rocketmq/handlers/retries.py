"""Messages that a consumer could not handle (36): tried again later, and in the end put aside.

A message that is sent back goes to the group's topic `%RETRY%GROUP` when its delay is over, and
after so many times to `%DLQ%GROUP`, where people find it. It is a copy: the record stays where it
was, whatever protocol wrote it.
"""

from __future__ import annotations

from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.outcome import acknowledge_to, start
from dragoman.protocols.rocketmq.constants import (
    DELAY_LEVELS_S,
    DLQ_PREFIX,
    RETRY_PREFIX,
    Property,
)
from dragoman.protocols.rocketmq.handlers.lookup import Found, find_record
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    physical_offset,
    spelling,
)
from dragoman.protocols.rocketmq.handlers.records import Sent, sent_again
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import make_topic
from dragoman.protocols.rocketmq.messages import offset_message_id
from dragoman.security.authorizer import Operation, Resource

#: The delay of a first retry whose client leaves it to the broker is that of the level after this.
_FIRST_LEVEL = 3
_REPLY_FIELDS = {"queueId": "0", "queueOffset": "0", "msgId": ""}


def handle_consumer_send_msg_back(call: Call) -> None:
    group = call.text("group")
    check_group_name(group)
    call.authorize(Operation.READ, Resource.GROUP, group)
    physical = call.number("offset")
    level = call.number("delayLevel", 0)
    config = call.node.group_config(group)
    if config.retry_queue_nums <= 0:
        # So configured: what fails is forgotten.
        call.reply()
        return
    times_max = call.number("maxReconsumeTimes", -1)
    if times_max < 0:
        times_max = config.retry_max_times

    def found(outcome: Found | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(outcome, DragomanError):
                raise outcome
            call.authorize(Operation.READ, Resource.TOPIC, outcome.topic)
            sent = _copy(call, outcome, physical)
            if level < 0 or sent.reconsume_times >= times_max:
                dead_letter(call, group, _again(sent))
            else:
                chosen = level or _FIRST_LEVEL + sent.reconsume_times
                _retry(call, group, _again(sent), chosen, config.retry_queue_nums)

        call.guarded(go_on)

    find_record(call.service.broker, physical, found)


def _copy(call: Call, found: Found, physical: int) -> Sent:
    sent = sent_again(found.record)
    origin = call.fields.get("originTopic") or spelling(found.topic)
    sent.properties.setdefault(Property.RETRY_TOPIC, origin)
    # Not `originMsgId` of the request: clients name the unique key there, and the original keeps
    # the id that messages are looked up by.
    message_id = offset_message_id(call.session.store_host, physical)
    sent.properties.setdefault(Property.ORIGIN_MESSAGE_ID, message_id)
    return sent


def _again(sent: Sent) -> Sent:
    sent.reconsume_times += 1
    return sent


def _retry(call: Call, group: str, sent: Sent, level: int, queues: int) -> None:
    broker = call.service.broker
    name = RETRY_PREFIX + group
    now_ms = broker.clock.wall_ms()
    due_ms = now_ms + DELAY_LEVELS_S[min(level, len(DELAY_LEVELS_S)) - 1] * 1000

    def delay(topic: TopicMetadata) -> None:
        queue = broker.random.randrange(len(topic.partitions))
        delaying = broker.delayed.delay(topic.name, queue, sent.record(now_ms), due_ms)
        start(delaying).then(acknowledge_to(call.done))

    make_topic(call, name, queues, delay)


def dead_letter(call: Call, group: str, sent: Sent) -> None:
    """Put a message aside; the request that says so is answered when that is durable."""
    broker = call.service.broker
    name = DLQ_PREFIX + group
    properties = sent.properties
    origin = properties.get(Property.RETRY_TOPIC)
    if origin is not None:
        properties.setdefault(Property.DLQ_ORIGIN_TOPIC, origin)
    message_id = properties.get(Property.ORIGIN_MESSAGE_ID)
    if message_id is not None:
        properties.setdefault(Property.DLQ_ORIGIN_MESSAGE_ID, message_id)
    properties.pop(Property.DELAY, None)

    def put(topic: TopicMetadata) -> None:
        partition = topic.partitions[0]

        def placed(offset: int, error: DragomanError | None) -> None:
            if error is not None:
                call.refuse(error)
                return
            store_host = call.session.store_host
            physical = physical_offset(partition.partition_id, offset)
            fields = _REPLY_FIELDS | {
                "msgId": offset_message_id(store_host, physical),
                "queueOffset": str(offset),
            }
            call.reply(fields=fields)

        broker.relaying.add(partition, sent.record(broker.clock.wall_ms()), placed)

    make_topic(call, name, 1, put)
