"""Handlers of the requests: PUB, COMMIT, SUB, UNSUB, HEARTBEAT and QUIT.

PUB is answered when the record is durable. In the original one node accepts all writes, and all
other nodes answer `not leader`, after which a client waits 250 ms and tries its next address (spec,
section 9). In Dragoman every node leads some partitions, so a client would be redirected with every
key. A record is therefore forwarded to the leader of its partition. The answer is `not leader` only
if this node cannot reach the leader, because another address may work for the client. Records
without a key go to all partitions round-robin, whichever nodes lead them.

COMMIT sets the next offset of a partition for a group to read, and is answered when it is durable.
Any client may commit for a group, member or not, forwards or backwards (spec, section 5), unless
the group's members use another protocol. Commits are forwarded to the group's coordinator, because
this protocol has no notion of coordinators.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from functools import lru_cache, partial
from math import inf

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidTopicName,
    UnknownTopic,
)
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.topics import NewTopic, check_name
from dragoman.cluster.metadata import NO_LEADER, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    GROUPS_LOADING_PAUSE_S,
    MINIBROKER_SUBSCRIPTIONS_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from dragoman.log.batch import Record
from dragoman.outcome import Retry, acknowledged, attempt, retried
from dragoman.protocols.minibroker import codec, errors
from dragoman.protocols.minibroker import messages as m
from dragoman.protocols.minibroker.codec import fnv1a_32, published_frame
from dragoman.protocols.minibroker.constants import KEY_BYTES_MAX, OFFSET_MAX, TOPIC_CONFIG
from dragoman.protocols.minibroker.errors import BAD_COMMIT_OFFSET, KEY_TOO_LARGE
from dragoman.protocols.minibroker.handlers.service import OWNER
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession, Refused
from dragoman.protocols.minibroker.handlers.subscriptions import GroupSubscription, Subscription
from dragoman.protocols.minibroker.messages import Commit, Committed, Publish
from dragoman.protocols.session import Place
from dragoman.security.access import Caller, Operation, Resource
from dragoman.types import GroupId, Offset, Partition, TopicName

# Looked up once, because the lookup of enumeration members is slow.
_TOPIC = Resource.TOPIC
_WRITE = Operation.WRITE
_match_name = re.compile(r"[a-zA-Z0-9._-]+").fullmatch
#: Right after a start, clients reconnect before the groups are loaded, and do not retry a refused
#: commit.
_COMMITTED_SOON = Retry(
    transient=(CoordinatorLoading, CoordinatorNotAvailable),
    interval_s=GROUPS_LOADING_PAUSE_S,
    patience_s=inf,
)


# ---- names


@lru_cache(maxsize=4096)
def _is_name(name: str) -> bool:
    return _match_name(name) is not None


async def _used_topic(
    session: MinibrokerSession, place: Place, name: str, operation: Operation
) -> TopicMetadata:
    """The topic, created if there is none."""
    topic = _usable_topic(session, name, operation)
    return topic if topic is not None else await _created_topic(session, place, name)


def _usable_topic(
    session: MinibrokerSession, name: str, operation: Operation
) -> TopicMetadata | None:
    """The topic, or None if it must be created. Raises `DragomanError`.

    The names of internal topics are invalid in this protocol.
    """
    if len(name) > TOPIC_NAME_BYTES_MAX or not _is_name(name):
        raise Refused(errors.invalid_topic(name))
    session.authorize(operation, _TOPIC, name)
    topic = session.service.broker.image.topics.get(name)
    if topic is not None and topic.is_internal:
        raise Refused(errors.invalid_topic(name))
    return topic


async def _created_topic(session: MinibrokerSession, place: Place, name: str) -> TopicMetadata:
    broker = session.service.broker
    try:
        check_name(name)
    except InvalidTopicName:
        raise Refused(errors.invalid_topic(name)) from None
    if not broker.settings.auto_create_topics_enable:
        raise UnknownTopic(f"there is no topic {name!r}")
    session.authorize_new_topic(name)
    settings = broker.settings
    # The node's own limit, if any, applies to the topic, even if it is changed later.
    config = {} if settings.log_retention_segments >= 0 else TOPIC_CONFIG
    new = NewTopic(name=name, partition_count=settings.minibroker_partitions, config=config)
    failure = await attempt(broker.topics.ensure(new))
    if place.is_done:
        # Stops the request; the client does not see this reply.
        raise Refused("the connection is closed")
    topic = broker.image.topics.get(name)
    if topic is None:
        raise failure or UnknownTopic(f"topic {name!r} is gone")
    return topic


def _require_partition(topic: TopicMetadata, partition: int) -> None:
    if partition >= len(topic.partitions):
        raise Refused(errors.partition_out_of_range(partition, len(topic.partitions)))


def _require_group(session: MinibrokerSession, group: str) -> GroupId:
    """Check a group's name. The original accepts any bytes; Dragoman requires a name that all
    protocols can use.

    Raises `Refused`, `NotAuthorized`.
    """
    try:
        group.encode()
    except UnicodeEncodeError:
        raise Refused(errors.invalid_group(group)) from None
    if not group:
        raise Refused(errors.invalid_group(group))
    session.authorize(Operation.READ, Resource.GROUP, group)
    return GroupId(group)


# ---- requests


def publish(
    session: MinibrokerSession, request: Publish, place: Place
) -> Coroutine[object, None, None] | None:
    if len(request.key) > KEY_BYTES_MAX:
        raise Refused(KEY_TOO_LARGE)
    topic = _usable_topic(session, request.topic, _WRITE)
    if topic is None:
        return _publish_to_new_topic(session, request, place)
    _append(session, topic, request, place)
    return None


async def _publish_to_new_topic(session: MinibrokerSession, request: Publish, place: Place) -> None:
    _append(session, await _created_topic(session, place, request.topic), request, place)


def _append(
    session: MinibrokerSession, topic: TopicMetadata, request: Publish, place: Place
) -> None:
    """Append a record. An empty key means no key, which is null in the log."""
    service, key = session.service, request.key
    broker = service.broker
    turn = fnv1a_32(key) if key else service.next_turn(topic.name)
    partition = turn % len(topic.partitions)
    if not key and topic.partitions[partition].leader == NO_LEADER:
        # A record without a key may go to any partition, preferably one with a leader.
        led = [each.index for each in topic.partitions if each.leader != NO_LEADER]
        partition = led[turn % len(led)] if led else partition

    def placed(offset: int, error: DragomanError | None) -> None:
        if error is None:
            service.received[topic.name].add(len(key) + len(request.payload), 1)
            place.reply(published_frame(partition, offset))
        else:
            session.refuse(place, error)

    record = Record(key=key or None, value=request.payload, timestamp=broker.clock.wall_ms())
    partition_metadata = topic.partitions[partition]
    broker.leader_queues.add(partition_metadata, record, placed, caller=session.caller)


async def commit(session: MinibrokerSession, request: Commit, place: Place) -> None:
    if request.offset > OFFSET_MAX:
        raise Refused(BAD_COMMIT_OFFSET)
    group = _require_group(session, request.group)
    topic = await _used_topic(session, place, request.topic, Operation.READ)
    _require_partition(topic, request.partition)
    offset = OffsetCommit(
        topic=TopicName(topic.name),
        partition=Partition(request.partition),
        offset=Offset(request.offset),
    )
    broker = session.service.broker
    store = partial(
        _commit,
        broker.coordination.groups,
        CommitRequest(group_id=group, offsets=(offset,), owner=OWNER),
        session.caller,
    )
    await retried(_COMMITTED_SOON, broker.scheduler, store, lambda: place.is_done)
    place.reply(codec.encode(Committed(offset=request.offset)))
    subscription = session.subscriptions.get(request.topic)
    if subscription is not None and subscription.group == group:
        subscription.committed(request.partition, request.offset)


async def _commit(groups: GroupCoordinator, request: CommitRequest, caller: Caller) -> None:
    await acknowledged(partial(groups.commit_anywhere, request, caller=caller))


async def subscribe(session: MinibrokerSession, request: m.Subscribe, place: Place) -> None:
    if request.topic in session.subscriptions:
        raise Refused(errors.already_subscribed(request.topic))
    if len(session.subscriptions) >= MINIBROKER_SUBSCRIPTIONS_MAX:
        raise Refused(f"sub: more than {MINIBROKER_SUBSCRIPTIONS_MAX} subscriptions")
    group = None
    if isinstance(request, m.SubscribeGroup):
        group = _require_group(session, request.group)
    topic = await _used_topic(session, place, request.topic, Operation.READ)
    if group is not None:
        _join(session, topic.name, group, place)
        return
    assert not isinstance(request, m.SubscribeGroup)
    _require_partition(topic, request.partition)
    partition = topic.partitions[request.partition]
    if isinstance(request, m.SubscribeOffset):
        offset = request.offset
    else:
        offset = (await session.service.broker.readers.ends(partition)).log_end_offset
    if not session.channel.is_closing:
        subscription = session.subscriptions[topic.name] = Subscription(session, topic.name)
        place.reply(codec.encode(m.Subscribed(partitions=(request.partition,))))
        subscription.read(partition, offset)


def _join(session: MinibrokerSession, topic: str, group: GroupId, place: Place) -> None:
    subscription = GroupSubscription(session, topic, group)
    # Registered before the group answers, so that closing the connection also ends the membership.
    session.subscriptions[topic] = subscription
    subscription.join(partial(_joined, session, subscription, place))


def _joined(
    session: MinibrokerSession,
    subscription: GroupSubscription,
    place: Place,
    partitions: tuple[int, ...] | DragomanError,
) -> None:
    """Called with the group's answer, unless the member has left."""
    if isinstance(partitions, DragomanError):
        del session.subscriptions[subscription.topic]
        session.refuse(place, partitions)
    else:
        place.reply(codec.encode(m.Joined(group=subscription.group, partitions=partitions)))
        subscription.take(partitions)


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


def quit_connection(session: MinibrokerSession, _request: m.Quit, place: Place) -> None:
    place.reply(codec.encode(m.Done()))
    session.close()
