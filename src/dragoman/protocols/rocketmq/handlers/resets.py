"""Offsets of groups set by operators (222, 314)."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.broker.reading import Ends
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue, QueueOffset
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.group_admin import topics_of
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    require_topic,
    spelling,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import GroupRow, Listed, Listing
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import each_in_turn, queue_of, reply_table
from dragoman.protocols.rocketmq.handlers.times import Found, offset_at
from dragoman.protocols.rocketmq.handlers.topic_admin import with_all_ends
from dragoman.security.authorizer import Operation, Resource

_LATEST = -1


def handle_invoke_broker_to_reset_offset(call: Call) -> None:
    """Committed here, whether members are there or not; those who are there are told."""
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

    def found(row: GroupRow | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(row, DragomanError):
                raise row
            _find_targets(call, topic, partitions, row.offsets.get(topic.name, {}))

        call.guarded(go_on)

    call.node.describe_group(group, found, topic.name)


def _find_targets(
    call: Call,
    topic: TopicMetadata,
    partitions: list[PartitionMetadata],
    committed: dict[int, int],
) -> None:
    """Where each queue is to be read on. Unless forced, nothing is passed over."""
    timestamp, given = call.number("timestamp", _LATEST), call.number("offset", -1)
    is_forced = call.flag("isForce") or given >= 0

    def one(each: tuple[PartitionMetadata, Ends], done: Found) -> None:
        partition, ends = each

        def wanted(offset: int | DragomanError) -> None:
            if isinstance(offset, DragomanError):
                done(offset)
                return
            present = committed.get(partition.index)
            done(offset if is_forced or present is None else min(offset, present))

        if given >= 0:
            wanted(min(max(given, ends.log_start_offset), ends.last_stable_offset))
        elif timestamp == _LATEST:
            wanted(ends.last_stable_offset)
        else:
            offset_at(call.service.broker, partition, timestamp, wanted)

    def found(offsets: list[int] | DragomanError) -> None:
        if isinstance(offsets, DragomanError):
            call.refuse(offsets)
        else:
            indexes = (each.index for each in partitions)
            _commit_targets(call, topic, dict(zip(indexes, offsets, strict=True)))

    with_all_ends(
        call,
        partitions,
        lambda ends: each_in_turn(
            call.service.broker.scheduler, list(zip(partitions, ends, strict=True)), one, found
        ),
    )


def _commit_targets(call: Call, topic: TopicMetadata, offsets: dict[int, int]) -> None:
    group = call.text("group", "consumerGroup")
    table = {queue_of(call, topic.partitions[index]): offset for index, offset in offsets.items()}

    def committed(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
            return
        _tell_members(call, group, topic, table)
        reply_table(call, bodies.ResetOffset(offset_table=bodies.keyed(table)))

    call.node.commits.commit(group, topic.name, offsets, committed)


def _tell_members(
    call: Call, group: str, topic: TopicMetadata, table: dict[MessageQueue, int]
) -> None:
    fields = {
        "topic": spelling(topic.name),
        "group": group,
        "timestamp": call.fields.get("timestamp") or str(_LATEST),
        "isForce": "true" if call.flag("isForce") else "false",
    }

    def found(listing: Listing | DragomanError) -> None:
        if isinstance(listing, Listing):
            call.node.tell_members(
                group,
                listing.members,
                Request.RESET_CONSUMER_CLIENT_OFFSET,
                fields,
                lambda member: _reset_body(member, table),
            )

    call.node.look_up_members(group, found)


def _reset_body(member: Listed, table: dict[MessageQueue, int]) -> bytes:
    """Objects as keys, also for Go (spec, 9); C++ reads a list."""
    if member.language != "CPP":
        return bodies.encode(bodies.ResetOffset(offset_table=bodies.keyed(table)), object_keys=True)
    rows = [
        QueueOffset(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            offset=offset,
        )
        for queue, offset in table.items()
    ]
    return bodies.encode(bodies.ResetOffsetList(offset_table=rows))


# ---- from one group to another


def handle_clone_group_offset(call: Call) -> None:
    source, target = call.text("srcGroup"), call.text("destGroup")
    check_group_name(target)
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, source)
    call.session.authorize(Operation.READ, Resource.GROUP, target)
    only = call.fields.get("topic", "")

    def found(row: GroupRow | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(row, DragomanError):
                raise row
            _clone(call, row, target, [only] if only else topics_of(call, row))

        call.guarded(go_on)

    call.node.describe_group(source, found)


def _clone(call: Call, row: GroupRow, target: str, names: list[str]) -> None:
    image = call.service.broker.image
    topics = [each for each in (visible_topic(image, name) for name in names) if each is not None]
    cloned = [each.name for each in topics if row.offsets.get(each.name)]

    def one(name: str, done: Callable[[bool | DragomanError], None]) -> None:
        offsets = row.offsets[name]
        call.node.commits.commit(target, name, offsets, lambda error: done(error or True))

    def finished(outcome: list[bool] | DragomanError) -> None:
        call.done(outcome if isinstance(outcome, DragomanError) else None)

    each_in_turn(call.service.broker.scheduler, cloned, one, finished)
