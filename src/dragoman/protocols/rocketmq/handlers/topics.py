"""Topics as RocketMQ's clients see them: routes (105, 106), creation on first use, administration
(17, 18, 21, 202, 215, 305, 351).

The attributes that a RocketMQ topic has in addition to a log's are one entry of the topic's
configuration:

    perm=6 read=4 write=4 order=true filter=MULTI_TAG sys_flag=0 attributes=+a=b,c=d

To RocketMQ's clients each node is a separate broker, and a queue is identified by its broker and
its number. So that queues keep the numbers of their partitions, a topic is at one broker at a time:
the node that leads most of its partitions, which forwards requests for the others. One node leads
all partitions of a topic that RocketMQ clients create. When that node dies, the route names another
one, and since offsets belong to the group, consumers resume there.

A topic has as many partitions as read or write queues, whichever are more. Partitions are never
removed: when a topic gets fewer queues, the remaining ones are hidden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.broker.caller_rights import NODE_ITSELF
from dragoman.broker.errors import TopicExists, UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from dragoman.limits import TOPIC_PARTITIONS_MAX
from dragoman.outcome import attempt
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import (
    CHECKED_TOO_OFTEN_TOPIC,
    DEFAULT_CLUSTER,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    READ_AND_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
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
from dragoman.protocols.rocketmq.handlers.offsets import all_ends, offset_at, store_time_of
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.security.access import Caller, Operation

#: Queues of the template topic. Producers create topics with at most as many queues.
TEMPLATE_QUEUES: Final = 8
#: The name server's namespace with the queues by broker of topics that are consumed in order.
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
ATTRIBUTES_KEY: Final = "dragoman.rocketmq.topic"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    perm: int = int(READ_AND_WRITE)
    #: Read and write queues; 0: as many as partitions.
    read: int = 0
    write: int = 0
    order: str = "false"
    filter: str = "SINGLE_TAG"
    sys_flag: int = 0
    #: Pairs `key=value`, separated by commas.
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
        # An operator has set the entry to an invalid value.
        return _DEFAULT


def attributes_of(topic: TopicMetadata) -> Attributes:
    text = topic.config.get(ATTRIBUTES_KEY)
    return _DEFAULT if text is None else _read(text)


def written(attributes: Attributes) -> str:
    """The entry of the configuration; empty if all attributes have their defaults."""
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
    """The topics that RocketMQ can name and the client may describe, sorted."""
    describable = call.describable_topics(call.broker.image.topics)
    return [
        topic
        for name, topic in sorted(call.broker.image.topics.items())
        if not topic.is_internal and is_expressible(name) and name in describable
    ]


def make_topic(call: Call, spelt: str, queues: int) -> Coroutine[object, None, TopicMetadata]:
    """Create a topic unless it exists. This node leads it, because its client is connected here.

    Raises `Refused` and `NotAuthorized` at once.
    """
    call.authorize_new_topic(topic_name(spelt))
    return own_topic(call, spelt, queues)


def own_topic(call: Call, spelt: str, queues: int) -> Coroutine[object, None, TopicMetadata]:
    """Create a topic that the broker itself needs, such as that of a group's retries, unless it
    exists. The client needs no right for it. Raises `Refused` at once.
    """
    check_topic_name(spelt)
    return _make_topic(call.broker, topic_name(spelt), queues)


async def _make_topic(broker: Core, name: str, queues: int) -> TopicMetadata:
    new = NewTopic(
        name=name, partition_count=queues, config=dict(TOPIC_CONFIG), led_by=broker.node_id
    )
    error = await attempt(broker.topics.ensure(new))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise error or UnknownTopic(f"topic {name!r} is gone")
    return topic


def record_caller(call: Call, topic: TopicMetadata) -> Caller:
    """The caller whose right to write the leader of a topic checks. The node itself for the retries
    of a group: this node has checked the right on the group, which the leader does not know.
    """
    return NODE_ITSELF if topic.name.startswith(RETRY_PREFIX) else call.caller


# ---- routes


async def handle_get_routeinfo_by_topic(call: Call) -> bodies.TopicRouteData:
    spelt = call.text("topic")
    broker = call.broker
    if spelt == TEMPLATE_TOPIC and broker.settings.auto_create_topics_enable:
        return _template_route(call)
    call.authorize_topic(Operation.DESCRIBE, topic_name(spelt))
    topic = visible_topic(broker.image, spelt)
    if topic is not None:
        return route_of(call, topic)
    if spelt == TRACE_TOPIC and broker.settings.auto_create_topics_enable:
        # Some clients log an error every second while the route is missing.
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
    """The node that a topic's route names: the first of those that lead most partitions."""
    leaders = Counter(each.leader for each in topic.partitions if each.leader != NO_LEADER)
    for node, _ in leaders.most_common():
        if call.service.address_of(call.session.channel, node) is not None:
            return node
    return call.broker.node_id


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
    """Every node that RocketMQ clients can reach."""
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


