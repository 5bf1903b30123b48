"""Topics as RocketMQ's clients see them, and their creation on first use.

What a RocketMQ topic has beside a log is kept as one entry of the topic's configuration:

    perm=6 read=4 write=4 order=true filter=MULTI_TAG sys_flag=0 attributes=+a=b,c=d
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import lru_cache
from typing import Final

import msgspec

from dragoman.broker.errors import UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.outcome import attempt
from dragoman.protocols.rocketmq.constants import READ_AND_WRITE, TOPIC_CONFIG
from dragoman.protocols.rocketmq.handlers.core import Core
from dragoman.protocols.rocketmq.handlers.names import check_topic_name, is_expressible, topic_name
from dragoman.protocols.rocketmq.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

ATTRIBUTES_KEY: Final = "dragoman.rocketmq.topic"


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    perm: int = int(READ_AND_WRITE)
    #: Queues that are read and written; 0: as many as there are partitions.
    read: int = 0
    write: int = 0
    order: str = "false"
    filter: str = "SINGLE_TAG"
    sys_flag: int = 0
    #: `key=value` pairs with commas between them.
    attributes: str = ""

    @property
    def is_ordered(self) -> bool:
        return self.order == "true"


_DEFAULT: Final = Attributes()


@lru_cache(maxsize=1024)
def _read(text: str) -> Attributes:
    found = dict(each.partition("=")[::2] for each in text.split())
    known = {name: found[name] for name in Attributes.__struct_fields__ if name in found}
    try:
        return msgspec.convert(known, Attributes, strict=False)
    except msgspec.ValidationError:
        # Written by hand, and not for us to understand.
        return _DEFAULT


def attributes_of(topic: TopicMetadata) -> Attributes:
    text = topic.config.get(ATTRIBUTES_KEY)
    return _DEFAULT if text is None else _read(text)


def written(attributes: Attributes) -> str:
    """As an entry of the configuration; empty when there is nothing to say."""
    default = msgspec.structs.asdict(_DEFAULT)
    given = msgspec.structs.asdict(attributes)
    return " ".join(f"{name}={given[name]}" for name in given if given[name] != default[name])


def read_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).read or count, count)


def write_queues(topic: TopicMetadata) -> int:
    count = len(topic.partitions)
    return min(attributes_of(topic).write or count, count)


def visible_topics(call: Call) -> list[TopicMetadata]:
    """The topics that RocketMQ can name and the client may know of, in order."""
    return [
        topic
        for name, topic in sorted(call.service.broker.image.topics.items())
        if not topic.is_internal
        and is_expressible(name)
        and call.session.is_allowed(Operation.DESCRIBE, Resource.TOPIC, name)
    ]


def make_topic(call: Call, spelt: str, queues: int) -> Coroutine[object, None, TopicMetadata]:
    """Create a topic unless it exists. Raises `DragomanError` at once when the client may not.

    This node leads the topic, because the client that needs it is connected here.
    """
    check_topic_name(spelt)
    name = topic_name(spelt)
    call.session.authorize(Operation.CREATE, Resource.TOPIC, name)
    return _make_topic(call.service.broker, name, queues)


async def _make_topic(broker: Core, name: str, queues: int) -> TopicMetadata:
    new = NewTopic(
        name=name, partition_count=queues, config=dict(TOPIC_CONFIG), led_by=broker.node_id
    )
    error = await attempt(broker.ensure_topic(new))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise error or UnknownTopic(f"topic {name!r} is gone")
    return topic
