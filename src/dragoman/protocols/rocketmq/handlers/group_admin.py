"""Configurations of groups, and who reads what (200, 201, 207, 225, 300, 343, 345, 352, 353).

Groups of all protocols are shown: any of them may be read by RocketMQ's clients once it is empty.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from dragoman.limits import ROCKETMQ_STATE_ENTRIES_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import SubscriptionData, SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.broker_admin import data_version
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    is_expressible,
    require_topic,
    spelling,
    topic_name,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import GroupRow, Listing
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.security.authorizer import Operation, Resource

#: Bit of the table of what groups may not read; the original has no other.
_UNREADABLE: Final = 1 << 2


# ---- configurations


async def handle_update_and_create_subscriptiongroup(call: Call) -> None:
    """The body has it, or, as Go's client has it, the fields."""
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    await _set_group(call, bodies.decode(data, SubscriptionGroupConfig))


async def handle_update_and_create_subscriptiongroup_list(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.SubscriptionGroupList).group_config_list
    if len(wanted) > ROCKETMQ_STATE_ENTRIES_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"{len(wanted)} groups at once")
    await call.in_turn(wanted, partial(_set_group, call))


async def _set_group(call: Call, config: SubscriptionGroupConfig) -> None:
    check_group_name(config.group_name)
    call.session.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, config.group_name)
    if config.retry_queue_nums < 0 or config.retry_max_times < -1:
        text = f"{config.retry_queue_nums} queues for retries, {config.retry_max_times} of them"
        raise Refused(Response.INVALID_PARAMETER, text)
    await call.node.state.put_group(config.group_name, config)


async def handle_get_subscriptiongroup_config(call: Call) -> SubscriptionGroupConfig:
    group = call.text("group", "groupName", "consumerGroup")
    check_group_name(group)
    call.session.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
    return call.node.group_config(group)


async def handle_get_all_subscriptiongroup_config(call: Call) -> Answer:
    """Of all groups that are known: configured, with members, or with offsets."""
    rows = await visible_groups(call)
    state = call.node.state
    configured = (each for each in state.groups if _may_know(call, each))
    names = sorted(each for each in {*rows, *configured} if is_expressible(each))
    forbidden: dict[str, dict[str, int]] = {}
    for group, topic in sorted(state.forbidden):
        if _may_know(call, group):
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
    call.session.authorize(Operation.DELETE, Resource.GROUP, group)
    if call.flag("cleanOffset"):
        await call.node.delete_group(group)
    if group in call.node.state.groups:
        await call.node.state.put_group(group, None)


async def handle_update_and_get_group_forbidden(call: Call) -> bodies.GroupForbidden:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    check_group_name(group)
    topic = require_topic(call.service.broker.image, spelt)
    state, place = call.node.state, (group, topic.name)
    if call.fields.get("readable"):
        call.session.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, group)
        is_forbidden = not call.flag("readable")
        if is_forbidden != (place in state.forbidden):
            await state.put_forbidden(group, topic.name, is_forbidden)
    else:
        call.session.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
    return bodies.GroupForbidden(
        topic=spelling(topic.name), group=group, readable=place not in state.forbidden
    )


# ---- who reads what


async def visible_groups(call: Call, topic: str = "") -> dict[str, GroupRow]:
    """The groups that the client may know of, with what they have committed in one topic or all."""
    rows = await call.node.describe_all_groups(topic)
    return {name: row for name, row in rows.items() if _may_know(call, name)}


def _may_know(call: Call, group: str) -> bool:
    return call.session.is_allowed(Operation.DESCRIBE, Resource.GROUP, group)


async def handle_query_topic_consume_by_who(call: Call) -> bodies.GroupList:
    topic = topic_name(call.text("topic"))
    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
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
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    row = await call.node.describe_group(group)
    return bodies.TopicList(topic_list=topics_of(call, row))


def topics_of(call: Call, row: GroupRow) -> list[str]:
    """What a group has read or reads, of topics that there are."""
    known = call.service.broker.image.topics
    names = {*row.offsets, *map(topic_name, row.subscriptions)}
    return sorted(
        spelling(each)
        for each in names
        if each in known and not known[each].is_internal and is_expressible(each)
    )


async def handle_query_subscription_by_consumer(call: Call) -> bodies.GroupSubscription:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
    data = subscription_table(await call.node.members(group)).get(spelt)
    return bodies.GroupSubscription(group=group, topic=spelt, subscription_data=data)


def subscription_table(listing: Listing) -> dict[str, SubscriptionData]:
    """What the members read, by topic, as the one says who said it last."""
    table: dict[str, SubscriptionData] = {}
    for member in listing.members:
        for each in member.data.subscription_data_set:
            known = table.get(each.topic)
            if known is None or known.sub_version < each.sub_version:
                table[each.topic] = each
    return table
