"""Commands about topics and brokers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from dragoman.cli.rocketmq.command import Broker, Cluster, Session, Topic, masters, time_text
from dragoman.cli.status import USAGE, CommandError
from dragoman.client.rocketmq import TopicConfig
from dragoman.client_core.errors import ClientError
from dragoman.plural import plural


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


class BrokerRow(msgspec.Struct, frozen=True):
    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str
    in_tps: str
    out_tps: str


class StatusRow(msgspec.Struct, frozen=True):
    broker: str
    name: str
    value: str


# ---- topics


def topic_list(session: Session, *, cluster: Cluster = None) -> list[NamedTopic]:
    """List topics.

    Examples
    --------
    dragoman rocketmq topic-list -n 127.0.0.1:9876
    """
    if cluster is None:
        names = session.admin.fetch_all_topic_list()
    else:
        names = session.admin.fetch_topics_by_cluster(cluster)
    return [NamedTopic(name) for name in names]


def topic_route(session: Session, *, topic: Topic) -> list[RouteRow]:
    """Show the brokers of a topic.

    Examples
    --------
    dragoman rocketmq topic-route -t orders
    """
    route = session.admin.examine_topic_route_info(topic)
    brokers = {each.broker_name: each for each in route.broker_datas}
    return [
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


def topic_status(session: Session, *, topic: Topic) -> list[QueueRow]:
    """Show the queues of a topic.

    Examples
    --------
    dragoman rocketmq topic-status -t orders
    """
    return [
        QueueRow(
            queue.broker_name,
            queue.queue_id,
            each.min_offset,
            each.max_offset,
            time_text(each.last_update_timestamp),
        )
        for queue, each in session.admin.examine_topic_stats(topic).items()
    ]


def update_topic(
    session: Session,
    *,
    topic: Topic,
    cluster: Cluster = None,
    broker: Broker = None,
    read_queues: Annotated[int, Parameter(name=["--read-queues", "-r", "--readQueueNums"])] = 8,
    write_queues: Annotated[int, Parameter(name=["--write-queues", "-w", "--writeQueueNums"])] = 8,
    perm: Annotated[int, Parameter(name=["--perm", "-p"])] = 6,
    order: Annotated[bool, Parameter(name=["--order", "-o"])] = False,
) -> str:
    """Create or change a topic.

    Parameters
    ----------
    read_queues
        Number of read queues.
    write_queues
        Number of write queues.
    perm
        Permission: 4 to read, 2 to write, 6 for both.
    order
        Whether messages are consumed in order.

    Examples
    --------
    dragoman rocketmq update-topic -t orders -r 4 -w 4
    """
    if min(read_queues, write_queues) < 1 or perm not in (2, 4, 6):
        raise CommandError("expected at least one queue, and 2, 4 or 6 as --perm", USAGE)
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        order=order,
    )
    session.admin.create_topic(config, broker=broker, cluster=cluster)
    return f"topic {topic!r} has {plural(read_queues, 'queue')} to read and {write_queues} to write"


def delete_topic(session: Session, *, topic: Topic, cluster: Cluster = None) -> str:
    """Delete a topic and its messages.

    Examples
    --------
    dragoman rocketmq delete-topic -t old-orders
    """
    session.admin.delete_topic(topic, cluster)
    return f"deleted topic {topic!r}"


# ---- brokers


def cluster_list(session: Session) -> list[BrokerRow]:
    """List clusters and their brokers.

    Examples
    --------
    dragoman rocketmq cluster-list
    """
    admin = session.admin
    rows = []
    for name, each in sorted(admin.examine_broker_cluster_info().broker_addr_table.items()):
        for number, address in sorted(each.broker_addrs.items()):
            try:
                table = admin.fetch_broker_runtime_stats(address)
            except ClientError:
                # The other brokers are still shown.
                table = {"brokerVersionDesc": "unreachable"}
            sent = table.get("getTransferredTps") or table.get("getTransferedTps", "")
            rows.append(
                BrokerRow(
                    each.cluster,
                    name,
                    int(number),
                    address,
                    table.get("brokerVersionDesc", ""),
                    _last_seconds(table.get("putTps", "")),
                    _last_seconds(sent),
                )
            )
    return rows


def _last_seconds(triple: str) -> str:
    """The rate of the last ten seconds, which precedes those of one and ten minutes."""
    return triple.split()[0] if triple.split() else ""


def broker_status(
    session: Session, *, broker: Broker = None, cluster: Cluster = None
) -> list[StatusRow]:
    """Show the runtime statistics of brokers.

    Examples
    --------
    dragoman rocketmq broker-status
    """
    return [
        StatusRow(address, name, value)
        for address in masters(session, broker, cluster)
        for name, value in sorted(session.admin.fetch_broker_runtime_stats(address).items())
    ]


COMMANDS = (
    topic_list,
    topic_route,
    topic_status,
    update_topic,
    delete_topic,
    cluster_list,
    broker_status,
)
