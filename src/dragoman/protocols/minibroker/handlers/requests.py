"""What each request does: PUB, COMMIT, SUB, UNSUB, HEARTBEAT, QUIT.

PUB is answered when the record is durable. In the original one node takes all writes, and the
others answer `not leader`, upon which a client waits 250 ms and tries its next address (spec,
section 9). Here every node leads some partitions: keys would send every client from node to node
all the time. So a record goes to the leader of its partition, and `not leader` is kept for when
that node cannot be reached from here: then another address is the client's only way. Records
without a key go to all partitions in turn, wherever these are led.

COMMIT sets the next offset that a group is to read of a partition, and is answered when that is
durable. Anybody may commit for a group, member or not, forwards or backwards (spec, section 5),
unless the group's members speak another protocol. Like records, commits go to the node that takes
them: clients of this protocol know no coordinators, and pay for every `not leader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import assert_never

from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidTopicName,
    UnknownTopic,
)
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit
from dragoman.broker.readers import Ends
from dragoman.broker.topics import NewTopic, check_name
from dragoman.cluster.metadata import NO_LEADER, TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    GROUPS_LOADING_PAUSE_S,
    MINIBROKER_SUBSCRIPTIONS_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from dragoman.log.batch import Record
from dragoman.outcome import start
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
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId, Offset, Partition, TopicName

# Looked up once: members of enumerations are slow to find.
_TOPIC = Resource.TOPIC
_match_name = re.compile(r"[a-zA-Z0-9._-]+").fullmatch


@lru_cache(maxsize=4096)
def _is_name(name: str) -> bool:
    return _match_name(name) is not None


def use_topic(
    session: MinibrokerSession,
    place: Place,
    name: str,
    operation: Operation,
    use: Callable[[TopicMetadata], None],
) -> None:
    """Have `use` called with the topic, now or when it has been made; what it raises is answered.

    Raises `DragomanError`.
    """
    topic = usable_topic(session, name, operation)
    if topic is None:
        make_topic(session, place, name, use)
    else:
        use(topic)


def usable_topic(
    session: MinibrokerSession, name: str, operation: Operation
) -> TopicMetadata | None:
    """The topic, or None when it has to be made. Raises `DragomanError`.

    The broker's own topics are taken for names that there cannot be.
    """
    if len(name) > TOPIC_NAME_BYTES_MAX or not _is_name(name):
        raise Refused(errors.invalid_topic(name))
    session.authorize(operation, _TOPIC, name)
    topic = session.service.broker.image.topics.get(name)
    if topic is not None and topic.is_internal:
        raise Refused(errors.invalid_topic(name))
    return topic


def make_topic(
    session: MinibrokerSession, place: Place, name: str, use: Callable[[TopicMetadata], None]
) -> None:
    broker = session.service.broker
    try:
        check_name(name)
    except InvalidTopicName:
        raise Refused(errors.invalid_topic(name)) from None
    if not broker.settings.auto_create_topics_enable:
        raise UnknownTopic(f"there is no topic {name!r}")
    session.authorize(Operation.CREATE, Resource.TOPIC, name)

    def made(error: DragomanError | None) -> None:
        if place.is_done:
            return
        try:
            topic = broker.image.topics.get(name)
            if topic is None:
                raise error or UnknownTopic(f"topic {name!r} is gone")
            use(topic)
        except DragomanError as refused:
            place.reply(session.refusal(refused))

    settings = broker.settings
    # The node's own limit, if it has one, is the topic's, also when it is changed later.
    config = {} if settings.log_retention_segments >= 0 else TOPIC_CONFIG
    new = NewTopic(name=name, partition_count=settings.minibroker_partitions, config=config)
    start(broker.topics.ensure(new)).then(made)


def require_partition(topic: TopicMetadata, partition: int) -> None:
    if partition >= len(topic.partitions):
        raise Refused(errors.partition_out_of_range(partition, len(topic.partitions)))


def require_group(session: MinibrokerSession, group: str) -> GroupId:
    """The original takes any bytes for a group's name; other protocols must be able to say it."""
    try:
        group.encode()
    except UnicodeEncodeError:
        raise Refused(errors.invalid_group(group)) from None
    if not group:
        raise Refused(errors.invalid_group(group))
    session.authorize(Operation.READ, Resource.GROUP, group)
    return GroupId(group)


# Looked up once: members of enumerations are slow to find.
_WRITE = Operation.WRITE


def publish(session: MinibrokerSession, request: Publish, place: Place) -> None:
    if len(request.key) > KEY_BYTES_MAX:
        raise Refused(KEY_TOO_LARGE)
    topic = usable_topic(session, request.topic, _WRITE)
    if topic is None:
        make_topic(
            session, place, request.topic, lambda made: _append(session, made, request, place)
        )
    else:
        _append(session, topic, request, place)


def _append(
    session: MinibrokerSession, topic: TopicMetadata, request: Publish, place: Place
) -> None:
    """A key of no bytes is none: in the log it is null."""
    service, key = session.service, request.key
    broker = service.broker
    turn = fnv1a_32(key) if key else service.next_turn(topic.name)
    partition = turn % len(topic.partitions)
    if not key and topic.partitions[partition].leader == NO_LEADER:
        # Any will do for it: rather one that some node leads.
        led = [each.index for each in topic.partitions if each.leader != NO_LEADER]
        partition = led[turn % len(led)] if led else partition

    def placed(offset: int, error: DragomanError | None) -> None:
        place.reply(published_frame(partition, offset) if error is None else session.refusal(error))

    record = Record(key=key or None, value=request.payload, timestamp=broker.clock.wall_ms())
    broker.leader_queues.add(topic.partitions[partition], record, placed)


def commit(session: MinibrokerSession, request: Commit, place: Place) -> None:
    if request.offset > OFFSET_MAX:
        raise Refused(BAD_COMMIT_OFFSET)
    group = require_group(session, request.group)
    coordination = session.service.broker.coordination

    def committed(asked: CommitRequest, error: DragomanError | None) -> None:
        if isinstance(error, CoordinatorLoading | CoordinatorNotAvailable) and not place.is_done:
            # Right after a start clients come back before groups do, and what is refused they do
            # not try again.
            scheduler = session.service.broker.scheduler
            scheduler.call_later(GROUPS_LOADING_PAUSE_S, send, asked)
        elif error is not None:
            place.reply(session.refusal(error))
        else:
            place.reply(codec.encode(Committed(offset=request.offset)))
            subscription = session.subscriptions.get(request.topic)
            if subscription is not None and subscription.group == group:
                subscription.committed(request.partition, request.offset)

    def send(asked: CommitRequest) -> None:
        coordination.groups.commit_anywhere(asked, partial(committed, asked))

    def store(topic: TopicMetadata) -> None:
        require_partition(topic, request.partition)
        offset = OffsetCommit(
            topic=TopicName(topic.name),
            partition=Partition(request.partition),
            offset=Offset(request.offset),
        )
        send(CommitRequest(group_id=group, offsets=(offset,), owner=OWNER))

    use_topic(session, place, request.topic, Operation.READ, store)


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


def quit_connection(session: MinibrokerSession, _request: m.Quit, place: Place) -> None:
    place.reply(codec.encode(m.Done()))
    session.close()
