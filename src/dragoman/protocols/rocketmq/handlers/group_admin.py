"""Administration of groups: configurations, subscriptions and clients (200, 201, 203, 204, 207,
223, 225, 300, 307, 309, 328, 343, 345, 352, 353).

Groups of all protocols are shown, because RocketMQ's clients may use any group once it is empty.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.broker.administration import recorded
from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_STATE_ENTRIES_MAX
from dragoman.outcome import attempt, gather, start
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.bodies import SubscriptionData, SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    is_expressible,
    require_topic,
    spelling,
    topic_name,
)
from dragoman.protocols.rocketmq.handlers.queries import find_by_id
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.rpc import (
    ClientAnswer,
    GroupRow,
    Listed,
    Listing,
    ProducerClient,
)
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.protocols.rocketmq.handlers.topics import data_version
from dragoman.security.access import Operation, Resource

#: A topic that a group may not read, in the table of forbidden topics.
_UNREADABLE: Final = 1 << 2


# ---- configurations


async def handle_update_and_create_subscriptiongroup(call: Call) -> None:
    """Create or change groups. The configuration is in the body or, from the Go client, in the
    fields.
    """
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    await _set_group(call, bodies.decode(data, SubscriptionGroupConfig))


async def handle_update_and_create_subscriptiongroup_list(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.SubscriptionGroupList).group_config_list
    if len(wanted) > ROCKETMQ_STATE_ENTRIES_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"{len(wanted)} groups in one request")
    for each in wanted:
        await _set_group(call, each)
        await call.pause()


async def _set_group(call: Call, config: SubscriptionGroupConfig) -> None:
    check_group_name(config.group_name)
    call.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, config.group_name)
    if config.retry_queue_nums < 0 or config.retry_max_times < -1:
        text = f"{config.retry_queue_nums} retry queues and {config.retry_max_times} retries"
        raise Refused(Response.INVALID_PARAMETER, text)
    await call.node.state.put_group(config.group_name, config)


async def handle_get_subscriptiongroup_config(call: Call) -> SubscriptionGroupConfig:
    group = call.text("group", "groupName", "consumerGroup")
    check_group_name(group)
    call.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
    return call.node.group_config(group)


async def handle_get_all_subscriptiongroup_config(call: Call) -> Answer:
    """All groups with a configuration, members or offsets."""
    rows = await visible_groups(call)
    state = call.node.state
    configured = (each for each in state.groups if _may_know(call, each))
    names = sorted(each for each in {*rows, *configured} if is_expressible(each))
    forbidden: dict[str, dict[str, int]] = {}
    for group, topic in sorted(state.forbidden):
        if _may_know(call, group) and call.may_access(Operation.DESCRIBE, topic):
            forbidden.setdefault(group, {})[spelling(topic)] = _UNREADABLE
    first, count = call.number("groupSeq", 0), call.number("maxGroupNum", 0)
    shown = names[max(0, first) :]
    table = bodies.SubscriptionGroupTable(
        subscription_group_table={
            each: call.node.group_config(each) for each in (shown[:count] if count > 0 else shown)
        },
        forbidden_table=forbidden,
        data_version=data_version(call),
    )
    return Answer(fields={"totalGroupNum": str(len(names))}, body=bodies.encode(table))


async def handle_delete_subscriptiongroup(call: Call) -> None:
    group = call.text("groupName", "group", "consumerGroup")
    check_group_name(group)
    call.authorize(Operation.DELETE, Resource.GROUP, group)
    if call.flag("cleanOffset"):
        with recorded(call.broker.audit, "group.delete", call.actor, f"group:{group}"):
            await call.node.delete_group(group)
    if group in call.node.state.groups:
        await call.node.state.put_group(group, None)


async def handle_update_and_get_group_forbidden(call: Call) -> bodies.GroupForbidden:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    check_group_name(group)
    is_change = bool(call.fields.get("readable"))
    operation = Operation.ALTER_CONFIGS if is_change else Operation.DESCRIBE_CONFIGS
    call.authorize(operation, Resource.GROUP, group)
    call.authorize_topic(Operation.DESCRIBE, topic_name(spelt))
    topic = require_topic(call.broker.image, spelt)
    state, place = call.node.state, (group, topic.name)
    if is_change:
        is_forbidden = not call.flag("readable")
        if is_forbidden != (place in state.forbidden):
            await state.put_forbidden(group, topic.name, is_forbidden)
    return bodies.GroupForbidden(
        topic=spelling(topic.name), group=group, readable=place not in state.forbidden
    )


# ---- subscriptions


async def visible_groups(call: Call, topic: str = "") -> dict[str, GroupRow]:
    """The groups that the client may describe, with their offsets in one topic or in all topics."""
    rows = await call.node.describe_all_groups(topic)
    shown = call.session.service.describable(call.caller, Resource.GROUP, rows)
    return {name: row for name, row in rows.items() if name in shown}


def _may_know(call: Call, group: str) -> bool:
    return call.may(Operation.DESCRIBE, Resource.GROUP, group)


async def handle_query_topic_consume_by_who(call: Call) -> bodies.GroupList:
    topic = topic_name(call.text("topic"))
    call.authorize_topic(Operation.DESCRIBE, topic)
    names = [
        name
        for name, row in (await visible_groups(call, topic)).items()
        if topic in row.offsets
        or spelling(topic) in row.subscriptions
        or topic in row.subscriptions
    ]
    return bodies.GroupList(group_list=names)


async def handle_query_topics_by_consumer(call: Call) -> bodies.TopicList:
    group = call.text("group", "consumerGroup")
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    row = await call.node.describe_group(group)
    return bodies.TopicList(topic_list=topics_of(call, row))


def topics_of(call: Call, row: GroupRow) -> list[str]:
    """The existing topics that a group has offsets in or has subscribed to, and that the client may
    describe.
    """
    known = call.broker.image.topics
    names = {*row.offsets, *map(topic_name, row.subscriptions)}
    return sorted(
        spelling(each)
        for each in names
        if each in known
        and not known[each].is_internal
        and is_expressible(each)
        and call.may_access(Operation.DESCRIBE, each)
    )


async def handle_query_subscription_by_consumer(call: Call) -> bodies.GroupSubscription:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    call.authorize_topic(Operation.DESCRIBE, topic_name(spelt))
    data = subscription_table(await call.node.members(group)).get(spelt)
    return bodies.GroupSubscription(group=group, topic=spelt, subscription_data=data)


def subscription_table(listing: Listing) -> dict[str, SubscriptionData]:
    """The subscriptions of the members by topic, the one with the highest version of each."""
    table: dict[str, SubscriptionData] = {}
    for member in listing.members:
        for each in member.data.subscription_data_set:
            known = table.get(each.topic)
            if known is None or known.sub_version < each.sub_version:
                table[each.topic] = each
    return table


# ---- consumers


async def handle_get_consumer_connection_list(call: Call) -> bodies.ConsumerConnection:
    listing = await _members(call, call.text("consumerGroup", "group"))
    first = listing.members[0].data
    return bodies.ConsumerConnection(
        connection_set=[_connection(each) for each in listing.members],
        subscription_table={
            topic: each
            for topic, each in subscription_table(listing).items()
            if call.may_access(Operation.DESCRIBE, topic_name(topic))
        },
        consume_type=first.consume_type,
        message_model=first.message_model,
        consume_from_where=first.consume_from_where,
    )


def _connection(client: Listed | ProducerClient) -> bodies.Connection:
    return bodies.Connection(
        client_id=client.client_id,
        client_addr=client.address,
        language=client.language,
        version=client.version,
    )


async def _members(call: Call, group: str) -> Listing:
    """The members of a group. Raises `Refused` if there are none."""
    call.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    listing = await call.node.members(group)
    if not listing.members:
        raise Refused(Response.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    return listing


async def _member(call: Call, group: str) -> Listed:
    """The member that the request names."""
    listing = await _members(call, group)
    client_id = call.text("clientId")
    for each in listing.members:
        if each.client_id == client_id:
            return each
    raise _not_online(group, client_id)


def _not_online(group: str, client_id: str) -> Refused:
    text = f"The Consumer <{group}> <{client_id}> not online"
    return Refused(Response.CONSUMER_NOT_ONLINE, text)


# ---- producers


async def handle_get_producer_connection_list(call: Call) -> bodies.ProducerConnection:
    group = call.text("producerGroup")
    call.authorize_cluster(Operation.DESCRIBE)
    clients = await call.node.all_producers()
    connections = [_connection(each) for each in clients if each.group == group]
    if not connections:
        raise Refused(Response.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    return bodies.ProducerConnection(connection_set=connections)


async def handle_get_all_producer_info(call: Call) -> bodies.ProducerTable:
    call.authorize_cluster(Operation.DESCRIBE)
    table: dict[str, list[bodies.ProducerInfo]] = {}
    for each in await call.node.all_producers():
        info = bodies.ProducerInfo(
            client_id=each.client_id,
            remote_ip=each.address,
            language=each.language,
            version=each.version,
            last_update_timestamp=each.seen_ms,
        )
        table.setdefault(each.group, []).append(info)
    return bodies.ProducerTable(data=dict(sorted(table.items())))


# ---- requests to members


def _answer(call: Call, answer: ClientAnswer) -> Answer:
    """Forward the member's response. Keys of tables by queue are converted to the caller's
    format.
    """
    body = json.strict(answer.body) if call.is_go and answer.body else answer.body
    return Answer(answer.code, answer.remark, answer.fields, body)


async def handle_get_consumer_running_info(call: Call) -> Answer:
    group = call.text("consumerGroup", "group")
    member = await _member(call, group)
    fields = {
        "consumerGroup": group,
        "clientId": member.client_id,
        "jstackEnable": "true" if call.flag("jstackEnable") else "false",
    }
    code = Request.GET_CONSUMER_RUNNING_INFO
    return _answer(call, await call.node.request_member(group, member, code, fields))


async def handle_consume_message_directly(call: Call) -> Answer:
    """Find the message, and send it to the member with the request."""
    group, message_id = call.text("consumerGroup", "group"), call.text("msgId")
    call.authorize(Operation.READ, Resource.GROUP, group)
    member = await _member(call, group)
    message = await find_by_id(call, message_id, call.fields.get("topic", ""))
    fields = call.fields | {
        "consumerGroup": group,
        "clientId": member.client_id,
        "msgId": message_id,
        "brokerName": call.node.broker_name,
    }
    code = Request.CONSUME_MESSAGE_DIRECTLY
    return _answer(call, await call.node.request_member(group, member, code, fields, message))


async def handle_invoke_broker_to_get_consumer_status(call: Call) -> Answer:
    """The offsets of one member or all members in a topic. Members that do not answer are left out;
    an error if none answers.
    """
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    only = call.fields.get("clientAddr", "")
    call.authorize_topic(Operation.DESCRIBE, topic_name(spelt))
    listing = await _members(call, group)
    members = [each for each in listing.members if only in ("", each.client_id)]
    if not members:
        raise _not_online(group, only)
    calls = [start(attempt(_status(call, group, spelt, each))) for each in members]
    answers = await gather(calls)
    table = {
        each.client_id: answer
        for each, answer in zip(members, answers, strict=True)
        if not isinstance(answer, DragomanError)
    }
    if not table and isinstance(answers[0], DragomanError):
        raise answers[0]
    return call.queue_table(bodies.GroupOffsets(consumer_table=table))


async def _status(call: Call, group: str, spelt: str, member: Listed) -> dict[str, int]:
    fields = {"topic": spelt, "group": group}
    code = Request.GET_CONSUMER_STATUS_FROM_CLIENT
    answer = await call.node.request_member(group, member, code, fields)
    if answer.code != Response.SUCCESS:
        raise Refused(answer.code, answer.remark or "the client refused the request")
    if not answer.body:
        return {}
    offsets = bodies.decode(answer.body, bodies.ClientOffsets).message_queue_table
    return bodies.keyed(bodies.by_queue(offsets))
