"""Administration of the name server: lists of topics, key/value configuration, write permissions.

Name server and broker are the same process. So requests that inform a name server about topics that
a broker has created or deleted change nothing, unless the topic does not exist. RocketMQ's own
brokers cannot register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cluster.metadata import TopicMetadata
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, Response
from dragoman.protocols.rocketmq.handlers.broker_admin import (
    change_settings,
    lines_of_request,
    shown_settings,
)
from dragoman.protocols.rocketmq.handlers.names import (
    broker_name,
    node_of,
    spelling,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import (
    all_brokers,
    attributes_of,
    broker_data,
    make_topic,
    serving_node,
    visible_topics,
)
from dragoman.security.access import Operation

#: Bits of a topic's `topicSysFlag`.
_UNIT: Final = 1
_UNIT_SUBSCRIPTION: Final = 2


# ---- topics


def _names(
    call: Call, is_wanted: Callable[[TopicMetadata], bool] = lambda _: True
) -> bodies.TopicList:
    names = [spelling(each.name) for each in visible_topics(call) if is_wanted(each)]
    return bodies.TopicList(topic_list=names)


async def handle_get_all_topic_list_from_nameserver(call: Call) -> bodies.TopicList:
    return _names(call)


async def handle_get_topics_by_cluster(call: Call) -> bodies.TopicList:
    cluster = call.text("cluster", "clusterName")
    return _names(call, lambda _: cluster == DEFAULT_CLUSTER)


async def handle_get_unit_topic_list(call: Call) -> bodies.TopicList:
    return _names(call, lambda topic: bool(attributes_of(topic).sys_flag & _UNIT))


async def handle_get_has_unit_sub_topic_list(call: Call) -> bodies.TopicList:
    return _names(call, lambda topic: bool(attributes_of(topic).sys_flag & _UNIT_SUBSCRIPTION))


async def handle_get_has_unit_sub_ununit_topic_list(call: Call) -> bodies.TopicList:
    both = _UNIT | _UNIT_SUBSCRIPTION
    return _names(call, lambda topic: attributes_of(topic).sys_flag & both == _UNIT_SUBSCRIPTION)


async def handle_get_system_topic_list_from_ns(call: Call) -> bodies.TopicList:
    brokers = all_brokers(call)
    names = [DEFAULT_CLUSTER, *(each.broker_name for each in brokers)]
    address = next((each.broker_addrs["0"] for each in brokers), None)
    return bodies.TopicList(topic_list=names, broker_addr=address)


async def handle_delete_topic_in_namesrv(call: Call) -> None:
    """Do nothing, because request 215 deletes the topic and its route."""
    call.text("topic")


async def handle_register_topic_in_namesrv(call: Call) -> None:
    spelt = call.text("topic")
    route = bodies.decode(call.body, bodies.TopicRouteData)
    queues = [max(each.read_queue_nums, each.write_queue_nums) for each in route.queue_datas]
    if not queues:
        raise Refused(Response.INVALID_PARAMETER, f"the route of {spelt!r} has no queues")
    call.authorize_new_topic(topic_name(spelt))
    if visible_topic(call.broker.image, spelt) is None:
        await make_topic(call, spelt, max(queues))


# ---- key/value configuration


async def handle_put_kv_config(call: Call) -> None:
    namespace, key, value = call.text("namespace"), call.text("key"), call.text("value")
    call.authorize_cluster(Operation.ALTER_CONFIGS)
    await call.node.state.put_kv(namespace, key, value)


async def handle_get_kv_config(call: Call) -> Answer:
    namespace, key = call.text("namespace"), call.text("key")
    call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
    value = call.node.state.kv.get((namespace, key))
    if value is None:
        text = f"No config item, Namespace: {namespace} Key: {key}"
        raise Refused(Response.QUERY_NOT_FOUND, text)
    return Answer(fields={"value": value})


async def handle_delete_kv_config(call: Call) -> None:
    namespace, key = call.text("namespace"), call.text("key")
    call.authorize_cluster(Operation.ALTER_CONFIGS)
    if (namespace, key) in call.node.state.kv:
        await call.node.state.put_kv(namespace, key, None)


async def handle_get_kvlist_by_namespace(call: Call) -> bodies.KvTable:
    namespace = call.text("namespace")
    call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
    table = {key: value for (each, key), value in call.node.state.kv.items() if each == namespace}
    if not table:
        raise Refused(Response.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return bodies.KvTable(table=table)


# ---- write permissions


async def handle_wipe_write_perm_of_broker(call: Call) -> Answer:
    return await _change_permission(call, "wipeTopicCount", is_wiped=True)


async def handle_add_write_perm_of_broker(call: Call) -> Answer:
    return await _change_permission(call, "addTopicCount", is_wiped=False)


async def _change_permission(call: Call, count_name: str, *, is_wiped: bool) -> Answer:
    """Change the write permission of a broker in routes. The broker itself still accepts
    messages.
    """
    name = call.text("brokerName")
    call.authorize_cluster(Operation.ALTER_CONFIGS)
    node, broker, state = node_of(name), call.broker, call.node.state
    topics = [each for each in visible_topics(call) if serving_node(call, each) == node]
    is_known = name == broker_name(broker.node_id) or node in broker.image.nodes
    # The permission of an unknown broker cannot be wiped; as in RocketMQ, this counts 0 topics.
    if is_wiped != (name in state.wiped) and (is_known or not is_wiped):
        await state.put_wiped(name, is_wiped)
    return Answer(fields={count_name: str(len(topics))})


# ---- configuration


async def handle_get_namesrv_config(call: Call) -> Answer:
    call.authorize_cluster(Operation.DESCRIBE_CONFIGS)
    return Answer(body=bodies.write_lines(shown_settings(call)))


async def handle_update_namesrv_config(call: Call) -> None:
    await change_settings(call, lines_of_request(call))


# ---- brokers


async def handle_get_broker_member_group(call: Call) -> bodies.BrokerMemberGroup:
    cluster, name = call.fields.get("clusterName", DEFAULT_CLUSTER), call.text("brokerName")
    node = node_of(name)
    addresses = {}
    if node is not None and cluster == DEFAULT_CLUSTER:
        known = {each.broker_name for each in all_brokers(call)}
        addresses = broker_data(call, node).broker_addrs if name in known else {}
    data = bodies.BrokerData(cluster=cluster, broker_name=name, broker_addrs=addresses)
    return bodies.BrokerMemberGroup(broker_member_group=data)


def _refuse_brokers(_call: Call) -> None:
    raise Refused(Response.NO_PERMISSION, "brokers of RocketMQ cannot join this cluster")


handle_register_broker = handle_unregister_broker = _refuse_brokers
handle_query_data_version = handle_broker_heartbeat = _refuse_brokers
