"""Tables by queue, in the form that the caller reads, and answers put together from many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.rocketmq import bodies
from dragoman.protocols.rocketmq.bodies import MessageQueue
from dragoman.protocols.rocketmq.handlers.names import broker_name, spelling
from dragoman.protocols.rocketmq.handlers.routes import serving_node
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.world import Scheduler

Item = TypeVar("Item")
Found = TypeVar("Found")


def is_go(call: Call) -> bool:
    """Go's administration client reads strings as keys, everybody else objects (spec, 9)."""
    return call.request.language == "GO"


def reply_table(call: Call, body: msgspec.Struct) -> None:
    call.reply(body=bodies.encode(body, object_keys=not is_go(call)))


def queue_of(call: Call, partition: PartitionMetadata) -> MessageQueue:
    """The queue at the broker that the topic's route names."""
    topic = partition.topic
    return MessageQueue(
        topic=spelling(topic.name),
        broker_name=broker_name(serving_node(call, topic)),
        queue_id=partition.index,
    )


def each_in_turn(
    scheduler: Scheduler,
    items: Sequence[Item],
    begin: Callable[[Item, Callable[[Found | DragomanError], None]], None],
    done: Callable[[list[Found] | DragomanError], None],
) -> None:
    """What `begin` finds for each, in their order; the first error ends it. Others of the node get
    their turn between any two.
    """
    found: list[Found] = []
    left = iter(items)

    def go_on() -> None:
        for item in left:
            begin(item, one)
            return
        done(found)

    def one(outcome: Found | DragomanError) -> None:
        if isinstance(outcome, DragomanError):
            done(outcome)
        else:
            found.append(outcome)
            scheduler.call_soon(go_on)

    go_on()
