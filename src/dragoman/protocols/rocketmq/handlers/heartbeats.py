"""Heartbeats, goodbyes, the list of a group's members, subscriptions to be (34, 35, 38, 46)."""

from __future__ import annotations

from collections.abc import Callable

from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    MEMBER_ID_BYTES_MAX,
    ROCKETMQ_HEARTBEAT_GROUPS_MAX,
    ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX,
)
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Response
from dragoman.protocols.rocketmq.handlers.names import check_group_name, visible_topic
from dragoman.protocols.rocketmq.handlers.pull import parsed_filter
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import Listing
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import make_topic
from dragoman.security.authorizer import Operation, Resource


def handle_heart_beat(call: Call) -> None:
    beat = bodies.decode(call.body, bodies.HeartbeatData)
    consumers, producers = beat.consumer_data_set, beat.producer_data_set
    subscriptions = sum(len(each.subscription_data_set) for each in consumers)
    if subscriptions > ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX:
        text = f"a heartbeat may name {ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX} subscriptions"
        raise Refused(Response.SYSTEM_ERROR, text)
    if len(consumers) + len(producers) > ROCKETMQ_HEARTBEAT_GROUPS_MAX:
        text = f"a heartbeat may name {ROCKETMQ_HEARTBEAT_GROUPS_MAX} groups"
        raise Refused(Response.SYSTEM_ERROR, text)
    if not beat.client_id:
        raise Refused(Response.SYSTEM_ERROR, "the heartbeat has no clientID")
    if len(beat.client_id.encode()) > MEMBER_ID_BYTES_MAX:
        raise Refused(Response.SYSTEM_ERROR, f"a clientID has at most {MEMBER_ID_BYTES_MAX} bytes")
    call.service.broker.coordination.groups.table.take_memory(len(call.body))
    for producer in producers:
        check_group_name(producer.group_name)
    for data in consumers:
        check_group_name(data.group_name)
        call.authorize(Operation.READ, Resource.GROUP, data.group_name)
    clients = call.node.clients
    for producer in producers:
        clients.add_producer(call.session, beat.client_id, producer.group_name)
    left = len(consumers)
    if not left:
        call.reply()
        return

    def joined(error: DragomanError | None) -> None:
        nonlocal left
        left -= 1
        if error is not None:
            call.refuse(error)
        elif not left:
            call.reply()

    for data in consumers:
        _join(call, beat.client_id, data, joined)


def _join(
    call: Call,
    client_id: str,
    data: bodies.ConsumerData,
    joined: Callable[[DragomanError | None], None],
) -> None:
    """The group's retry topic comes first: members ask for its route at once."""
    name = RETRY_PREFIX + data.group_name
    queues = call.node.group_config(data.group_name).retry_queue_nums
    is_there = visible_topic(call.service.broker.image, name) is not None

    def join(_topic: TopicMetadata | None = None) -> None:
        if not call.session.channel.is_closing:
            call.node.clients.join(call.session, client_id, data, joined)

    if is_there or queues < 1 or data.message_model == bodies.MessageModel.BROADCASTING:
        join()
    else:
        make_topic(call, name, queues, join)


def handle_unregister_client(call: Call) -> None:
    client_id = call.text("clientID")
    clients = call.node.clients
    group = call.fields.get("consumerGroup")
    if group:
        clients.leave(group, client_id, call.session)
    producers = call.fields.get("producerGroup")
    if producers:
        clients.drop_producer(producers, client_id, call.session)
    call.reply()


def handle_get_consumer_list_by_group(call: Call) -> None:
    group = call.text("consumerGroup")
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(listing: Listing | DragomanError) -> None:
        if isinstance(listing, DragomanError):
            call.refuse(listing)
            return
        ids = sorted({each.client_id for each in listing.members})
        if not ids:
            call.reply(Response.SYSTEM_ERROR, f"no consumer for this group, {group}")
        else:
            call.reply(body=bodies.encode(bodies.ConsumerIds(consumer_id_list=ids)))

    call.node.look_up_members(group, found)


def handle_check_client_config(call: Call) -> None:
    """Java's consumers ask before they start, and do not start with a condition that is no good."""
    subscription = bodies.decode(call.body, bodies.CheckClient).subscription_data
    if subscription is not None:
        parsed_filter(subscription.expression_type, subscription.sub_string)
    call.reply()
