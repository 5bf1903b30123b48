"""Topics as RocketMQ's clients see them, their creation on first use, and routes (105, 106).

What a RocketMQ topic has beside a log is kept as one entry of the topic's configuration:

    perm=6 read=4 write=4 order=true filter=MULTI_TAG sys_flag=0 attributes=+a=b,c=d

To RocketMQ each node is a broker of its own, and a queue is known by its broker and its number. So
that queues keep the numbers of their partitions, a topic is at one broker at a time: the node that
leads most of its partitions, which relays requests for the others. Topics that RocketMQ clients
create are led by one node as a whole. When that node dies the route names another, and since
offsets are the group's, consumers resume there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from dragoman.outcome import attempt
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import (
    DEFAULT_CLUSTER,
    READ_AND_WRITE,
    TEMPLATE_TOPIC,
    TOPIC_CONFIG,
    TRACE_TOPIC,
    Perm,
    Response,
)
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import (
    broker_name,
    check_topic_name,
    is_expressible,
    spelling,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

#: Queues of the template: producers ask for no more of a topic that they create.
TEMPLATE_QUEUES: Final = 8
#: Where the name server keeps how many queues of each broker a topic has that is read in order.
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
ATTRIBUTES_KEY: Final = "dragoman.rocketmq.topic"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    perm: int = int(READ_AND_WRITE)
    #: Queues that are read and written; 0: as many as there are partitions.
    read: int = 0
    write: int = 0
    order: str = "false"
    filter: str = "SINGLE_TAG"
    sys_flag: int = 0
    #: `key=value` pairs with commas between them.
    attributes: str = ""

    @property
    def is_ordered(self) -> bool:
        return self.order == "true"


_DEFAULT: Final = Attributes()


@lru_cache(maxsize=1024)
def _read(text: str) -> Attributes:
    found = dict(each.partition("=")[::2] for each in text.split())
    known = {name: found[name] for name in Attributes.__struct_fields__ if name in found}
    try:
        return msgspec.convert(known, Attributes, strict=False)
    except msgspec.ValidationError:
        # Written by hand, and not as this module writes it.
        return _DEFAULT


def attributes_of(topic: TopicMetadata) -> Attributes:
    text = topic.config.get(ATTRIBUTES_KEY)
    return _DEFAULT if text is None else _read(text)


def written(attributes: Attributes) -> str:
    """As an entry of the configuration; empty when all are the defaults."""
    default = msgspec.structs.asdict(_DEFAULT)
    given = msgspec.structs.asdict(attributes)
    return " ".join(f"{name}={given[name]}" for name in given if given[name] != default[name])


def read_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).read or count, count)


def write_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).write or count, count)


def visible_topics(call: Call) -> list[TopicMetadata]:
    """The topics that RocketMQ can name and the client may know of, in order."""
    return [
        topic
        for name, topic in sorted(call.service.broker.image.topics.items())
        if not topic.is_internal
        and is_expressible(name)
        and call.session.is_allowed(Operation.DESCRIBE, Resource.TOPIC, name)
    ]


def make_topic(call: Call, spelt: str, queues: int) -> Coroutine[object, None, TopicMetadata]:
    """Create a topic unless it exists. Raises `DragomanError` at once when the client may not.

    This node leads the topic, because the client that needs it is connected here.
    """
    check_topic_name(spelt)
    name = topic_name(spelt)
    call.session.authorize(Operation.CREATE, Resource.TOPIC, name)
    return _make_topic(call.service.broker, name, queues)


async def _make_topic(broker: Core, name: str, queues: int) -> TopicMetadata:
    new = NewTopic(
        name=name, partition_count=queues, config=dict(TOPIC_CONFIG), led_by=broker.node_id
    )
    error = await attempt(broker.topics.ensure(new))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise error or UnknownTopic(f"topic {name!r} is gone")
    return topic


# ---- routes


async def handle_get_routeinfo_by_topic(call: Call) -> bodies.TopicRouteData:
    spelt = call.text("topic")
    broker = call.service.broker
    if spelt == TEMPLATE_TOPIC and broker.settings.auto_create_topics_enable:
        return _template_route(call)
    topic = visible_topic(broker.image, spelt)
    if topic is not None:
        call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    elif spelt == TRACE_TOPIC and broker.settings.auto_create_topics_enable:
        # Some clients complain every second while there is none.
        topic = await make_topic(call, spelt, 1)
    else:
        text = f"No topic route info in name server for the topic: {spelt}"
        raise Refused(Response.TOPIC_NOT_EXIST, text)
    return route_of(call, topic)


async def handle_get_broker_cluster_info(call: Call) -> bodies.ClusterInfo:
    table = {each.broker_name: each for each in all_brokers(call)}
    names = {DEFAULT_CLUSTER: sorted(table)}
    return bodies.ClusterInfo(broker_addr_table=table, cluster_addr_table=names)


def route_of(call: Call, topic: TopicMetadata) -> bodies.TopicRouteData:
    node = serving_node(call, topic)
    attributes, state = attributes_of(topic), call.node.state
    name = broker_name(node)
    queues = bodies.QueueData(
        broker_name=name,
        read_queue_nums=read_queues(topic),
        write_queue_nums=write_queues(topic),
        perm=attributes.perm & ~Perm.WRITE if name in state.wiped else attributes.perm,
        topic_sys_flag=attributes.sys_flag,
    )
    route = bodies.TopicRouteData(queue_datas=[queues], broker_datas=[broker_data(call, node)])
    order = state.kv.get((ORDER_NAMESPACE, spelling(topic.name)))
    if order is not None:
        route.order_topic_conf = order
    elif attributes.is_ordered:
        route.order_topic_conf = f"{name}:{queues.write_queue_nums}"
    return route


def serving_node(call: Call, topic: TopicMetadata) -> int:
    """The node at which clients find a topic."""
    leaders = Counter(each.leader for each in topic.partitions if each.leader != NO_LEADER)
    # The first of those that lead most, in the order of the partitions.
    for node, _ in leaders.most_common():
        if call.service.address_of(call.session.channel, node) is not None:
            return node
    return call.service.broker.node_id


def queue_of(call: Call, partition: PartitionMetadata) -> bodies.MessageQueue:
    """The queue at the broker that the topic's route names."""
    topic = partition.topic
    return bodies.MessageQueue(
        topic=spelling(topic.name),
        broker_name=broker_name(serving_node(call, topic)),
        queue_id=partition.index,
    )


def _template_route(call: Call) -> bodies.TopicRouteData:
    brokers = all_brokers(call)
    queues = [
        bodies.QueueData(
            broker_name=each.broker_name,
            read_queue_nums=TEMPLATE_QUEUES,
            write_queue_nums=TEMPLATE_QUEUES,
            perm=READ_AND_WRITE | Perm.INHERIT,
        )
        for each in brokers
    ]
    return bodies.TopicRouteData(queue_datas=queues, broker_datas=brokers)


def all_brokers(call: Call) -> list[bodies.BrokerData]:
    """Every node that RocketMQ clients can reach, and this one."""
    service, channel = call.service, call.session.channel
    image = service.broker.image
    nodes = [
        each
        for each in sorted({*image.nodes, service.broker.node_id})
        if service.address_of(channel, each) is not None
    ]
    return [broker_data(call, each) for each in nodes]


def broker_data(call: Call, node: int) -> bodies.BrokerData:
    address = call.service.address_of(call.session.channel, node)
    host, port = address if address is not None else ("0.0.0.0", 0)
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return bodies.BrokerData(
        cluster=DEFAULT_CLUSTER, broker_name=broker_name(node), broker_addrs={"0": shown}
    )
