"""What names stand for: topics that Kafka clients can see, and their partitions."""

from __future__ import annotations

import re
from typing import Final

from dragoman.broker.errors import InvalidTopicName, UnknownTopic
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.protocols.kafka.handlers.session import Call

#: What Kafka allows; a topic with another name exists for other protocols only.
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_visible(topic: str) -> bool:
    return _LEGAL.fullmatch(topic) is not None


def check_kafka_name(name: str) -> None:
    if not is_visible(name) or name in (".", ".."):
        raise InvalidTopicName(
            f"topic {name[:260]!r} is illegal: 1 to 249 ASCII letters, digits, '.', '_' and '-'"
        )


def topic_of(call: Call, name: str) -> TopicMetadata:
    """Raises `InvalidTopicName` or `UnknownTopic`."""
    check_kafka_name(name)
    topic = call.service.broker.image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def exists(call: Call, topic: str, index: int) -> bool:
    known = call.service.broker.image.topics.get(topic)
    return known is not None and 0 <= index < len(known.partitions)


def partition_of(call: Call, topic: str, index: int) -> PartitionMetadata:
    """Raises `UnknownTopic`."""
    if not exists(call, topic, index):
        raise UnknownTopic(f"there is no partition {index} of topic {topic!r}")
    return call.service.broker.image.topics[topic].partitions[index]
