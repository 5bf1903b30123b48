"""Topics by name, and CreateTopic (16), DeleteTopic (18) and ListTopics (25).

mlog has no partitions, so `orders` names the first partition of a topic and `orders@2` the third.
Topics whose own names end like that, which other protocols may create, are hidden, and so are
internal topics.

Nodes are called `node-ID`. A topic created by mlog has one partition. As in the original, leader
epochs are shown from 1 on, and the cluster chooses the leader.
"""

from __future__ import annotations

from dragoman.broker.administration import Actor
from dragoman.broker.errors import NotLeader, TopicExists, UnknownTopic
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import NO_LEADER, PartitionMetadata, TopicMetadata
from dragoman.protocols.mlog.errors import (
    TOPIC_NAME_REQUIRED_TEXT,
    TOPIC_REQUIRED_TEXT,
    ErrorCode,
    topic_not_found,
)
from dragoman.protocols.mlog.handlers.session import MlogSession, Refused
from dragoman.protocols.mlog.messages import (
    CreateTopic,
    CreateTopicResp,
    DeleteTopic,
    DeleteTopicResp,
    ListTopics,
    ListTopicsResp,
    ReplicaInfo,
    TopicInfo,
)
from dragoman.protocols.session import Place
from dragoman.replication.replica import Replica
from dragoman.security.access import Operation, Resource

_INDEX_DIGITS_MAX = 9
# Looked up once, because the lookup of enumeration members is slow.
_TOPIC = Resource.TOPIC


def split(name: str) -> tuple[str, int]:
    """The topic and the partition index that a name refers to."""
    if "@" in name:
        topic, _, index = name.rpartition("@")
        if topic and index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS_MAX:
            return topic, int(index)
    return name, 0


def is_expressible(name: str) -> bool:
    return split(name)[0] == name


def node_name(node_id: int) -> str:
    """Empty for `NO_LEADER`."""
    return f"node-{node_id}" if node_id != NO_LEADER else ""


def require_topic(name: str) -> None:
    if not name:
        raise Refused(ErrorCode.TOPIC_REQUIRED, TOPIC_REQUIRED_TEXT)


def unknown(name: str) -> Refused:
    """The error of every request except DeleteTopic. The original wraps it twice."""
    return Refused(ErrorCode.TOPIC_NOT_FOUND, f"topic {name} not found: {topic_not_found(name)}")


def visible_topic(session: MlogSession, name: str) -> TopicMetadata | None:
    topic = session.service.broker.image.topics.get(name)
    return None if topic is None or topic.is_internal else topic


def find(session: MlogSession, name: str, operation: Operation) -> Replica:
    """The named partition, which this node must lead. Raises `Refused`, `NotLeader`."""
    return session.service.broker.partitions.replica(find_partition(session, name, operation))


def find_partition(session: MlogSession, name: str, operation: Operation) -> PartitionMetadata:
    """The named partition, led by any node. Raises `Refused`."""
    topic, index = split(name)
    # First: the refusal does not reveal whether the topic exists.
    session.authorize(operation, _TOPIC, topic)
    metadata = visible_topic(session, topic)
    if metadata is None or index >= len(metadata.partitions):
        raise unknown(name)
    return metadata.partitions[index]


def find_to_read(session: MlogSession, name: str) -> Replica:
    """The partition to fetch from, which this node must lead. Raises `Refused`; a follower refuses
    a fetch with a specific code and text.
    """
    require_topic(name)
    try:
        return find(session, name, Operation.READ)
    except NotLeader:
        text = f"topic {name} not found: this node is not leader for topic {name}"
        raise Refused(ErrorCode.TOPIC_NOT_FOUND, text) from None


async def handle_create(session: MlogSession, request: CreateTopic, place: Place) -> None:
    name = request.topic
    _require_name(name)
    if not is_expressible(name):
        text = f"failed to create topic: {name} would be a partition of another topic"
        raise Refused(ErrorCode.UNKNOWN, text)
    session.authorize_new_topic(name)
    broker = session.service.broker
    if name in broker.image.topics:
        raise _exists(name)
    others = len(broker.image.nodes) - 1
    if request.replica_count > others and not broker.settings.replication_factor_lenient:
        needed = f"need {request.replica_count}, have {others}"
        text = f"failed to create topic: not enough nodes: {needed}: not enough nodes"
        raise Refused(ErrorCode.NOT_ENOUGH_NODES, text)

    new = NewTopic(name=name, partition_count=1, replication_factor=request.replica_count + 1)
    try:
        await broker.topics.create(new, Actor(session.caller, "mlog"))
    except TopicExists:
        raise _exists(name) from None
    followers = broker.image.topics[name].partitions[0].replicas[1:]
    names = list(map(node_name, followers))
    session.reply(place, CreateTopicResp(topic=name, replica_node_ids=names))


async def handle_delete(session: MlogSession, request: DeleteTopic, place: Place) -> None:
    name = request.topic
    _require_name(name)
    session.authorize(Operation.DELETE, Resource.TOPIC, name)
    missing = Refused(ErrorCode.TOPIC_NOT_FOUND, topic_not_found(name))
    if visible_topic(session, name) is None or not is_expressible(name):
        raise missing

    try:
        await session.service.broker.topics.delete(name, Actor(session.caller, "mlog"))
    except UnknownTopic:
        raise missing from None
    session.reply(place, DeleteTopicResp(topic=name))


def _require_name(name: str) -> None:
    if not name:
        raise Refused(ErrorCode.TOPIC_NAME_REQUIRED, TOPIC_NAME_REQUIRED_TEXT)


def _exists(name: str) -> Refused:
    text = f"topic {name} already exists: topic already exists"
    return Refused(ErrorCode.TOPIC_EXISTS, text)


async def handle_list(session: MlogSession, _request: ListTopics, place: Place) -> None:
    """List the topics, on any node. Only leaders know the log ends of the replicas, so they are
    queried.
    """
    broker = session.service.broker
    describable = session.describable(Resource.TOPIC, broker.image.topics)
    partitions = [
        topic.partitions[0]
        for name, topic in sorted(broker.image.topics.items())
        if not topic.is_internal and is_expressible(name) and name in describable
    ]

    # Leaders that do not answer are left out, without an error.
    ends = await broker.replica_ends.find(partitions)
    topics = [_info(each, ends.get(each.partition_id, {})) for each in partitions]
    session.reply(place, ListTopicsResp(topics=topics))


def _info(partition: PartitionMetadata, ends: dict[int, int]) -> TopicInfo:
    return TopicInfo(
        name=partition.topic.name,
        leader_node_id=node_name(partition.leader),
        leader_epoch=partition.leader_epoch + 1,
        replicas=[
            ReplicaInfo(
                node_id=node_name(node),
                is_isr=node in partition.in_sync,
                leo=ends.get(node, 0),
            )
            for node in partition.replicas
            if node != partition.leader
        ],
    )
