"""How far groups have read, in messages and in time (43, 45, 208, 303, 308, 317), and their offsets
set by operators (222, 314).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from dragoman.broker.readers import Ends
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.outcome import acknowledged, start
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
from dragoman.protocols.rocketmq.handlers.offsets import offset_at, store_time_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import GroupRow, Listed, Listing
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import (
    broker_data,
    data_version,
    queue_of,
    read_queues,
)
from dragoman.security.authorizer import Operation, Resource

_LATEST = -1
_OFFSET_MAX = (1 << 63) - 1


class Progress(NamedTuple):
    """How far a group has read in one queue."""

    partition: PartitionMetadata
    ends: Ends
    #: None when nothing is committed.
    committed: int | None
    #: When the last message that it has read was stored; 0: none, or it is gone.
    read_ms: int


async def find_progress(
    call: Call, topic: TopicMetadata, committed: dict[int, int]
) -> list[Progress]:
    partitions = topic.partitions[: read_queues(topic)]

    async def progress(each: tuple[PartitionMetadata, Ends]) -> Progress:
        partition, ends = each
        offset = committed.get(partition.index)
        read_ms = await _time_of(call, partition, ends, (offset or 0) - 1)
        return Progress(partition, ends, offset, read_ms)

    ends = await call.service.broker.readers.all_ends(partitions)
    return await call.in_turn(list(zip(partitions, ends, strict=True)), progress)


async def _time_of(call: Call, partition: PartitionMetadata, ends: Ends, offset: int) -> int:
    """When the message at an offset was stored; 0 when there is none."""
    if ends.log_start_offset <= offset < ends.last_stable_offset:
        return max(0, await store_time_of(call.node, partition, offset))
    return 0


async def _visible_group(call: Call, group: str) -> GroupRow:
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    return await call.node.describe_group(group)


# ---- in messages


async def handle_get_consume_stats(call: Call) -> Answer:
    group = call.text("consumerGroup", "group")
    named = [*filter(None, call.fields.get("topicList", "").split(";"))]
    if call.fields.get("topic"):
        named = [call.text("topic")]
    topics = [require_topic(call.service.broker.image, each) for each in named]
    row = await _visible_group(call, group)
    merged = bodies.ConsumeStats()
    for each in await _stats(call, row, topics or _read_topics(call, row)):
        merged.offset_table = merged.offset_table | each.offset_table
        merged.consume_tps += each.consume_tps
    return call.queue_table(merged)


def _read_topics(call: Call, row: GroupRow) -> list[TopicMetadata]:
    """What the group reads: while it has members, nothing that was committed for others."""
    image = call.service.broker.image
    names = topics_of(call, row)
    if row.subscriptions:
        wanted = {RETRY_PREFIX + row.group, *map(topic_name, row.subscriptions)}
        names = [each for each in names if topic_name(each) in wanted]
    found = (visible_topic(image, each) for each in names)
    return [each for each in found if each is not None]


async def _stats(
    call: Call, row: GroupRow, topics: list[TopicMetadata]
) -> list[bodies.ConsumeStats]:
    """One for each topic."""

    async def stats(topic: TopicMetadata) -> bodies.ConsumeStats:
        progress = await find_progress(call, topic, row.offsets.get(topic.name, {}))
        table = {queue_of(call, each.partition): _wrapper(each) for each in progress}
        tps = call.node.traffic.group_per_second(row.group, topic.name)
        return bodies.ConsumeStats(offset_table=bodies.keyed(table), consume_tps=tps)

    return await call.in_turn(topics, stats)


def _wrapper(progress: Progress) -> bodies.OffsetWrapper:
    committed = progress.committed or 0
    return bodies.OffsetWrapper(
        broker_offset=progress.ends.last_stable_offset,
        consumer_offset=committed,
        pull_offset=committed,
        last_timestamp=progress.read_ms,
    )


async def handle_get_broker_consume_stats(call: Call) -> Answer:
    """Of all groups that have committed anything, or, with `isOrder`, of those read in order."""
    is_order, node = call.flag("isOrder"), call.node
    groups = [
        row
        for name, row in (await visible_groups(call)).items()
        if row.offsets
        and is_expressible(name)
        and (not is_order or node.group_config(name).consume_message_orderly)
    ]

    async def stats_of(row: GroupRow) -> dict[str, list[bodies.ConsumeStats]]:
        return {row.group: await _stats(call, row, _read_topics(call, row))}

    stats = await call.in_turn(groups, stats_of)
    cells = [
        cell
        for table in stats
        for each in table.values()
        for one in each
        for cell in one.offset_table.values()
    ]
    shown = bodies.BrokerConsumeStats(
        consume_stats_list=stats,
        broker_addr=broker_data(call, call.service.broker.node_id).broker_addrs["0"],
        total_diff=sum(max(0, each.broker_offset - each.consumer_offset) for each in cells),
    )
    return call.queue_table(shown)


# ---- in time


async def handle_query_consume_time_span(call: Call) -> bodies.ConsumeTimeSpan:
    topic = call.known_topic(Operation.DESCRIBE)
    now = call.service.broker.clock.wall_ms()

    async def time_span(progress: Progress) -> bodies.QueueTimeSpan:
        partition, ends = progress.partition, progress.ends
        first = await _time_of(call, partition, ends, ends.log_start_offset)
        last = await _time_of(call, partition, ends, ends.last_stable_offset - 1)
        waiting = await _time_of(call, partition, ends, progress.committed or 0)
        return bodies.QueueTimeSpan(
            message_queue=queue_of(call, partition),
            min_time_stamp=first,
            max_time_stamp=last,
            consume_time_stamp=progress.read_ms or first,
            delay_time=max(0, now - waiting) if waiting else 0,
        )

    row = await _visible_group(call, call.text("group", "consumerGroup"))
    progress = await find_progress(call, topic, row.offsets.get(topic.name, {}))
    spans = await call.in_turn(progress, time_span)
    return bodies.ConsumeTimeSpan(consume_time_span_set=spans)


# ---- committed offsets of many


async def handle_get_all_consumer_offset(call: Call) -> bodies.ConsumerOffsets:
    table = {
        f"{spelling(topic)}@{name}": {str(queue): offset for queue, offset in offsets.items()}
        for name, row in (await visible_groups(call)).items()
        for topic, offsets in row.offsets.items()
        if is_expressible(name) and is_expressible(topic)
    }
    return bodies.ConsumerOffsets(offset_table=table, data_version=data_version(call))


async def handle_get_all_delay_offset(call: Call) -> bodies.DelayOffsets:
    """Delayed messages are not kept in a queue for each level: there are no offsets of those."""
    return bodies.DelayOffsets(data_version=data_version(call))


async def handle_query_correction_offset(call: Call) -> bodies.CorrectionOffsets:
    """For each queue the lowest offset of all groups but some; where that is past the offset of the
    group to compare with, the largest number there is.
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
    """Committed whether the group has members or not; members are told to read on from there."""
    spelt, group = call.text("topic"), call.text("group", "consumerGroup")
    check_group_name(group)
    topic = require_topic(call.service.broker.image, spelt)
    call.session.authorize(Operation.READ, Resource.GROUP, group)
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
    _tell_members(call, group, topic, table)
    return call.queue_table(bodies.ResetOffset(offset_table=bodies.keyed(table)))


