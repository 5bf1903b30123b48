"""Topics by name: which names there can be, who may use them, and their making on first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from dragoman.broker.errors import InvalidTopicName, UnknownTopic
from dragoman.broker.topics import NewTopic, check_name
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.limits import TOPIC_NAME_BYTES_MAX
from dragoman.outcome import start
from dragoman.protocols.minibroker import errors
from dragoman.protocols.minibroker.constants import TOPIC_CONFIG
from dragoman.protocols.minibroker.handlers.refusals import Refused
from dragoman.protocols.minibroker.handlers.session import MinibrokerSession
from dragoman.protocols.session import Place
from dragoman.security.authorizer import Operation, Resource
from dragoman.types import GroupId

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
