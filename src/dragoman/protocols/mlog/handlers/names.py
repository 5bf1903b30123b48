"""What names stand for: mlog has no partitions, so `orders` is the first and `orders@2` the third.

A topic whose own name ends like that, which other protocols may create, is not to be seen here; nor
are the broker's internal topics.
"""

from __future__ import annotations

from dragoman.broker.errors import NotLeader
from dragoman.broker.replica import Replica
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from dragoman.protocols.mlog.errors import TOPIC_REQUIRED_TEXT, ErrorCode, topic_not_found
from dragoman.protocols.mlog.handlers.refusals import Refused
from dragoman.protocols.mlog.handlers.session import MlogSession
from dragoman.security.authorizer import Operation, Resource

_INDEX_DIGITS_MAX = 9
# Looked up once: members of enumerations are slow to find.
_TOPIC = Resource.TOPIC


def split(name: str) -> tuple[str, int]:
    """The topic and the partition that a name stands for."""
    if "@" in name:
        topic, _, index = name.rpartition("@")
        if topic and index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS_MAX:
            return topic, int(index)
    return name, 0


def is_expressible(name: str) -> bool:
    return split(name)[0] == name


def node_name(node_id: int) -> str:
    """Empty for nobody."""
    return f"node-{node_id}" if node_id != NO_LEADER else ""


def require_topic(name: str) -> None:
    if not name:
        raise Refused(ErrorCode.TOPIC_REQUIRED, TOPIC_REQUIRED_TEXT)


def unknown(name: str) -> Refused:
    """In the words of all requests but DeleteTopic: the original wraps its error twice."""
    return Refused(ErrorCode.TOPIC_NOT_FOUND, f"topic {name} not found: {topic_not_found(name)}")


def visible_topic(session: MlogSession, name: str) -> TopicMetadata | None:
    topic = session.service.broker.image.topics.get(name)
    return None if topic is None or topic.is_internal else topic


def find(session: MlogSession, name: str, operation: Operation) -> Replica:
    """The partition that a name stands for, led by this node. Raises `Refused`, `NotLeader`."""
    return session.service.broker.partitions.replica(find_partition(session, name, operation))


def find_partition(session: MlogSession, name: str, operation: Operation) -> PartitionMetadata:
    """The partition that a name stands for, whoever leads it. Raises `Refused`."""
    topic, index = split(name)
    metadata = visible_topic(session, topic)
    if metadata is None or index >= len(metadata.partitions):
        raise unknown(name)
    session.authorize(operation, _TOPIC, topic)
    return metadata.partitions[index]


def find_to_read(session: MlogSession, name: str) -> Replica:
    """The same for a fetch, whose refusal by a follower has a code and a text of its own."""
    require_topic(name)
    try:
        return find(session, name, Operation.READ)
    except NotLeader:
        text = f"topic {name} not found: this node is not leader for topic {name}"
        raise Refused(ErrorCode.TOPIC_NOT_FOUND, text) from None
