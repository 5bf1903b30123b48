"""Commands about consumer and producer groups."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.output import Output, show
from dragoman.cli.positions import parse_place
from dragoman.cli.rocketmq.command import Broker, Cluster, Group, Session, Topic, time_text
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.rocketmq import LATEST, GroupOfflineError, SubscriptionGroupConfig, lag_of
from dragoman.protocols.rocketmq.bodies import Connection

#: A time in the style of `mqadmin`: 2026-11-16#04:30:00:000.
_MQADMIN_TIME = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})")


class GroupRow(msgspec.Struct, frozen=True):
    group: str
    members: int
    model: str
    tps: str
    lag: int


class ProgressRow(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_consumed: str


class MemberRow(msgspec.Struct, frozen=True):
    client: str
    address: str
    language: str
    version: int


class MovedRow(msgspec.Struct, frozen=True):
    topic: str
    broker: str
    queue: int
    offset: int


def consumer_progress(
    session: Session,
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g", "--groupName"])] = None,
    topic: Annotated[str | None, Parameter(name=["--topic", "-t"])] = None,
    output: Output = "table",
) -> None:
    """Show the progress and the lag of groups.

    Parameters
    ----------
    group
        Consumer group to show queue by queue; all groups by default.
    topic
        Topic of the group; all topics by default.

    Examples
    --------
    dragoman rocketmq consumer-progress
    dragoman rocketmq consumer-progress -g reports
    """
    if group is None:
        groups = session.admin.list_groups()
        show(output, [_group_row(session, each) for each in groups], GroupRow)
        return
    progress = session.admin.examine_consume_stats(group, topic)
    rows = [
        ProgressRow(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            each.broker_offset,
            each.consumer_offset,
            lag_of(each),
            time_text(each.last_timestamp),
        )
        for queue, each in progress.offsets.items()
    ]
    show(output, rows, ProgressRow)


def _group_row(session: Session, group: str) -> GroupRow:
    progress = session.admin.examine_consume_stats(group)
    try:
        members = session.admin.examine_consumer_connection_info(group)
    except GroupOfflineError:
        return GroupRow(group, 0, "", f"{progress.tps:.2f}", progress.lag)
    count, model = len(members.connection_set), str(members.message_model)
    return GroupRow(group, count, model, f"{progress.tps:.2f}", progress.lag)


def consumer_connection(session: Session, *, group: Group) -> list[MemberRow]:
    """Show the members of a consumer group.

    Examples
    --------
    dragoman rocketmq consumer-connection -g reports
    """
    return _members(session.admin.examine_consumer_connection_info(group).connection_set)


def producer_connection(session: Session, *, group: Group, topic: Topic) -> list[MemberRow]:
    """Show the members of a producer group of a topic.

    Examples
    --------
    dragoman rocketmq producer-connection -g shop -t orders
    """
    return _members(session.admin.examine_producer_connection_info(group, topic).connection_set)


def _members(connections: Iterable[Connection]) -> list[MemberRow]:
    return [
        MemberRow(each.client_id, each.client_addr, each.language, each.version)
        for each in connections
    ]


def reset_offset_by_time(
    session: Session,
    *,
    group: Group,
    topic: Topic,
    timestamp: Annotated[str, Parameter(name=["--timestamp", "-s"])],
    force: Annotated[bool, Parameter(name=["--force", "-f"])] = True,
) -> list[MovedRow]:
    """Reset the offsets of a group to a time.

    Parameters
    ----------
    timestamp
        now, @-15m, milliseconds since 1970, or a time like 2026-11-15T10:00:00Z.
    force
        Whether offsets may also move forward.

    Examples
    --------
    dragoman rocketmq reset-offset-by-time -g reports -t orders -s @-15m
    """
    time_ms = _time_ms(timestamp)
    moved = session.admin.reset_offset_by_timestamp(topic, group, time_ms, force=force)
    return [
        MovedRow(queue.topic, queue.broker_name, queue.queue_id, offset)
        for queue, offset in sorted(moved.items())
    ]


def _time_ms(text: str) -> int:
    if text in ("now", "-1"):
        return LATEST
    if text.isdigit():
        return int(text[:18])
    if found := _MQADMIN_TIME.fullmatch(text):
        text = f"{found[1]}T{found[2]}.{found[3]}"
    place = parse_place("--timestamp", text)
    if place.kind != "time":
        raise CommandError(f"--timestamp: expected now, @-15m or a time, got {text!r}", USAGE)
    return place.number


def update_sub_group(
    session: Session,
    *,
    group: Group,
    broker: Broker = None,
    cluster: Cluster = None,
    consume_enable: Annotated[bool, Parameter(name=["--consume-enable", "-s"])] = True,
    consume_broadcast_enable: Annotated[bool, Parameter(name=["--broadcast-enable", "-d"])] = True,
    retry_queues: Annotated[int, Parameter(name=["--retry-queues", "-q", "--retryQueueNums"])] = 1,
    retry_max_times: Annotated[
        int, Parameter(name=["--retry-max-times", "-r", "--retryMaxTimes"])
    ] = 16,
) -> str:
    """Create or change a consumer group.

    Parameters
    ----------
    consume_enable
        Whether the group may consume.
    consume_broadcast_enable
        Whether members may consume in broadcasting mode.
    retry_queues
        Number of queues of the retry topic.
    retry_max_times
        Number of retries before a message becomes a dead letter.

    Examples
    --------
    dragoman rocketmq update-sub-group -g reports -r 3
    """
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=consume_enable,
        consume_broadcast_enable=consume_broadcast_enable,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
    )
    session.admin.create_subscription_group(config, broker=broker, cluster=cluster)
    return f"created or changed group {group!r}"


def delete_sub_group(
    session: Session,
    *,
    group: Group,
    broker: Broker = None,
    remove_offset: Annotated[bool, Parameter(name=["--remove-offset", "-r"])] = True,
) -> str:
    """Delete a consumer group.

    Parameters
    ----------
    remove_offset
        Whether to delete its offsets as well.

    Examples
    --------
    dragoman rocketmq delete-sub-group -g reports
    """
    session.admin.delete_subscription_group(group, broker=broker, clean_offset=remove_offset)
    return f"deleted group {group!r}"


COMMANDS = (
    consumer_progress,
    consumer_connection,
    producer_connection,
    reset_offset_by_time,
    update_sub_group,
    delete_sub_group,
)
