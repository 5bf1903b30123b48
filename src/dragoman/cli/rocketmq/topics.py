"""Commands about topics."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.output import Output
from dragoman.cli.rocketmq.options import (
    DEFAULT_NAMESRV,
    Broker,
    Cluster,
    NameServers,
    Topic,
    administering,
    show,
    time_text,
)
from dragoman.cli.status import USAGE, CommandError, say
from dragoman.client.rocketmq import TopicConfig


class NamedTopic(msgspec.Struct, frozen=True):
    topic: str


class RouteRow(msgspec.Struct, frozen=True):
    cluster: str
    broker: str
    broker_id: int
    address: str
    read_queues: int
    write_queues: int
    perm: int


class QueueRow(msgspec.Struct, frozen=True):
    broker: str
    queue: int
    min_offset: int
    max_offset: int
    last_updated: str


def topic_list(
    *, cluster: Cluster = None, namesrv: NameServers = DEFAULT_NAMESRV, output: Output = "table"
) -> None:
    """List topics."""
    with administering(namesrv) as admin:
        if cluster is None:
            names = admin.fetch_all_topic_list()
        else:
            names = admin.fetch_topics_by_cluster(cluster)
    show([NamedTopic(name) for name in names], NamedTopic, output)


def topic_route(
    *, topic: Topic, namesrv: NameServers = DEFAULT_NAMESRV, output: Output = "table"
) -> None:
    """Show which brokers have a topic."""
    with administering(namesrv) as admin:
        route = admin.examine_topic_route_info(topic)
    brokers = {each.broker_name: each for each in route.broker_datas}
    rows = [
        RouteRow(
            brokers[each.broker_name].cluster,
            each.broker_name,
            int(number),
            address,
            each.read_queue_nums,
            each.write_queue_nums,
            each.perm,
        )
        for each in route.queue_datas
        if each.broker_name in brokers
        for number, address in sorted(brokers[each.broker_name].broker_addrs.items())
    ]
    show(rows, RouteRow, output)


def topic_status(
    *, topic: Topic, namesrv: NameServers = DEFAULT_NAMESRV, output: Output = "table"
) -> None:
    """Show the queues of a topic."""
    with administering(namesrv) as admin:
        stats = admin.examine_topic_stats(topic)
    rows = [
        QueueRow(
            queue.broker_name,
            queue.queue_id,
            each.min_offset,
            each.max_offset,
            time_text(each.last_update_timestamp),
        )
        for queue, each in stats.items()
    ]
    show(rows, QueueRow, output)


def update_topic(
    *,
    topic: Topic,
    cluster: Cluster = None,
    broker: Broker = None,
    read_queues: Annotated[int, Parameter(name=["--read-queues", "-r", "--readQueueNums"])] = 8,
    write_queues: Annotated[int, Parameter(name=["--write-queues", "-w", "--writeQueueNums"])] = 8,
    perm: Annotated[int, Parameter(name=["--perm", "-p"])] = 6,
    order: Annotated[bool, Parameter(name=["--order", "-o"])] = False,
    namesrv: NameServers = DEFAULT_NAMESRV,
) -> None:
    """Create or change a topic.

    Parameters
    ----------
    read_queues
        Queues that are read.
    write_queues
        Queues that are written to.
    perm
        4 for reading, 2 for writing, 6 for both.
    order
        Whether its messages are consumed in order.
    """
    if min(read_queues, write_queues) < 1 or perm not in (2, 4, 6):
        raise CommandError("expected at least one queue, and 2, 4 or 6 for --perm", USAGE)
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        order=order,
    )
    with administering(namesrv) as admin:
        admin.create_topic(config, broker=broker, cluster=cluster)
    say(f"topic {topic!r} has {read_queues} queues to read and {write_queues} to write")


def delete_topic(
    *, topic: Topic, cluster: Cluster = None, namesrv: NameServers = DEFAULT_NAMESRV
) -> None:
    """Delete a topic and its messages."""
    with administering(namesrv) as admin:
        admin.delete_topic(topic, cluster)
    say(f"deleted topic {topic!r}")


#: By their names: one as commands have here, one as `mqadmin` has it.
COMMANDS = {
    "topic-list topicList": topic_list,
    "topic-route topicRoute": topic_route,
    "topic-status topicStatus": topic_status,
    "update-topic updateTopic": update_topic,
    "delete-topic deleteTopic": delete_topic,
}
