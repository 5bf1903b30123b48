"""SUB, UNSUB and HEARTBEAT: subscriptions begin, end, and show that they are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dragoman.broker.reading import Ends
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import MINIBROKER_SUBSCRIPTIONS_MAX
from dragoman.net.framed import Place
from dragoman.outcome import start
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.handlers.refusals import Refused
from dragoman.protocols.minibroker.handlers.subscription import GroupSubscription, Subscription
from dragoman.protocols.minibroker.handlers.topics import (
    require_group,
    require_partition,
    use_topic,
)
from dragoman.security.authorizer import Operation
from dragoman.types import GroupId

if TYPE_CHECKING:
    from dragoman.protocols.minibroker.handlers.session import MinibrokerSession


def subscribe(session: MinibrokerSession, request: m.Subscribe, place: Place) -> None:
    if request.topic in session.subscriptions:
        raise Refused(errors.already_subscribed(request.topic))
    if len(session.subscriptions) >= MINIBROKER_SUBSCRIPTIONS_MAX:
        raise Refused(f"sub: more than {MINIBROKER_SUBSCRIPTIONS_MAX} subscriptions")

    def begin(topic: TopicMetadata) -> None:
        match request:
            case m.SubscribeHead() | m.SubscribeOffset():
                _read_one(session, request, topic, place)
            case m.SubscribeGroup():
                _join(session, request, require_group(session, request.group), place)
            case _:
                assert_never(request)

    use_topic(session, place, request.topic, Operation.READ, begin)


def _read_one(
    session: MinibrokerSession,
    request: m.SubscribeHead | m.SubscribeOffset,
    topic: TopicMetadata,
    place: Place,
) -> None:
    require_partition(topic, request.partition)
    partition = topic.partitions[request.partition]

    def begin(offset: int | DragomanError) -> None:
        if isinstance(offset, DragomanError):
            place.reply(session.refusal(offset))
        elif not session.channel.is_closing:
            subscription = session.subscriptions[topic.name] = Subscription(session, topic.name)
            place.reply(codec.encode(m.Subscribed(partitions=(request.partition,))))
            subscription.read(partition, offset)

    def found(ends: Ends | DragomanError) -> None:
        begin(ends.log_end_offset if isinstance(ends, Ends) else ends)

    if isinstance(request, m.SubscribeOffset):
        begin(request.offset)
    else:
        start(session.service.broker.readers.ends(partition)).then(found)


def _join(
    session: MinibrokerSession, request: m.SubscribeGroup, group: GroupId, place: Place
) -> None:
    subscription = GroupSubscription(session, request.topic, group)
    # Known from now on: a connection that goes takes it along.
    session.subscriptions[request.topic] = subscription

    def seated(partitions: tuple[int, ...] | DragomanError) -> None:
        if isinstance(partitions, DragomanError):
            del session.subscriptions[request.topic]
            place.reply(session.refusal(partitions))
            return
        place.reply(codec.encode(m.Joined(group=group, partitions=partitions)))
        subscription.take(partitions)

    subscription.join(seated)


def unsubscribe(session: MinibrokerSession, request: m.Unsubscribe, place: Place) -> None:
    subscription = session.subscriptions.pop(request.topic, None)
    if subscription is None:
        raise Refused(errors.not_subscribed(request.topic))
    subscription.close()
    place.reply(codec.encode(m.Done()))


def heartbeat(session: MinibrokerSession, request: m.Heartbeat, place: Place) -> None:
    subscription = session.subscriptions.get(request.topic)
    if not isinstance(subscription, GroupSubscription) or subscription.group != request.group:
        raise Refused(f"heartbeat: {errors.not_subscribed(request.topic)}")
    subscription.heartbeat()
    place.reply(codec.encode(m.Done()))