_FILTERS: Final = ("SINGLE_TAG", "MULTI_TAG")
_PERM_MAX: Final = int(READ_AND_WRITE | Perm.INHERIT) | 8
_MINUTE_S: Final = 60
_SYSTEM_TOPICS: Final = (
    TEMPLATE_TOPIC,
    "SELF_TEST_TOPIC",
    "BenchmarkTest",
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    CHECKED_TOO_OFTEN_TOPIC,
    TRACE_TOPIC,
    "OFFSET_MOVED_EVENT",
    DEFAULT_CLUSTER,
    f"{DEFAULT_CLUSTER}_REPLY_TOPIC",
)


def data_version(call: Call) -> bodies.DataVersion:
    """The version of every table, which is that of the cluster's metadata."""
    return bodies.DataVersion(counter=call.broker.changes.version)


# ---- creation and changes


async def handle_update_and_create_topic(call: Call) -> None:
    wanted = bodies.TopicConfig(
        topic_name=call.text("topic"),
        read_queue_nums=call.number("readQueueNums"),
        write_queue_nums=call.number("writeQueueNums"),
        perm=call.number("perm"),
        topic_filter_type=call.fields.get("topicFilterType") or _FILTERS[0],
        topic_sys_flag=call.number("topicSysFlag", 0),
        order=call.flag("order"),
    )
    changes = call.fields.get("attributes", "")
    await _set_topic(call, wanted, changes.split(",") if changes else [])


async def handle_update_and_create_topic_list(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.TopicConfigList).topic_config_list
    if len(wanted) > TOPIC_PARTITIONS_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"{len(wanted)} topics in one request")
    queues = sum(max(each.read_queue_nums, each.write_queue_nums, 0) for each in wanted)
    call.broker.topics.check_request(queues)

    for each in wanted:
        # Attribute names may be prefixed with the sign of a change.
        changes = [
            name if name[:1] == "-" else f"{'' if name[:1] == '+' else '+'}{name}={value}"
            for name, value in each.attributes.items()
        ]
        await _set_topic(call, each, changes)
        await call.pause()


async def _set_topic(call: Call, wanted: bodies.TopicConfig, changes: list[str]) -> None:
    _check(wanted)
    _changed_attributes("", changes)
    broker = call.broker
    name = topic_name(wanted.topic_name)
    queues = max(wanted.read_queue_nums, wanted.write_queue_nums)
    topic = broker.image.topics.get(name)
    if topic is not None and topic.is_internal:
        raise Refused(Response.INVALID_PARAMETER, f"{name} is an internal topic")
    if topic is None or not call.may_access(Operation.DESCRIBE, name):
        # The same refusal, whether or not the topic exists.
        call.authorize_new_topic(name)
    if topic is None:
        config = dict(TOPIC_CONFIG)
        text = _attributes(wanted, changes, Attributes(), queues)
        if text:
            config[ATTRIBUTES_KEY] = text
        new = NewTopic(name=name, partition_count=queues, config=config, led_by=broker.node_id)
        # Tools send this to every broker of the cluster, perhaps concurrently.
        with suppress(TopicExists):
            await broker.topics.create(new, call.actor)
        return
    call.authorize_topic(Operation.ALTER, name)
    if queues > len(topic.partitions):
        # The replicas are those of the first partition, so that clients find the topic at one
        # broker.
        added = (topic.partitions[0].replicas,) * (queues - len(topic.partitions))
        await broker.topics.add_partitions(name, queues, added, call.actor)
    await _alter(call, topic, wanted, changes)


def _check(wanted: bodies.TopicConfig) -> None:
    check_topic_name(wanted.topic_name)
    for count in (wanted.read_queue_nums, wanted.write_queue_nums):
        if not 1 <= count <= TOPIC_PARTITIONS_MAX:
            text = f"{count} queues; a topic has 1 to {TOPIC_PARTITIONS_MAX}"
            raise Refused(Response.INVALID_PARAMETER, text)
    if not 0 <= wanted.perm <= _PERM_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"perm {wanted.perm} is invalid")
    if wanted.topic_filter_type not in _FILTERS:
        text = f"topicFilterType {wanted.topic_filter_type!r}: expected {' or '.join(_FILTERS)}"
        raise Refused(Response.INVALID_PARAMETER, text)


