"""Clients that are connected, and what they are asked (203, 204, 223, 307, 309, 328)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.configuration import authorize_cluster
from dragoman.protocols.rocketmq.handlers.group_admin import subscription_table
from dragoman.protocols.rocketmq.handlers.queries import find_by_id
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import (
    ClientAnswer,
    Listed,
    Listing,
    ProducerClient,
)
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import is_go, reply_table
from dragoman.security.authorizer import Operation, Resource

# ---- consumers


def handle_get_consumer_connection_list(call: Call) -> None:
    group = call.text("consumerGroup", "group")

    def found(listing: Listing) -> None:
        first = listing.members[0].data
        shown = bodies.ConsumerConnection(
            connection_set=[
                bodies.Connection(
                    client_id=each.client_id,
                    client_addr=each.address,
                    language=each.language,
                    version=each.version,
                )
                for each in listing.members
            ],
            subscription_table=subscription_table(listing),
            consume_type=first.consume_type,
            message_model=first.message_model,
            consume_from_where=first.consume_from_where,
        )
        call.reply(body=bodies.encode(shown))

    with_members(call, group, found)


def with_members(call: Call, group: str, use: Callable[[Listing], None]) -> None:
    """`use` gets the members, of which there is at least one."""
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)

    def found(listing: Listing | DragomanError) -> None:
        def go_on() -> None:
            if isinstance(listing, DragomanError):
                raise listing
            if not listing.members:
                text = f"the consumer group[{group}] not online"
                raise Refused(Response.CONSUMER_NOT_ONLINE, text)
            use(listing)

        call.guarded(go_on)

    call.node.look_up_members(group, found)


def _member(call: Call, listing: Listing, group: str) -> Listed:
    client_id = call.text("clientId")
    for each in listing.members:
        if each.client_id == client_id:
            return each
    text = f"The Consumer <{group}> <{client_id}> not online"
    raise Refused(Response.CONSUMER_NOT_ONLINE, text)


# ---- producers


def handle_get_producer_connection_list(call: Call) -> None:
    group = call.text("producerGroup")
    authorize_cluster(call, Operation.DESCRIBE)

    def found(clients: list[ProducerClient]) -> None:
        connections = [
            bodies.Connection(
                client_id=each.client_id,
                client_addr=each.address,
                language=each.language,
                version=each.version,
            )
            for each in clients
            if each.group == group
        ]
        if connections:
            shown = bodies.ProducerConnection(connection_set=connections)
            call.reply(body=bodies.encode(shown))
        else:
            text = f"the producer group[{group}] not exist"
            call.reply(Response.SYSTEM_ERROR, text)

    call.node.all_producers(found)


def handle_get_all_producer_info(call: Call) -> None:
    authorize_cluster(call, Operation.DESCRIBE)

    def found(clients: list[ProducerClient]) -> None:
        table: dict[str, list[bodies.ProducerInfo]] = {}
        for each in clients:
            info = bodies.ProducerInfo(
                client_id=each.client_id,
                remote_ip=each.address,
                language=each.language,
                version=each.version,
                last_update_timestamp=each.seen_ms,
            )
            table.setdefault(each.group, []).append(info)
        call.reply(body=bodies.encode(bodies.ProducerTable(data=dict(sorted(table.items())))))

    call.node.all_producers(found)


# ---- what members are asked


def _pass_on(call: Call, answer: ClientAnswer | DragomanError) -> None:
    """The client's own answer; its tables by queue have the caller's form of keys."""
    if isinstance(answer, DragomanError):
        call.refuse(answer)
        return
    body = answer.body
    if is_go(call) and body:
        try:
            body = json.strict(body)
        except DecodeError as error:
            call.refuse(error)
            return
    call.reply(answer.code, answer.remark, answer.fields, body)


def handle_get_consumer_running_info(call: Call) -> None:
    group = call.text("consumerGroup", "group")

    def found(listing: Listing) -> None:
        member = _member(call, listing, group)
        fields = {
            "consumerGroup": group,
            "clientId": member.client_id,
            "jstackEnable": "true" if call.flag("jstackEnable") else "false",
        }
        call.node.ask_member(
            group,
            member,
            Request.GET_CONSUMER_RUNNING_INFO,
            fields,
            b"",
            lambda answer: _pass_on(call, answer),
        )

    with_members(call, group, found)


def handle_consume_message_directly(call: Call) -> None:
    """The message is looked up here; the member gets it with the request."""
    group, message_id = call.text("consumerGroup", "group"), call.text("msgId")

    def found(listing: Listing) -> None:
        member = _member(call, listing, group)

        def ask(message: bytes) -> None:
            fields = dict(call.fields) | {
                "consumerGroup": group,
                "clientId": member.client_id,
                "msgId": message_id,
                "brokerName": call.node.broker_name,
            }
            call.node.ask_member(
                group,
                member,
                Request.CONSUME_MESSAGE_DIRECTLY,
                fields,
                message,
                lambda answer: _pass_on(call, answer),
            )

        find_by_id(call, message_id, call.fields.get("topic", ""), ask)

    with_members(call, group, found)


def handle_invoke_broker_to_get_consumer_status(call: Call) -> None:
    """Where the members, or the one that is named, are in a topic."""
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    only = call.fields.get("clientAddr", "")

    def found(listing: Listing) -> None:
        members = [each for each in listing.members if only in ("", each.client_id)]
        if not members:
            text = f"The Consumer <{group}> <{only}> not online"
            raise Refused(Response.CONSUMER_NOT_ONLINE, text)
        _ask_for_status(call, group, spelt, members)

    with_members(call, group, found)


def _ask_for_status(call: Call, group: str, spelt: str, members: Sequence[Listed]) -> None:
    table: dict[str, dict[str, int]] = {}
    errors: list[DragomanError] = []
    left = len(members)

    def answered(member: Listed, answer: ClientAnswer | DragomanError) -> None:
        nonlocal left
        left -= 1
        try:
            table[member.client_id] = _status(answer)
        except DragomanError as error:
            errors.append(error)
        if left:
            return
        if table:
            reply_table(call, bodies.GroupOffsets(consumer_table=table))
        else:
            call.refuse(errors[0])

    for each in members:
        call.node.ask_member(
            group,
            each,
            Request.GET_CONSUMER_STATUS_FROM_CLIENT,
            {"topic": spelt, "group": group},
            b"",
            partial(answered, each),
        )


def _status(answer: ClientAnswer | DragomanError) -> dict[str, int]:
    if isinstance(answer, DragomanError):
        raise answer
    if answer.code != Response.SUCCESS:
        raise Refused(answer.code, answer.remark or "the client refuses")
    if not answer.body:
        return {}
    offsets = bodies.decode(answer.body, bodies.ClientOffsets).message_queue_table
    return bodies.keyed(bodies.by_queue(offsets))
