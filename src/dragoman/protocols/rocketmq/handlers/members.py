"""Members of groups: heartbeats (34), unregistration (35), lists of members (38), checks of
subscriptions (46), locks on queues (41, 42), and assignment by the broker (400, 401).

The broker assigns queues by the same rule as clients: queues and members are sorted, and each
member gets its share. Only the mode PULL is served; in the mode POP, the broker would distribute
messages instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from dragoman.limits import (
    MEMBER_ID_BYTES_MAX,
    ROCKETMQ_HEARTBEAT_GROUPS_MAX,
    ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX,
    ROCKETMQ_LOCKS_PER_REQUEST_MAX,
)
from dragoman.outcome import Outcome, acknowledge_to, gather, start
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageModel, MessageQueue
from dragoman.protocols.rocketmq.constants import RETRY_PREFIX, Response
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    require_topic,
    topic_name,
    visible_topic,
)
from dragoman.protocols.rocketmq.handlers.pull import parsed_filter
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import LockQueues
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.topics import own_topic, queue_of, read_queues
from dragoman.security.access import Operation, Resource

# ---- heartbeats


def handle_heart_beat(call: Call) -> None:
    beat = bodies.decode(call.body, bodies.HeartbeatData)
    consumers, producers = beat.consumer_data_set, beat.producer_data_set
    subscriptions = sum(len(each.subscription_data_set) for each in consumers)
    if subscriptions > ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX:
        text = f"a heartbeat has at most {ROCKETMQ_HEARTBEAT_SUBSCRIPTIONS_MAX} subscriptions"
        raise Refused(Response.SYSTEM_ERROR, text)
    if len(consumers) + len(producers) > ROCKETMQ_HEARTBEAT_GROUPS_MAX:
        text = f"a heartbeat has at most {ROCKETMQ_HEARTBEAT_GROUPS_MAX} groups"
        raise Refused(Response.SYSTEM_ERROR, text)
    if not beat.client_id:
        raise Refused(Response.SYSTEM_ERROR, "the heartbeat has no clientID")
    if len(beat.client_id.encode()) > MEMBER_ID_BYTES_MAX:
        raise Refused(Response.SYSTEM_ERROR, f"a clientID has at most {MEMBER_ID_BYTES_MAX} bytes")
    call.broker.coordination.groups.table.take_memory(len(call.body))
    for producer in producers:
        check_group_name(producer.group_name)
    for data in consumers:
        check_group_name(data.group_name)
        call.authorize_member(data.group_name)
        for subscription in data.subscription_data_set:
            call.authorize_topic(Operation.READ, topic_name(subscription.topic))
    clients = call.node.clients
    for producer in producers:
        clients.add_producer(call.session, beat.client_id, producer.group_name, call.caller)
    joins = [_join(call, beat.client_id, data) for data in consumers]
    waiting = [each for each in joins if each is not None]
    if waiting:
        gather(waiting).then(acknowledge_to(call.done))
    else:
        # Nearly all heartbeats only repeat what the coordinator has acknowledged.
        call.reply()


def _join(call: Call, client_id: str, data: bodies.ConsumerData) -> Outcome[None] | None:
    name = RETRY_PREFIX + data.group_name
    queues = call.node.group_config(data.group_name).retry_queue_nums
    has_retries = queues > 0 and data.message_model != MessageModel.BROADCASTING
    if has_retries and visible_topic(call.broker.image, name) is None:
        return start(_create_and_join(call, client_id, data, name, queues))
    return call.node.clients.join(call.session, client_id, data)


async def _create_and_join(
    call: Call, client_id: str, data: bodies.ConsumerData, retry_topic: str, queues: int
) -> None:
    """Create the retry topic, and then join: members request its route as soon as they have
    joined.
    """
    await own_topic(call, retry_topic, queues)
    if not call.session.channel.is_closing:
        joined = call.node.clients.join(call.session, client_id, data)
        if joined is not None:
            await joined


async def handle_unregister_client(call: Call) -> None:
    client_id = call.text("clientID")
    clients = call.node.clients
    group = call.fields.get("consumerGroup")
    if group:
        clients.leave(group, client_id, call.session)
    producers = call.fields.get("producerGroup")
    if producers:
        clients.drop_producer(producers, client_id, call.session)


async def handle_get_consumer_list_by_group(call: Call) -> bodies.ConsumerIds:
    group = call.text("consumerGroup")
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    listing = await call.node.members(group)
    ids = sorted({each.client_id for each in listing.members})
    if not ids:
        raise Refused(Response.SYSTEM_ERROR, f"no consumer for this group, {group}")
    return bodies.ConsumerIds(consumer_id_list=ids)


async def handle_check_client_config(call: Call) -> None:
    """Check a filter. Java consumers send this before they start, and fail if the filter is
    invalid.
    """
    subscription = bodies.decode(call.body, bodies.CheckClient).subscription_data
    if subscription is not None:
        parsed_filter(subscription.expression_type, subscription.sub_string)


# ---- locks


async def handle_lock_batch_mq(call: Call) -> bodies.LockedBatch:
    return bodies.LockedBatch(lock_ok_mq_set=await _lock(call, is_release=False))


async def handle_unlock_batch_mq(call: Call) -> None:
    await _lock(call, is_release=True)


async def _lock(call: Call, *, is_release: bool) -> list[MessageQueue]:
    """Lock or release queues. Returns those of them that the client now holds."""
    wanted = bodies.decode(call.body, bodies.LockBatch)
    call.authorize(Operation.READ, Resource.GROUP, wanted.consumer_group)
    if len(wanted.mq_set) > ROCKETMQ_LOCKS_PER_REQUEST_MAX:
        raise Refused(Response.SYSTEM_ERROR, f"{len(wanted.mq_set)} queues in one request")
    image = call.broker.image
    queues = []
    for each in wanted.mq_set:
        topic = None
        if call.may_access(Operation.READ, topic_name(each.topic)):
            topic = visible_topic(image, each.topic)
        if topic is not None and 0 <= each.queue_id < len(topic.partitions):
            queues.append(each)
    request = LockQueues(
        group=wanted.consumer_group,
        client_id=wanted.client_id,
        queues=tuple((each.topic, each.queue_id) for each in queues),
        is_release=is_release,
    )
    held = set((await call.node.lock_queues(request)).queues)
    return [each for each in queues if (each.topic, each.queue_id) in held]


# ---- assignment


async def handle_query_assignment(call: Call) -> bodies.Assignments:
    wanted = bodies.decode(call.body, bodies.QueryAssignment)
    call.authorize(Operation.READ, Resource.GROUP, wanted.consumer_group)
    call.authorize_topic(Operation.READ, topic_name(wanted.topic))
    topic = require_topic(call.broker.image, wanted.topic)
    queues: Sequence[MessageQueue]
    queues = sorted(queue_of(call, each) for each in topic.partitions[: read_queues(topic)])
    if wanted.message_model != MessageModel.BROADCASTING:
        queues = await _share(call, wanted, queues)
    assigned = [bodies.QueueAssignment(message_queue=each) for each in queues]
    return bodies.Assignments(message_queue_assignments=assigned)


async def _share(
    call: Call, wanted: bodies.QueryAssignment, queues: Sequence[MessageQueue]
) -> Sequence[MessageQueue]:
    share = _SHARES.get(wanted.strategy_name)
    if share is None:
        names = ", ".join(_SHARES)
        text = f"strategy {wanted.strategy_name[:100]!r} is not supported: expected one of {names}"
        raise Refused(Response.INVALID_PARAMETER, text)
    listing = await call.node.members(wanted.consumer_group)
    ids = sorted({each.client_id for each in listing.members})
    if wanted.client_id not in ids:
        return []
    return share(queues, ids.index(wanted.client_id), len(ids))


def _average(queues: Sequence[MessageQueue], index: int, count: int) -> Sequence[MessageQueue]:
    """The contiguous share of a member; the remainder goes to the first members, one queue each."""
    size, more = divmod(len(queues), count)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


def _circle(queues: Sequence[MessageQueue], index: int, count: int) -> Sequence[MessageQueue]:
    return queues[index::count]


_SHARES: Final[
    Mapping[str, Callable[[Sequence[MessageQueue], int, int], Sequence[MessageQueue]]]
] = {"AVG": _average, "AVG_BY_CIRCLE": _circle}


async def handle_set_message_request_mode(call: Call) -> None:
    """Accept the mode PULL. The mode is in the body or, from the Go client, in the fields."""
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    wanted = bodies.decode(data, bodies.RequestMode)
    check_group_name(wanted.consumer_group)
    call.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, wanted.consumer_group)
    call.authorize_topic(Operation.DESCRIBE, topic_name(wanted.topic))
    require_topic(call.broker.image, wanted.topic)
    if wanted.mode != "PULL":
        text = f"mode {wanted.mode[:20]!r} is not supported: expected PULL"
        raise Refused(Response.INVALID_PARAMETER, text)
