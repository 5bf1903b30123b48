"""The resources that requests name: topics and their partitions, groups, and the cluster.

A resource is looked up by its name, and the authorizer decides what a client may do with it.
"""

from __future__ import annotations

import re
from typing import Final

from dragoman.broker.errors import InvalidTopicName, UnknownTopic
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.access import CLUSTER_NAME, Operation, Resource

#: Names that Kafka allows. Only other protocols see topics with other names.
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


#: The value of authorized operations in a response if the request did not include them.
NOT_REQUESTED: Final = -(1 << 31)

#: Each operation's bit in a set of authorized operations.
_BITS: Final[dict[Operation, int]] = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}


def _operations(words: str) -> tuple[Operation, ...]:
    return tuple(map(Operation, words.split()))


#: The operations that exist for each kind of resource.
_OPERATIONS: Final = {
    Resource.TOPIC: _operations(
        "read write create delete alter describe describe_configs alter_configs"
    ),
    Resource.GROUP: _operations("read delete describe describe_configs alter_configs"),
    Resource.TRANSACTIONAL_ID: _operations("write describe"),
    Resource.CLUSTER: _operations(
        "create alter describe cluster_action describe_configs alter_configs idempotent_write"
    ),
}


def allowed_operations(call: Call, resource: Resource, name: str) -> int:
    """The operations on a resource that the principal is authorized for, one bit each (KIP-430)."""
    return sum(
        1 << _BITS[operation]
        for operation in _OPERATIONS[resource]
        if call.may(operation, resource, name)
    )


def cluster_operations(call: Call) -> int:
    """The operations on the cluster; none for a principal that may not describe it."""
    if not call.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return allowed_operations(call, Resource.CLUSTER, CLUSTER_NAME)
