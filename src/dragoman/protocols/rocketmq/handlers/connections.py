"""Clients that are connected, and what they are asked (203, 204, 223, 307, 309, 328)."""

from __future__ import annotations

from dragoman.errors import DragomanError
from dragoman.outcome import attempt, gather, start
from dragoman.protocols.rocketmq import bodies, json
from dragoman.protocols.rocketmq.constants import Request, Response
from dragoman.protocols.rocketmq.handlers.group_admin import subscription_table
from dragoman.protocols.rocketmq.handlers.queries import find_by_id
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import (
    ClientAnswer,
    Listed,
    Listing,
    ProducerClient,
)
from dragoman.protocols.rocketmq.handlers.session import Answer, Call
from dragoman.security.authorizer import Operation, Resource

# ---- consumers


async def handle_get_consumer_connection_list(call: Call) -> bodies.ConsumerConnection:
    listing = await _members(call, call.text("consumerGroup", "group"))
    first = listing.members[0].data
    return bodies.ConsumerConnection(
        connection_set=[_connection(each) for each in listing.members],
        subscription_table=subscription_table(listing),
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
    """The members, of which there is at least one."""
    call.session.authorize(Operation.DESCRIBE, Resource.GROUP, group)
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


# ---- what members are asked


def _passed_on(call: Call, answer: ClientAnswer) -> Answer:
    """The client's own answer; its tables by queue have the form of keys that the caller reads."""
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
    return _passed_on(call, await call.node.ask_member(group, member, code, fields))


async def handle_consume_message_directly(call: Call) -> Answer:
    """The message is looked up here; the member gets it with the request."""
    group, message_id = call.text("consumerGroup", "group"), call.text("msgId")
    member = await _member(call, group)
    message = await find_by_id(call, message_id, call.fields.get("topic", ""))
    fields = call.fields | {
        "consumerGroup": group,
        "clientId": member.client_id,
        "msgId": message_id,
        "brokerName": call.node.broker_name,
    }
    code = Request.CONSUME_MESSAGE_DIRECTLY
    return _passed_on(call, await call.node.ask_member(group, member, code, fields, message))


async def handle_invoke_broker_to_get_consumer_status(call: Call) -> Answer:
    """Where the members, or the one that is named, are in a topic. Members that do not answer are
    left out, unless none does.
    """
    group, spelt = call.text("group", "consumerGroup"), call.text("topic")
    only = call.fields.get("clientAddr", "")
    listing = await _members(call, group)
    members = [each for each in listing.members if only in ("", each.client_id)]
    if not members:
        raise _not_online(group, only)
    asked = [start(attempt(_status(call, group, spelt, each))) for each in members]
    answers = await gather(asked)
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
    answer = await call.node.ask_member(group, member, code, fields)
    if answer.code != Response.SUCCESS:
        raise Refused(answer.code, answer.remark or "the client refuses")
    if not answer.body:
        return {}
    offsets = bodies.decode(answer.body, bodies.ClientOffsets).message_queue_table
    return bodies.keyed(bodies.by_queue(offsets))
