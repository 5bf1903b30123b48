"""Configurations of groups, and who reads what (200, 201, 207, 225, 300, 343, 345, 352, 353).

Groups of all protocols are shown: any of them may be read by RocketMQ's clients once it is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_STATE_ENTRIES_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import SubscriptionData, SubscriptionGroupConfig
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.names import (
    check_group_name,
    is_expressible,
    require_topic,
    spelling,
    topic_name,
)
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import GroupRow, Listing
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import each_in_turn
from dragoman.protocols.rocketmq.handlers.topic_admin import data_version
from dragoman.security.authorizer import Operation, Resource

#: Bit of the table of what groups may not read; the original has no other.
_UNREADABLE: Final = 1 << 2


# ---- configurations


def handle_update_and_create_subscriptiongroup(call: Call) -> None:
    """The body has it, or, as Go's client has it, the fields."""
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    _set_group(call, bodies.decode(data, SubscriptionGroupConfig), call.done)


def handle_update_and_create_subscriptiongroup_list(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.SubscriptionGroupList).group_config_list
    if len(wanted) > ROCKETMQ_STATE_ENTRIES_MAX:
        raise Refused(Response.INVALID_PARAMETER, f"{len(wanted)} groups at once")

    def begin(each: SubscriptionGroupConfig, done: Callable[[bool | DragomanError], None]) -> None:
        try:
            _set_group(call, each, lambda error: done(error or True))
        except DragomanError as error:
            done(error)

    def finished(outcome: list[bool] | DragomanError) -> None:
        call.done(outcome if isinstance(outcome, DragomanError) else None)

    each_in_turn(call.service.broker.scheduler, wanted, begin, finished)


def _set_group(
    call: Call,
    config: SubscriptionGroupConfig,
    done: Callable[[DragomanError | None], None],
) -> None:
    check_group_name(config.group_name)
    call.session.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, config.group_name)
    if config.retry_queue_nums < 0 or config.retry_max_times < -1:
        text = f"{config.retry_queue_nums} queues for retries, {config.retry_max_times} of them"
        raise Refused(Response.INVALID_PARAMETER, text)
    call.node.state.put_group(config.group_name, config, done)


def handle_get_subscriptiongroup_config(call: Call) -> None:
    group = call.text("group", "groupName", "consumerGroup")
    check_group_name(group)
    call.session.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
    call.reply(body=bodies.encode(call.node.group_config(group)))


def handle_get_all_subscriptiongroup_config(call: Call) -> None:
    """Of all groups that are known: configured, with members, or with offsets."""

    def found(rows: dict[str, GroupRow]) -> None:
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
                each: call.node.group_config(each)
                for each in (shown[:count] if count > 0 else shown)
            },
            forbidden_table=forbidden,
            data_version=data_version(call),
        )
        call.reply(fields={"totalGroupNum": str(len(names))}, body=bodies.encode(table))

    with_all_groups(call, found)


def handle_delete_subscriptiongroup(call: Call) -> None:
    group = call.text("groupName", "group", "consumerGroup")
    check_group_name(group)
    call.session.authorize(Operation.DELETE, Resource.GROUP, group)
    state = call.node.state

    def cleaned(error: DragomanError | None) -> None:
        def go_on() -> None:
            if error is not None:
                raise error
            if group in state.groups:
                state.put_group(group, None, call.done)
            else:
                call.reply()

        call.guarded(go_on)

    if call.flag("cleanOffset"):
        call.node.delete_group(group, cleaned)
    else:
        cleaned(None)


def handle_update_and_get_group_forbidden(call: Call) -> None:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    check_group_name(group)
    topic = require_topic(call.service.broker.image, spelt)
    state = call.node.state

    def answer(error: DragomanError | None) -> None:
        if error is not None:
            call.refuse(error)
            return
        readable = (group, topic.name) not in state.forbidden
        shown = bodies.GroupForbidden(topic=spelling(topic.name), group=group, readable=readable)
        call.reply(body=bodies.encode(shown))

    if not call.fields.get("readable"):
        call.session.authorize(Operation.DESCRIBE_CONFIGS, Resource.GROUP, group)
        answer(None)
        return
    call.session.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, group)
    is_forbidden = not call.flag("readable")
    if is_forbidden == ((group, topic.name) in state.forbidden):
        answer(None)
    else:
        state.put_forbidden(group, topic.name, is_forbidden, answer)


# ---- who reads what


def with_all_groups(
    call: Call, use: Callable[[dict[str, GroupRow]], None], topic: str = ""
) -> None:
    """Those that the caller may know of; what `use` raises is answered."""

    def found(rows: dict[str, GroupRow] | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(rows, DragomanError):
                raise rows
            use({name: row for name, row in rows.items() if _may_know(call, name)})

        call.guarded(go_on)

    call.node.describe_all_groups(found, topic)


def _may_know(call: Call, group: str) -> bool:
    return call.service.broker.authorizer.is_allowed(
        call.session.principal, Operation.DESCRIBE, Resource.GROUP, group
    )


def handle_query_topic_consume_by_who(call: Call) -> None:
    topic = topic_name(call.text("topic"))
    call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)

    def found(rows: dict[str, GroupRow]) -> None:
        names = [
            name
            for name, row in rows.items()
            if topic in row.offsets
            or spelling(topic) in row.subscriptions
            or topic in row.subscriptions
        ]
        call.reply(body=bodies.encode(bodies.GroupList(group_list=names)))

    with_all_groups(call, found, topic)


def handle_query_topics_by_consumer(call: Call) -> None:
    group = call.text("group", "consumerGroup")
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(row: GroupRow | DragomanError) -> None:
        if isinstance(row, DragomanError):
            call.refuse(row)
            return
        call.reply(body=bodies.encode(bodies.TopicList(topic_list=topics_of(call, row))))

    call.node.describe_group(group, found)


def topics_of(call: Call, row: GroupRow) -> list[str]:
    """What a group has read or reads, of topics that there are."""
    known = call.service.broker.image.topics
    names = {*row.offsets, *map(topic_name, row.subscriptions)}
    return sorted(
        spelling(each)
        for each in names
        if each in known and not known[each].is_internal and is_expressible(each)
    )


def handle_query_subscription_by_consumer(call: Call) -> None:
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(listing: Listing | DragomanError) -> None:
        if isinstance(listing, DragomanError):
            call.refuse(listing)
            return
        data = subscription_table(listing).get(spelt)
        shown = bodies.GroupSubscription(group=group, topic=spelt, subscription_data=data)
        call.reply(body=bodies.encode(shown))

    call.node.look_up_members(group, found)


def subscription_table(listing: Listing) -> dict[str, SubscriptionData]:
    """What the members read, by topic, as the one says who said it last."""
    table: dict[str, SubscriptionData] = {}
    for member in listing.members:
        for each in member.data.subscription_data_set:
            known = table.get(each.topic)
            if known is None or known.sub_version < each.sub_version:
                table[each.topic] = each
    return table
