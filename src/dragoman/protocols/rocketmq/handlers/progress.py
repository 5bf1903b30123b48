"""How far groups have read, in messages and in time (43, 45, 208, 303, 308, 317)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dragoman.broker.reading import Ends
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX
from dragoman.protocols.rocketmq.handlers.attributes import read_queues
from dragoman.protocols.rocketmq.handlers.group_admin import topics_of, with_all_groups
from dragoman.protocols.rocketmq.handlers.names import (
    is_expressible,
    require_topic,
    spelling,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.relayed import GroupRow
from dragoman.protocols.rocketmq.handlers.routes import broker_data
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import each_in_turn, queue_of, reply_table
from dragoman.protocols.rocketmq.handlers.times import Found, store_time_of
from dragoman.protocols.rocketmq.handlers.topic_admin import data_version, with_all_ends
from dragoman.security.authorizer import Operation, Resource

_OFFSET_MAX = (1 << 63) - 1


class Progress(NamedTuple):
    """Of a group in one queue."""

    partition: PartitionMetadata
    ends: Ends
    #: None when nothing is committed.
    committed: int | None
    #: When the last message that it has read was stored; 0: none, or it is gone.
    read_ms: int


def find_progress(
    call: Call,
    topic: TopicMetadata,
    committed: dict[int, int],
    done: Callable[[list[Progress] | DragomanError], None],
) -> None:
    partitions = topic.partitions[: read_queues(topic)]
    broker = call.service.broker

    def one(
        each: tuple[PartitionMetadata, Ends], found: Callable[[Progress | DragomanError], None]
    ) -> None:
        partition, ends = each
        offset = committed.get(partition.index)

        def timed(read_ms: int | DragomanError) -> None:
            if isinstance(read_ms, DragomanError):
                found(read_ms)
            else:
                found(Progress(partition, ends, offset, max(0, read_ms)))

        _time_of(call, partition, ends, (offset or 0) - 1, timed)

    with_all_ends(
        call,
        partitions,
        lambda ends: each_in_turn(
            broker.scheduler, list(zip(partitions, ends, strict=True)), one, done
        ),
    )


def _time_of(
    call: Call, partition: PartitionMetadata, ends: Ends, offset: int, done: Found
) -> None:
    """When the message at an offset was stored; 0 when there is none."""
    if ends.log_start_offset <= offset < ends.last_stable_offset:
        store_time_of(call.service.broker, partition, offset, done)
    else:
        done(0)


def _with_group(call: Call, group: str, use: Callable[[GroupRow], None]) -> None:
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(row: GroupRow | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(row, DragomanError):
                raise row
            use(row)

        call.guarded(go_on)

    call.node.describe_group(group, found)


# ---- in messages


def handle_get_consume_stats(call: Call) -> None:
    group = call.text("consumerGroup", "group")
    named = [*filter(None, call.fields.get("topicList", "").split(";"))]
    if call.fields.get("topic"):
        named = [call.text("topic")]
    topics = [require_topic(call.service.broker.image, each) for each in named]

    def found(row: GroupRow) -> None:
        def answer(stats: list[bodies.ConsumeStats] | DragomanError) -> None:
            if isinstance(stats, DragomanError):
                call.refuse(stats)
                return
            merged = bodies.ConsumeStats()
            for each in stats:
                merged.offset_table = merged.offset_table | each.offset_table
                merged.consume_tps += each.consume_tps
            reply_table(call, merged)

        _stats(call, row, topics or _read_topics(call, row), answer)

    _with_group(call, group, found)


def _read_topics(call: Call, row: GroupRow) -> list[TopicMetadata]:
    """What the group reads: while it has members, nothing that was committed for others."""
    image = call.service.broker.image
    names = topics_of(call, row)
    if row.subscriptions:
        wanted = {RETRY_PREFIX + row.group, *map(topic_name, row.subscriptions)}
        names = [each for each in names if topic_name(each) in wanted]
    found = (visible_topic(image, each) for each in names)
    return [each for each in found if each is not None]


def _stats(
    call: Call,
    row: GroupRow,
    topics: list[TopicMetadata],
    done: Callable[[list[bodies.ConsumeStats] | DragomanError], None],
) -> None:
    """One for each topic."""

    def one(
        topic: TopicMetadata, found: Callable[[bodies.ConsumeStats | DragomanError], None]
    ) -> None:
        def measured(progress: list[Progress] | DragomanError) -> None:
            if isinstance(progress, DragomanError):
                found(progress)
                return
            table = {queue_of(call, each.partition): _wrapper(each) for each in progress}
            tps = call.node.traffic.group_per_second(row.group, topic.name)
            found(bodies.ConsumeStats(offset_table=bodies.keyed(table), consume_tps=tps))

        find_progress(call, topic, row.offsets.get(topic.name, {}), measured)

    each_in_turn(call.service.broker.scheduler, topics, one, done)


def _wrapper(progress: Progress) -> bodies.OffsetWrapper:
    committed = progress.committed or 0
    return bodies.OffsetWrapper(
        broker_offset=progress.ends.last_stable_offset,
        consumer_offset=committed,
        pull_offset=committed,
        last_timestamp=progress.read_ms,
    )


def handle_get_broker_consume_stats(call: Call) -> None:
    """Of all groups that have committed anything, or, with `isOrder`, of those read in order."""
    is_order = call.flag("isOrder")
    node = call.node

    def found(rows: dict[str, GroupRow]) -> None:
        groups = [
            row
            for name, row in rows.items()
            if row.offsets
            and is_expressible(name)
            and (not is_order or node.group_config(name).consume_message_orderly)
        ]

        def one(
            row: GroupRow,
            done: Callable[[dict[str, list[bodies.ConsumeStats]] | DragomanError], None],
        ) -> None:
            def measured(stats: list[bodies.ConsumeStats] | DragomanError) -> None:
                done(stats if isinstance(stats, DragomanError) else {row.group: stats})

            _stats(call, row, _read_topics(call, row), measured)

        each_in_turn(call.service.broker.scheduler, groups, one, answer)

    def answer(stats: list[dict[str, list[bodies.ConsumeStats]]] | DragomanError) -> None:
        if isinstance(stats, DragomanError):
            call.refuse(stats)
            return
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
        reply_table(call, shown)

    with_all_groups(call, found)


# ---- in time


def handle_query_consume_time_span(call: Call) -> None:
    topic = require_topic(call.service.broker.image, call.text("topic"))
    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    now = call.service.broker.clock.wall_ms()

    def one(
        progress: Progress, done: Callable[[bodies.QueueTimeSpan | DragomanError], None]
    ) -> None:
        partition, ends = progress.partition, progress.ends
        times: list[int] = []
        wanted = [ends.log_start_offset, ends.last_stable_offset - 1, progress.committed or 0]

        def timed(found: int | DragomanError) -> None:
            if isinstance(found, DragomanError):
                done(found)
                return
            times.append(max(0, found))
            if len(times) < len(wanted):
                _time_of(call, partition, ends, wanted[len(times)], timed)
                return
            first, last, waiting = times
            done(
                bodies.QueueTimeSpan(
                    message_queue=queue_of(call, partition),
                    min_time_stamp=first,
                    max_time_stamp=last,
                    consume_time_stamp=progress.read_ms or first,
                    delay_time=max(0, now - waiting) if waiting else 0,
                )
            )

        _time_of(call, partition, ends, wanted[0], timed)

    def answer(spans: list[bodies.QueueTimeSpan] | DragomanError) -> None:
        if isinstance(spans, DragomanError):
            call.refuse(spans)
        else:
            call.reply(body=bodies.encode(bodies.ConsumeTimeSpan(consume_time_span_set=spans)))

    def measured(progress: list[Progress] | DragomanError) -> None:
        if isinstance(progress, DragomanError):
            call.refuse(progress)
        else:
            each_in_turn(call.service.broker.scheduler, progress, one, answer)

    def found(row: GroupRow) -> None:
        find_progress(call, topic, row.offsets.get(topic.name, {}), measured)

    _with_group(call, call.text("group", "consumerGroup"), found)


# ---- committed offsets of many


def handle_get_all_consumer_offset(call: Call) -> None:
    def found(rows: dict[str, GroupRow]) -> None:
        table = {
            f"{spelling(topic)}@{name}": {str(queue): offset for queue, offset in offsets.items()}
            for name, row in rows.items()
            for topic, offsets in row.offsets.items()
            if is_expressible(name) and is_expressible(topic)
        }
        shown = bodies.ConsumerOffsets(offset_table=table, data_version=data_version(call))
        call.reply(body=bodies.encode(shown))

    with_all_groups(call, found)


def handle_get_all_delay_offset(call: Call) -> None:
    """Delayed messages are not kept in a queue for each level: there are no offsets of those."""
    call.reply(body=bodies.encode(bodies.DelayOffsets(data_version=data_version(call))))


def handle_query_correction_offset(call: Call) -> None:
    """For each queue the lowest offset of all groups but some; where that is past the offset of the
    group to compare with, the largest number there is.
    """
    topic = require_topic(call.service.broker.image, call.text("topic"))
    left_out = set(call.fields.get("filterGroups", "").split(","))
    compared = call.fields.get("compareGroup", "")

    def found(rows: dict[str, GroupRow]) -> None:
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
        call.reply(body=bodies.encode(bodies.CorrectionOffsets(correction_offsets=table)))

    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    with_all_groups(call, found, topic.name)
