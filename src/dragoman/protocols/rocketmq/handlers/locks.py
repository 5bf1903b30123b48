"""Locks on queues that are consumed in order (41, 42), kept by the group's coordinator."""

from __future__ import annotations

from dragoman.errors import DragomanError
from dragoman.limits import ROCKETMQ_LOCKS_PER_REQUEST_MAX
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.constants import Response
from dragoman.protocols.rocketmq.handlers.names import visible_topic
from dragoman.protocols.rocketmq.handlers.refusals import Refused
from dragoman.protocols.rocketmq.handlers.relayed import LockQueues, Queues
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource


def handle_lock_batch_mq(call: Call) -> None:
    _lock(call, is_release=False)


def handle_unlock_batch_mq(call: Call) -> None:
    _lock(call, is_release=True)


def _lock(call: Call, *, is_release: bool) -> None:
    wanted = bodies.decode(call.body, bodies.LockBatch)
    call.session.authorize(Operation.READ, Resource.GROUP, wanted.consumer_group)
    if len(wanted.mq_set) > ROCKETMQ_LOCKS_PER_REQUEST_MAX:
        raise Refused(Response.SYSTEM_ERROR, f"{len(wanted.mq_set)} queues in one request")
    image = call.service.broker.image
    queues = []
    for each in wanted.mq_set:
        topic = visible_topic(image, each.topic)
        if topic is not None and 0 <= each.queue_id < len(topic.partitions):
            queues.append(each)
    request = LockQueues(
        group=wanted.consumer_group,
        client_id=wanted.client_id,
        queues=tuple((each.topic, each.queue_id) for each in queues),
        is_release=is_release,
    )

    def locked(held: Queues | DragomanError) -> None:
        if isinstance(held, DragomanError):
            call.refuse(held)
        elif is_release:
            call.reply()
        else:
            names = set(held.queues)
            granted = [each for each in queues if (each.topic, each.queue_id) in names]
            call.reply(body=bodies.encode(bodies.LockedBatch(lock_ok_mq_set=granted)))

    call.node.lock_queues(request, locked)