async def _reset_offsets(
    call: Call, partitions: list[PartitionMetadata], committed: dict[int, int]
) -> list[int]:
    """Where each queue is to be read on. Unless forced, nothing is passed over."""
    timestamp, given = call.number("timestamp", _LATEST), call.number("offset", -1)
    is_forced = call.flag("isForce") or given >= 0

    async def reset_offset(each: tuple[PartitionMetadata, Ends]) -> int:
        partition, ends = each
        if given >= 0:
            offset = min(max(given, ends.log_start_offset), ends.last_stable_offset)
        elif timestamp == _LATEST:
            offset = ends.last_stable_offset
        else:
            offset = await offset_at(call.node, partition, timestamp)
        present = committed.get(partition.index)
        return offset if is_forced or present is None else min(offset, present)

    ends = await call.service.broker.readers.all_ends(partitions)
    return await call.in_turn(list(zip(partitions, ends, strict=True)), reset_offset)


async def _commit(call: Call, group: str, topic: str, offsets: dict[int, int]) -> None:
    await acknowledged(partial(call.node.commits.commit, group, topic, offsets))


def _tell_members(
    call: Call, group: str, topic: TopicMetadata, table: dict[MessageQueue, int]
) -> None:
    fields = {
        "topic": spelling(topic.name),
        "group": group,
        "timestamp": call.fields.get("timestamp") or str(_LATEST),
        "isForce": "true" if call.flag("isForce") else "false",
    }

    def tell(found: Listing | DragomanError) -> None:
        if isinstance(found, Listing):
            code = Request.RESET_CONSUMER_CLIENT_OFFSET
            body = partial(_reset_body, table)
            call.node.tell_members(group, found.members, code, fields, body)

    start(call.node.members(group)).then(tell)


def _reset_body(table: dict[MessageQueue, int], member: Listed) -> bytes:
    """Objects as keys, also for Go (spec, 9); C++ reads a list."""
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
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, source)
    call.session.authorize(Operation.READ, Resource.GROUP, target)
    only = call.fields.get("topic", "")
    row = await call.node.describe_group(source)
    image = call.service.broker.image
    topics = (visible_topic(image, name) for name in ([only] if only else topics_of(call, row)))
    names = [each.name for each in topics if each is not None and row.offsets.get(each.name)]

    async def clone(name: str) -> None:
        await _commit(call, target, name, row.offsets[name])

    await call.in_turn(names, clone)
