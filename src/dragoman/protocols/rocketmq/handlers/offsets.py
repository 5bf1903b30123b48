"""Committed offsets (14, 15), and where queues begin and end (29 to 32)."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.reading import Ends
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX, TOPIC_PARTITIONS_MAX
from dragoman.outcome import start
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.names import require_topic, topic_name, visible_topic
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.times import offset_at, store_time_of
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, TopicName


def partition_of(call: Call) -> PartitionMetadata:
    """The queue that a request names. Raises `Refused`."""
    spelt = call.text("topic")
    topic = require_topic(call.service.broker.image, spelt)
    call.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    queue = call.number("queueId")
    if not 0 <= queue < len(topic.partitions):
        text = f"queueId[{queue}] is illegal, topic {spelt} has {len(topic.partitions)} queues"
        raise Refused(Response.INVALID_PARAMETER, text)
    return topic.partitions[queue]


# ---- committed offsets


def handle_query_consumer_offset(call: Call) -> None:
    group, queue = call.text("consumerGroup"), call.number("queueId")
    topic = topic_name(call.text("topic"))
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(offsets: dict[int, int] | DragomanError) -> None:
        if isinstance(offsets, DragomanError):
            call.refuse(offsets)
        elif queue in offsets:
            call.reply(fields={"offset": str(offsets[queue])})
        elif call.flag("setZeroIfNotFound"):
            call.guarded(lambda: _reply_first(call))
        else:
            _reply_not_found(call)

    def look_up() -> None:
        coordination = call.service.broker.coordination
        start(coordination.groups.committed(GroupId(group), TopicName(topic))).then(found)

    call.node.commits.when_settled((group, topic, queue), look_up)


def _reply_first(call: Call) -> None:
    """Who asks for it begins at the first message of a young queue: what came before it heard of
    the queue, which may take 30 seconds, is not lost.
    """

    def answer(ends: Ends) -> None:
        is_young = 0 < ends.last_stable_offset <= ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX
        if is_young and ends.log_start_offset == 0:
            call.reply(fields={"offset": "0"})
        else:
            _reply_not_found(call)

    if visible_topic(call.service.broker.image, call.text("topic")) is None:
        _reply_not_found(call)
    else:
        with_ends(call, partition_of(call), answer)


def _reply_not_found(call: Call) -> None:
    text = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    call.reply(Response.QUERY_NOT_FOUND, text)


def handle_update_consumer_offset(call: Call) -> None:
    group, queue = call.text("consumerGroup"), call.number("queueId")
    topic, offset = topic_name(call.text("topic")), call.number("commitOffset")
    call.authorize(Operation.READ, Resource.GROUP, group)
    if offset < 0:
        # Some clients have not read anything yet, and say so.
        call.reply()
        return
    if not 0 <= queue < TOPIC_PARTITIONS_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"queueId[{queue}] is illegal")
    call.node.commits.commit(group, topic, {queue: offset}, call.done)


# ---- ends and times


def with_ends(call: Call, partition: PartitionMetadata, use: Callable[[Ends], None]) -> None:
    def found(ends: Ends | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(ends, DragomanError):
                raise ends
            use(ends)

        call.guarded(go_on)

    start(call.service.broker.readers.ends(partition)).then(found)


def handle_get_max_offset(call: Call) -> None:
    def answer(ends: Ends) -> None:
        call.reply(fields={"offset": str(ends.last_stable_offset)})

    with_ends(call, partition_of(call), answer)


def handle_get_min_offset(call: Call) -> None:
    def answer(ends: Ends) -> None:
        call.reply(fields={"offset": str(ends.log_start_offset)})

    with_ends(call, partition_of(call), answer)


def handle_search_offset_by_timestamp(call: Call) -> None:
    partition = partition_of(call)
    is_upper = call.fields.get("boundaryType", "LOWER").upper() == "UPPER"
    timestamp = call.number("timestamp")

    def found(offset: int | DragomanError) -> None:
        if isinstance(offset, DragomanError):
            call.refuse(offset)
        else:
            call.reply(fields={"offset": str(offset)})

    offset_at(call.service.broker, partition, timestamp, found, is_upper=is_upper)


def handle_get_earliest_msg_storetime(call: Call) -> None:
    def found(timestamp: int | DragomanError) -> None:
        if isinstance(timestamp, DragomanError):
            call.refuse(timestamp)
        else:
            call.reply(fields={"timestamp": str(timestamp)})

    store_time_of(call.service.broker, partition_of(call), 0, found)
