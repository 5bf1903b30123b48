"""Queues for consumers that leave their distribution to the broker (400, 401).

The same rule as in clients that do it themselves, over the same lists: both sorted, each member its
share. Queues are pulled from; the other mode, in which the broker hands out messages, is not
served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageModel, MessageQueue
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.attributes import read_queues
from dragoman.protocols.rocketmq.handlers.names import check_group_name, require_topic
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import Listing
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.protocols.rocketmq.handlers.tables import queue_of
from dragoman.security.authorizer import Operation, Resource


def handle_query_assignment(call: Call) -> None:
    wanted = bodies.decode(call.body, bodies.QueryAssignment)
    topic = require_topic(call.service.broker.image, wanted.topic)
    call.session.authorize(Operation.READ, Resource.GROUP, wanted.consumer_group)
    queues = sorted(queue_of(call, each) for each in topic.partitions[: read_queues(topic)])
    if wanted.message_model == MessageModel.BROADCASTING:
        _answer(call, queues)
        return
    share = _SHARES.get(wanted.strategy_name)
    if share is None:
        names = ", ".join(_SHARES)
        text = f"strategy {wanted.strategy_name[:100]!r} is none of {names}"
        raise Refused(Response.INVALID_PARAMETER, text)

    def found(listing: Listing | DragomanError) -> None:
        if isinstance(listing, DragomanError):
            call.refuse(listing)
            return
        ids = sorted({each.client_id for each in listing.members})
        is_member = wanted.client_id in ids
        _answer(call, share(queues, ids.index(wanted.client_id), len(ids)) if is_member else [])

    call.node.look_up_members(wanted.consumer_group, found)


def _answer(call: Call, queues: Sequence[MessageQueue]) -> None:
    assigned = [bodies.QueueAssignment(message_queue=each) for each in queues]
    call.reply(body=bodies.encode(bodies.Assignments(message_queue_assignments=assigned)))


def _average(queues: Sequence[MessageQueue], index: int, count: int) -> Sequence[MessageQueue]:
    """Neighbouring queues; the first members have one more when they do not come out even."""
    size, more = divmod(len(queues), count)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


def _circle(queues: Sequence[MessageQueue], index: int, count: int) -> Sequence[MessageQueue]:
    return queues[index::count]


_SHARES: Final[
    Mapping[str, Callable[[Sequence[MessageQueue], int, int], Sequence[MessageQueue]]]
] = {"AVG": _average, "AVG_BY_CIRCLE": _circle}


def handle_set_message_request_mode(call: Call) -> None:
    """The body has it, or, as Go's client has it, the fields."""
    data = call.body if len(call.body) else msgspec.json.encode(dict(call.fields))
    wanted = bodies.decode(data, bodies.RequestMode)
    check_group_name(wanted.consumer_group)
    require_topic(call.service.broker.image, wanted.topic)
    call.session.authorize(Operation.ALTER_CONFIGS, Resource.GROUP, wanted.consumer_group)
    if wanted.mode != "PULL":
        text = f"mode {wanted.mode[:20]!r}: queues are pulled from, which is PULL"
        raise Refused(Response.INVALID_PARAMETER, text)
    call.reply()
