"""Progress of groups, in messages and in time (43, 45, 208, 303, 308, 317), and offsets that
operators set (222, 314).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from dragoman.broker.readers import Ends
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.outcome import ignore, start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue, QueueOffset
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Request, Response
from dragoman.protocols.rocketmq.handlers.group_admin import topics_of, visible_groups
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    is_expressible,
    require_topic,
    spelling,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.offsets import all_ends, offset_at, store_time_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import GroupRow, Listed
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import (
    broker_data,
    data_version,
    queue_of,
    read_queues,
)
from dragoman.security.access import Operation, Resource

_LATEST = -1
_OFFSET_MAX = (1 << 63) - 1


class Progress(NamedTuple):
    """The progress of a group in one queue."""

    partition: PartitionMetadata
    ends: Ends
    #: None if no offset is committed.
    committed: int | None
    #: The store time of the last message that the group has read; 0 if there is none.
    read_ms: int


async def find_progress(
    call: Call, topic: TopicMetadata, committed: dict[int, int]
) -> list[Progress]:
    found = []
    for partition, ends in await all_ends(call, topic.partitions[: read_queues(topic)]):
        offset = committed.get(partition.index)
        read_ms = await _time_of(call, partition, ends, (offset or 0) - 1)
        found.append(Progress(partition, ends, offset, read_ms))
        await call.pause()
    return found


async def _time_of(call: Call, partition: PartitionMetadata, ends: Ends, offset: int) -> int:
    """The store time of the message at an offset; 0 if there is none."""
    if ends.log_start_offset <= offset < ends.last_stable_offset:
        return max(0, await store_time_of(call.node, partition, offset))
    return 0


async def _visible_group(call: Call, group: str) -> GroupRow:
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    return await call.node.describe_group(group)


# ---- in messages


async def handle_get_consume_stats(call: Call) -> Answer:
    group = call.text("consumerGroup", "group")
    named = [*filter(None, call.fields.get("topicList", "").split(";"))]
    if call.fields.get("topic"):
        named = [call.text("topic")]
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    for name in named:
        call.authorize_topic(Operation.DESCRIBE, topic_name(name))
    topics = [require_topic(call.broker.image, each) for each in named]
    row = await call.node.describe_group(group)
    merged = bodies.ConsumeStats()
    for each in await _stats(call, row, topics or _read_topics(call, row)):
        merged.offset_table = merged.offset_table | each.offset_table
        merged.consume_tps += each.consume_tps
    return call.queue_table(merged)


def _read_topics(call: Call, row: GroupRow) -> list[TopicMetadata]:
    """The topics of the group; while it has members, only their subscribed topics."""
    image = call.broker.image
    names = topics_of(call, row)
    if row.subscriptions:
        wanted = {RETRY_PREFIX + row.group, *map(topic_name, row.subscriptions)}
        names = [each for each in names if topic_name(each) in wanted]
    found = (visible_topic(image, each) for each in names)
    return [each for each in found if each is not None]


async def _stats(
    call: Call, row: GroupRow, topics: list[TopicMetadata]
) -> list[bodies.ConsumeStats]:
    """The statistics of each topic."""
    found = []
    for topic in topics:
        progress = await find_progress(call, topic, row.offsets.get(topic.name, {}))
        table = {queue_of(call, each.partition): _wrapper(each) for each in progress}
        tps = call.node.traffic.group_per_second(row.group, topic.name)
        found.append(bodies.ConsumeStats(offset_table=bodies.keyed(table), consume_tps=tps))
        await call.pause()
    return found


def _wrapper(progress: Progress) -> bodies.OffsetWrapper:
    committed = progress.committed or 0
    return bodies.OffsetWrapper(
        broker_offset=progress.ends.last_stable_offset,
        consumer_offset=committed,
        pull_offset=committed,
        last_timestamp=progress.read_ms,
    )


async def handle_get_broker_consume_stats(call: Call) -> Answer:
    """All groups with committed offsets or, with `isOrder`, those that consume in order."""
    is_order = call.flag("isOrder")
    shown = bodies.BrokerConsumeStats(
        broker_addr=broker_data(call, call.broker.node_id).broker_addrs["0"]
    )
    for name, row in (await visible_groups(call)).items():
        is_orderly = call.node.group_config(name).consume_message_orderly
        if not row.offsets or not is_expressible(name) or (is_order and not is_orderly):
            continue
        stats = await _stats(call, row, _read_topics(call, row))
        shown.consume_stats_list.append({name: stats})
        cells = (cell for each in stats for cell in each.offset_table.values())
        shown.total_diff += sum(max(0, each.broker_offset - each.consumer_offset) for each in cells)
        await call.pause()
    return call.queue_table(shown)


# ---- in time


async def handle_query_consume_time_span(call: Call) -> bodies.ConsumeTimeSpan:
    topic = call.known_topic(Operation.DESCRIBE)
    now = call.broker.clock.wall_ms()
    row = await _visible_group(call, call.text("group", "consumerGroup"))
    spans = bodies.ConsumeTimeSpan()
    for each in await find_progress(call, topic, row.offsets.get(topic.name, {})):
        partition, ends = each.partition, each.ends
        first = await _time_of(call, partition, ends, ends.log_start_offset)
        last = await _time_of(call, partition, ends, ends.last_stable_offset - 1)
        next_ms = await _time_of(call, partition, ends, each.committed or 0)
        span = bodies.QueueTimeSpan(
            message_queue=queue_of(call, partition),
            min_time_stamp=first,
            max_time_stamp=last,
            consume_time_stamp=each.read_ms or first,
            delay_time=max(0, now - next_ms) if next_ms else 0,
        )
        spans.consume_time_span_set.append(span)
        await call.pause()
    return spans


# ---- committed offsets of several groups


async def handle_get_all_consumer_offset(call: Call) -> bodies.ConsumerOffsets:
    table = {
        f"{spelling(topic)}@{name}": {str(queue): offset for queue, offset in offsets.items()}
        for name, row in (await visible_groups(call)).items()
        for topic, offsets in row.offsets.items()
        if is_expressible(name)
        and is_expressible(topic)
        and call.may_access(Operation.DESCRIBE, topic)
    }
    return bodies.ConsumerOffsets(offset_table=table, data_version=data_version(call))


async def handle_get_all_delay_offset(call: Call) -> bodies.DelayOffsets:
    """An empty table, because there are no queues by delay level."""
    return bodies.DelayOffsets(data_version=data_version(call))


async def handle_query_correction_offset(call: Call) -> bodies.CorrectionOffsets:
    """By queue, the lowest offset of all groups that are not filtered out, or the maximum integer
    if it is above the offset of the group to compare with.
    """
    topic = call.known_topic(Operation.DESCRIBE)
    left_out = set(call.fields.get("filterGroups", "").split(","))
    compared = call.fields.get("compareGroup", "")
    rows = await visible_groups(call, topic.name)
    lowest: dict[int, int] = {}
    for name, row in rows.items():
        if name not in left_out:
            for queue, offset in row.offsets.get(topic.name, {}).items():
                lowest[queue] = min(offset, lowest.get(queue, offset))
    reference = rows.get(compared, GroupRow(group=compared)).offsets.get(topic.name, {})
    for queue, offset in reference.items():
        if lowest.get(queue, _OFFSET_MAX) > offset:
            lowest[queue] = _OFFSET_MAX
    table = {str(queue): offset for queue, offset in sorted(lowest.items())}
    return bodies.CorrectionOffsets(correction_offsets=table)


# ---- offsets set by operators


async def handle_invoke_broker_to_reset_offset(call: Call) -> Answer:
    """Commit offsets by time, even if the group has members, and notify the members."""
    spelt, group = call.text("topic"), call.text("group", "consumerGroup")
    check_group_name(group)
    call.authorize(Operation.READ, Resource.GROUP, group)
    call.authorize_topic(Operation.READ, topic_name(spelt))
    topic = require_topic(call.broker.image, spelt)
    queue = call.number("queueId", -1)
    partitions = list(topic.partitions)
    if queue >= 0:
        if queue >= len(partitions):
            raise Refused(Response.INVALID_PARAMETER, f"queueId[{queue}] is illegal")
        partitions = [partitions[queue]]
    row = await call.node.describe_group(group, topic.name)
    offsets = await _reset_offsets(call, partitions, row.offsets.get(topic.name, {}))
    targets = {each.index: offset for each, offset in zip(partitions, offsets, strict=True)}
    table = {queue_of(call, topic.partitions[index]): each for index, each in targets.items()}
    await _commit(call, group, topic.name, targets)
    start(_notify_members(call, group, topic, table)).then(ignore)
    return call.queue_table(bodies.ResetOffset(offset_table=bodies.keyed(table)))


async def _reset_offsets(
    call: Call, partitions: list[PartitionMetadata], committed: dict[int, int]
) -> list[int]:
    """The new offset of each queue. Without `isForce`, no queue moves forward."""
    timestamp, given = call.number("timestamp", _LATEST), call.number("offset", -1)
    is_forced = call.flag("isForce") or given >= 0
    offsets = []
    for partition, ends in await all_ends(call, partitions):
        if given >= 0:
            offset = min(max(given, ends.log_start_offset), ends.last_stable_offset)
        elif timestamp == _LATEST:
            offset = ends.last_stable_offset
        else:
            offset = await offset_at(call.node, partition, timestamp)
        present = committed.get(partition.index)
        offsets.append(offset if is_forced or present is None else min(offset, present))
        await call.pause()
    return offsets


async def _commit(call: Call, group: str, topic: str, offsets: dict[int, int]) -> None:
    await call.node.commits.commit(call.caller, group, topic, offsets)


async def _notify_members(
    call: Call, group: str, topic: TopicMetadata, table: dict[MessageQueue, int]
) -> None:
    fields = {
        "topic": spelling(topic.name),
        "group": group,
        "timestamp": call.fields.get("timestamp") or str(_LATEST),
        "isForce": "true" if call.flag("isForce") else "false",
    }
    members = (await call.node.members(group)).members
    body = partial(_reset_body, table)
    call.node.notify_members(group, members, Request.RESET_CONSUMER_CLIENT_OFFSET, fields, body)


def _reset_body(table: dict[MessageQueue, int], member: Listed) -> bytes:
    """A table with objects as keys, even for the Go client (spec, 9); a list for C++."""
    if member.language != "CPP":
        return bodies.encode(bodies.ResetOffset(offset_table=bodies.keyed(table)), object_keys=True)
    rows = [
        QueueOffset(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
        )
        for queue, offset in table.items()
    ]
    return bodies.encode(bodies.ResetOffsetList(offset_table=rows))


async def handle_clone_group_offset(call: Call) -> None:
    source, target = call.text("srcGroup"), call.text("destGroup")
    check_group_name(target)
    call.authorize(Operation.DESCRIBE, Resource.GROUP, source)
    call.authorize(Operation.READ, Resource.GROUP, target)
    only = call.fields.get("topic", "")
    row = await call.node.describe_group(source)
    image = call.broker.image
    topics = (visible_topic(image, name) for name in ([only] if only else topics_of(call, row)))
    for each in topics:
        if each is None or not call.may_access(Operation.READ, each.name):
            continue
        if offsets := row.offsets.get(each.name):
            await _commit(call, target, each.name, offsets)
            await call.pause()
