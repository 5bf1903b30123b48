"""Administration of the name server: lists of topics, key/value configuration, write permissions.

Topics are made and deleted at brokers, and the name server, which is the same process, sees it at
once: the requests with which brokers and tools tell a name server of changes have nothing to do.
Foreign brokers cannot register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import DEFAULT_CLUSTER, Response
from dragoman.protocols.rocketmq.handlers.attributes import attributes_of
from dragoman.protocols.rocketmq.handlers.configuration import (
    authorize_cluster,
    change_settings,
    lines_of_request,
    shown_settings,
)
from dragoman.protocols.rocketmq.handlers.names import (
    broker_name,
    is_expressible,
    node_of,
    spelling,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.routes import all_brokers, broker_data, serving_node
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import make_topic
from dragoman.security.authorizer import Operation, Resource

#: Bits of a topic's `topicSysFlag`.
_UNIT: Final = 1
_UNIT_SUBSCRIPTION: Final = 2


# ---- topics


def visible_topics(call: Call) -> list[TopicMetadata]:
    """Those that RocketMQ can name, in order."""
    authorizer, principal = call.service.broker.authorizer, call.session.principal
    return [
        topic
        for name, topic in sorted(call.service.broker.image.topics.items())
        if not topic.is_internal
        and is_expressible(name)
        and authorizer.is_allowed(principal, Operation.DESCRIBE, Resource.TOPIC, name)
    ]


def _reply_topics(call: Call, is_wanted: Callable[[TopicMetadata], bool] = lambda _: True) -> None:
    names = [spelling(each.name) for each in visible_topics(call) if is_wanted(each)]
    call.reply(body=bodies.encode(bodies.TopicList(topic_list=names)))


def handle_get_all_topic_list_from_nameserver(call: Call) -> None:
    _reply_topics(call)


def handle_get_topics_by_cluster(call: Call) -> None:
    cluster = call.text("cluster", "clusterName")
    _reply_topics(call, lambda _: cluster == DEFAULT_CLUSTER)


def handle_get_unit_topic_list(call: Call) -> None:
    _reply_topics(call, lambda topic: bool(attributes_of(topic).sys_flag & _UNIT))


def handle_get_has_unit_sub_topic_list(call: Call) -> None:
    _reply_topics(call, lambda topic: bool(attributes_of(topic).sys_flag & _UNIT_SUBSCRIPTION))


def handle_get_has_unit_sub_ununit_topic_list(call: Call) -> None:
    both = _UNIT | _UNIT_SUBSCRIPTION
    _reply_topics(call, lambda topic: attributes_of(topic).sys_flag & both == _UNIT_SUBSCRIPTION)


def handle_get_system_topic_list_from_ns(call: Call) -> None:
    brokers = all_brokers(call)
    names = [DEFAULT_CLUSTER, *(each.broker_name for each in brokers)]
    address = next((each.broker_addrs["0"] for each in brokers), None)
    call.reply(body=bodies.encode(bodies.TopicList(topic_list=names, broker_addr=address)))


def handle_delete_topic_in_namesrv(call: Call) -> None:
    """Deleted with the topic, by request 215; a route that still has a topic comes back by itself
    in the original, too."""
    call.text("topic")
    call.reply()


def handle_register_topic_in_namesrv(call: Call) -> None:
    spelt = call.text("topic")
    route = bodies.decode(call.body, bodies.TopicRouteData)
    queues = [max(each.read_queue_nums, each.write_queue_nums) for each in route.queue_datas]
    if not queues:
        raise Refused(Response.INVALID_PARAMETER, f"the route of {spelt!r} has no queues")
    if visible_topic(call.service.broker.image, spelt) is not None:
        call.reply()
    else:
        make_topic(call, spelt, max(queues), lambda _: call.reply())


# ---- key/value configuration


def handle_put_kv_config(call: Call) -> None:
    namespace, key, value = call.text("namespace"), call.text("key"), call.text("value")
    authorize_cluster(call, Operation.ALTER_CONFIGS)
    call.node.state.put_kv(namespace, key, value, call.done)


def handle_get_kv_config(call: Call) -> None:
    namespace, key = call.text("namespace"), call.text("key")
    authorize_cluster(call, Operation.DESCRIBE_CONFIGS)
    value = call.node.state.kv.get((namespace, key))
    if value is None:
        text = f"No config item, Namespace: {namespace} Key: {key}"
        raise Refused(Response.QUERY_NOT_FOUND, text)
    call.reply(fields={"value": value})


def handle_delete_kv_config(call: Call) -> None:
    namespace, key = call.text("namespace"), call.text("key")
    authorize_cluster(call, Operation.ALTER_CONFIGS)
    if (namespace, key) in call.node.state.kv:
        call.node.state.put_kv(namespace, key, None, call.done)
    else:
        call.reply()


def handle_get_kvlist_by_namespace(call: Call) -> None:
    namespace = call.text("namespace")
    authorize_cluster(call, Operation.DESCRIBE_CONFIGS)
    table = {key: value for (each, key), value in call.node.state.kv.items() if each == namespace}
    if not table:
        raise Refused(Response.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    call.reply(body=bodies.encode(bodies.KvTable(table=table)))


# ---- write permissions


def handle_wipe_write_perm_of_broker(call: Call) -> None:
    _change_permission(call, "wipeTopicCount", is_wiped=True)


def handle_add_write_perm_of_broker(call: Call) -> None:
    _change_permission(call, "addTopicCount", is_wiped=False)


def _change_permission(call: Call, count_name: str, *, is_wiped: bool) -> None:
    """Routes say whether clients may write to the broker, which still takes what comes."""
    name = call.text("brokerName")
    authorize_cluster(call, Operation.ALTER_CONFIGS)
    node = node_of(name)
    topics = [each for each in visible_topics(call) if serving_node(call, each) == node]

    def changed(error: DragomanError | None) -> None:
        if error is None:
            call.reply(fields={count_name: str(len(topics))})
        else:
            call.refuse(error)

    state = call.node.state
    is_known = name == broker_name(call.service.broker.node_id) or (
        node in call.service.broker.image.nodes
    )
    if is_wiped and not is_known:
        # Nothing of its own could be wiped; the original counts zero.
        changed(None)
    elif is_wiped != (name in state.wiped):
        state.put_wiped(name, is_wiped, changed)
    else:
        changed(None)


# ---- configuration


def handle_get_namesrv_config(call: Call) -> None:
    authorize_cluster(call, Operation.DESCRIBE_CONFIGS)
    call.reply(body=bodies.write_lines(shown_settings(call)))


def handle_update_namesrv_config(call: Call) -> None:
    change_settings(call, lines_of_request(call))


# ---- brokers of others


def handle_get_broker_member_group(call: Call) -> None:
    cluster, name = call.fields.get("clusterName", DEFAULT_CLUSTER), call.text("brokerName")
    node = node_of(name)
    addresses = {}
    if node is not None and cluster == DEFAULT_CLUSTER:
        known = {each.broker_name for each in all_brokers(call)}
        addresses = broker_data(call, node).broker_addrs if name in known else {}
    data = bodies.BrokerData(cluster=cluster, broker_name=name, broker_addrs=addresses)
    call.reply(body=bodies.encode(bodies.BrokerMemberGroup(broker_member_group=data)))


def _refuse_brokers(_call: Call) -> None:
    raise Refused(Response.NO_PERMISSION, "brokers of others cannot be part of this cluster")


handle_register_broker = handle_unregister_broker = _refuse_brokers
handle_query_data_version = handle_broker_heartbeat = _refuse_brokers
