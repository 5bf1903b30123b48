"""Committed offsets (14, 15), the ends of queues, and offsets by time (29 to 32)."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.broker.errors import NotLeader
from dragoman.broker.readers import Ends
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.limits import ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX, TOPIC_PARTITIONS_MAX
from dragoman.plural import plural
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.names import topic_name, visible_topic
from dragoman.protocols.rocketmq.handlers.node import RocketmqNode
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import FindOffset
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.security.access import Operation, Resource
from dragoman.types import GroupId, TopicName


def partition_of(call: Call) -> PartitionMetadata:
    """The queue that a request names. Raises `Refused`."""
    topic = call.known_topic(Operation.DESCRIBE)
    queue = call.number("queueId")
    if not 0 <= queue < len(topic.partitions):
        spelt, count = call.text("topic"), len(topic.partitions)
        text = f"queueId[{queue}] is illegal, topic {spelt} has {plural(count, 'queue')}"
        raise Refused(Response.INVALID_PARAMETER, text)
    return topic.partitions[queue]


# ---- committed offsets


async def handle_query_consumer_offset(call: Call) -> Answer:
    group, queue = call.text("consumerGroup"), call.number("queueId")
    topic = topic_name(call.text("topic"))
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    call.authorize_topic(Operation.DESCRIBE, topic)
    await call.node.commits.settled(group, topic, queue)
    groups = call.broker.coordination.groups
    offsets = await groups.committed(GroupId(group), TopicName(topic))
    if queue in offsets:
        return Answer(fields={"offset": str(offsets[queue])})
    if call.flag("setZeroIfNotFound") and await _is_young(call):
        return Answer(fields={"offset": "0"})
    text = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    raise Refused(Response.QUERY_NOT_FOUND, text)


async def _is_young(call: Call) -> bool:
    """Whether a group without an offset begins at the first message of the queue. This way it does
    not miss messages that arrive before it discovers the queue, which may take 30 seconds.
    """
    if visible_topic(call.broker.image, call.text("topic")) is None:
        return False
    ends = await _ends(call)
    has_few = 0 < ends.last_stable_offset <= ROCKETMQ_YOUNG_QUEUE_RECORDS_MAX
    return has_few and ends.log_start_offset == 0


def handle_update_consumer_offset(call: Call) -> None:
    group, queue = call.text("consumerGroup"), call.number("queueId")
    topic, offset = topic_name(call.text("topic")), call.number("commitOffset")
    call.authorize(Operation.READ, Resource.GROUP, group)
    call.authorize_topic(Operation.READ, topic)
    if offset < 0:
        # Some clients commit -1 before they have read any message.
        call.reply()
        return
    if not 0 <= queue < TOPIC_PARTITIONS_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"queueId[{queue}] is illegal")
    call.node.commits.commit(call.caller, group, topic, {queue: offset}).then(call.done)


# ---- ends and times


async def _ends(call: Call) -> Ends:
    return await call.broker.readers.ends(partition_of(call))


async def all_ends(
    call: Call, partitions: Sequence[PartitionMetadata]
) -> list[tuple[PartitionMetadata, Ends]]:
    ends = await call.broker.readers.all_ends(partitions)
    return list(zip(partitions, ends, strict=True))


async def handle_get_max_offset(call: Call) -> Answer:
    return Answer(fields={"offset": str((await _ends(call)).last_stable_offset)})


async def handle_get_min_offset(call: Call) -> Answer:
    return Answer(fields={"offset": str((await _ends(call)).log_start_offset)})


async def handle_search_offset_by_timestamp(call: Call) -> Answer:
    partition = partition_of(call)
    is_upper = call.fields.get("boundaryType", "LOWER").upper() == "UPPER"
    timestamp = call.number("timestamp")
    offset = await offset_at(call.node, partition, timestamp, is_upper=is_upper)
    return Answer(fields={"offset": str(offset)})


async def handle_get_earliest_msg_storetime(call: Call) -> Answer:
    timestamp = await store_time_of(call.node, partition_of(call), 0)
    return Answer(fields={"timestamp": str(timestamp)})


# ---- offsets by time, times by offset


async def offset_at(
    node: RocketmqNode, partition: PartitionMetadata, timestamp: int, *, is_upper: bool = False
) -> int:
    """The offset of the first record stored at or after a time, or with `is_upper` after it; the
    end of the partition if there is none.
    """
    wanted = timestamp + 1 if is_upper else timestamp
    request = FindOffset(partition_id=partition.partition_id, timestamp=wanted)
    return await _find(node, partition, request)


async def store_time_of(node: RocketmqNode, partition: PartitionMetadata, offset: int) -> int:
    """The timestamp of the first record at or after an offset; -1 if there is none."""
    request = FindOffset(partition_id=partition.partition_id, offset=offset)
    return await _find(node, partition, request)


async def _find(node: RocketmqNode, partition: PartitionMetadata, request: FindOffset) -> int:
    try:
        node.broker.partitions.replica(partition)
    except NotLeader as error:
        return await node.find_offset(request, error.leader)
    return await node.find_offset(request, node.broker.node_id)