async def _alter(
    call: Call, topic: TopicMetadata, wanted: bodies.TopicConfig, changes: list[str]
) -> None:
    broker = call.broker

    def alter(present: Mapping[str, str]) -> dict[str, str]:
        now = broker.image.topics.get(topic.name)
        if now is None:
            raise UnknownTopic(f"there is no topic {topic.name!r}")
        config = dict(present)
        text = _attributes(wanted, changes, attributes_of(now), len(now.partitions))
        config.pop(ATTRIBUTES_KEY, None)
        return config | ({ATTRIBUTES_KEY: text} if text else {})

    if alter(topic.config) != topic.config:
        await broker.topics.alter_config(topic.name, alter, call.actor)


def _attributes(
    wanted: bodies.TopicConfig, changes: list[str], present: Attributes, partitions: int
) -> str:
    """The new entry of the topic's configuration. Raises `Refused`."""
    return written(
        Attributes(
            perm=wanted.perm,
            # 0 follows the number of partitions when it grows.
            read=0 if wanted.read_queue_nums == partitions else wanted.read_queue_nums,
            write=0 if wanted.write_queue_nums == partitions else wanted.write_queue_nums,
            order="true" if wanted.order else "false",
            filter=wanted.topic_filter_type,
            sys_flag=wanted.topic_sys_flag,
            attributes=_changed_attributes(present.attributes, changes),
        )
    )


def _changed_attributes(present: str, changes: list[str]) -> str:
    found = dict(each.partition("=")[::2] for each in present.split(",") if each)
    for change in map(str.strip, changes):
        name, _, value = change[1:].partition("=")
        if change[:1] not in ("+", "-") or not name or change.split() != [change]:
            text = f"attributes: {change[:100]!r} is neither +name=value nor -name"
            raise Refused(Response.INVALID_PARAMETER, text)
        if change[0] == "+":
            found[name] = value
        else:
            found.pop(name, None)
    return ",".join(f"{name}={value}" for name, value in sorted(found.items()))


async def handle_delete_topic_in_broker(call: Call) -> None:
    spelt = call.text("topic")
    check_topic_name(spelt)
    broker = call.broker
    topic = visible_topic(broker.image, spelt)
    call.authorize_topic(Operation.DELETE, topic_name(spelt))
    if topic is not None:
        # Tools send this to every broker of the cluster, and the first has deleted the topic.
        with suppress(UnknownTopic):
            await broker.topics.delete(topic.name, call.actor)


# ---- descriptions


def topic_config(topic: TopicMetadata) -> bodies.TopicConfig:
    attributes = attributes_of(topic)
    pairs = (each.partition("=")[::2] for each in attributes.attributes.split(",") if each)
    return bodies.TopicConfig(
        topic_name=spelling(topic.name),
        read_queue_nums=read_queues(topic),
        write_queue_nums=write_queues(topic),
        perm=attributes.perm,
        topic_filter_type=attributes.filter,
        topic_sys_flag=attributes.sys_flag,
        order=attributes.is_ordered,
        attributes=dict(pairs),
    )


async def handle_get_topic_config(call: Call) -> bodies.TopicConfig:
    return topic_config(call.known_topic(Operation.DESCRIBE))


async def handle_get_all_topic_config(call: Call) -> Answer:
    """All topics, or the page that `topicSeq` and `maxTopicNum` select."""
    topics = visible_topics(call)
    first, count = call.number("topicSeq", 0), call.number("maxTopicNum", 0)
    shown = topics[max(0, first) :]
    if count > 0:
        shown = shown[:count]
    table = bodies.TopicConfigTable(
        topic_config_table={spelling(each.name): topic_config(each) for each in shown},
        data_version=data_version(call),
    )
    return Answer(fields={"totalTopicNum": str(len(topics))}, body=bodies.encode(table))


async def handle_get_system_topic_list_from_broker(call: Call) -> bodies.TopicList:
    return bodies.TopicList(topic_list=[*_SYSTEM_TOPICS, call.node.broker_name])


# ---- statistics


async def handle_get_topic_stats_info(call: Call) -> Answer:
    topic = call.known_topic(Operation.DESCRIBE)
    partitions = topic.partitions[: max(read_queues(topic), write_queues(topic))]
    minute_ago = call.broker.clock.wall_ms() - _MINUTE_S * 1000

    table = {}
    recent = 0
    for partition, ends in await all_ends(call, partitions):
        end, updated = ends.last_stable_offset, 0
        if end > ends.log_start_offset:
            updated = await store_time_of(call.node, partition, end - 1)
        if updated >= minute_ago:
            recent += max(0, end - await offset_at(call.node, partition, minute_ago))
        table[queue_of(call, partition)] = bodies.TopicOffset(
            min_offset=ends.log_start_offset,
            max_offset=end,
            last_update_timestamp=max(0, updated),
        )
        await call.pause()
    rate = recent / _MINUTE_S
    return call.queue_table(bodies.TopicStats(offset_table=bodies.keyed(table), topic_put_tps=rate))
