"""Metadata (3), versions 0 to 13, and DescribeTopicPartitions (75), version 0: brokers, topics,
partitions and their leaders.

A topic that does not exist is created if the request and the broker's settings allow it. The reply
then waits until the topic has a leader, so that the client need not retry. If there are many
topics, they are described and encoded over several loop turns.

A fenced node stays listed for a while, like a killed broker in Kafka until its session expires.
librdkafka (2.16, its issue 5511) drops a broker that is no longer listed. If that broker
coordinated a group, `send_offsets_to_transaction` waits for it forever, and never looks up the new
coordinator.

DescribeTopicPartitions returns pages, with topics in name order. The cursor of a full page names
the first partition of the next one. There are no eligible leaders outside the in-sync set; their
lists are empty instead of null, because Java's admin client fails on null.
"""

from __future__ import annotations

from contextlib import suppress

from dragoman.broker.errors import TopicExists, UnknownTopic, UnknownTopicId
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import DESCRIBED_PARTITIONS_MAX
from dragoman.net import connection_log
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.codec import array_encoder
from dragoman.protocols.kafka.handlers.failures import note_failures
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.resources import (
    NOT_REQUESTED,
    allowed_operations,
    check_kafka_name,
    cluster_operations,
    is_visible,
    topic_of,
)
from dragoman.protocols.kafka.handlers.session import Call, reply_with
from dragoman.protocols.kafka.handlers.slices import answer_array, gather
from dragoman.security.access import Operation, Resource
from dragoman.types import Buffer


def handle(call: Call) -> None:
    request = call.decode(m.MetadataRequest)
    image = call.service.broker.image
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        names = call.describable(Resource.TOPIC, image.topics)
        topics = [each for name, each in image.topics.items() if name in names and is_visible(name)]
        elements = ((describe(call, request, topic), 1 + len(topic.partitions)) for topic in topics)
        answer_array(call, _response(call, request), "topics", elements)
    else:
        reply_with(call, _named(call, request))


async def _named(call: Call, request: m.MetadataRequest) -> list[Buffer]:
    image = call.service.broker.image
    assert request.topics is not None
    # A topic that is named twice is described once, as in Kafka.
    requested = list({(each.topic_id, each.name): each for each in request.topics}.values())
    encoder = array_encoder(m.MetadataResponse, "topics", call.version)

    async def encoded(topic: m.MetadataRequestTopic) -> bytes:
        try:
            if topic.name is not None and not _has_id(topic):
                found = await _by_name(call, request, topic.name)
            else:
                found = _by_id(call, request, topic.topic_id)
        except DragomanError as error:
            found = _refused(call, topic, error)
            if connection_log.is_on():
                note_failures(call, m.MetadataResponse(topics=[found]))
        call.count_errors(found)
        return encoder.element(found)

    def weigh(topic: m.MetadataRequestTopic) -> int:
        known = image.topics.get(topic.name or "") or image.topics_by_id.get(topic.topic_id)
        return 1 if known is None else 1 + len(known.partitions)

    # In request order, including the topics that it has created.
    results = await gather(call, requested, encoded, weigh=weigh)
    elements = [each for each in results if isinstance(each, bytes)]
    return encoder.frame(_response(call, request), elements, call.request.correlation_id)


def _has_id(topic: m.MetadataRequestTopic) -> bool:
    """Whether the request names the topic by its id. The name is then null or, from Java, empty."""
    return topic.topic_id != m.NO_ID


def _by_id(call: Call, request: m.MetadataRequest, topic_id: bytes) -> m.MetadataResponseTopic:
    topic = call.service.broker.image.topics_by_id.get(topic_id)
    if topic is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id.hex()}")
    # As in Kafka, an id is no secret: the refusal confirms that the topic exists, without its name.
    call.authorize_by_id(Operation.DESCRIBE, topic_id)
    return describe(call, request, topic)


async def _by_name(call: Call, request: m.MetadataRequest, name: str) -> m.MetadataResponseTopic:
    # First: the refusal does not reveal whether the topic exists.
    call.authorize(Operation.DESCRIBE, Resource.TOPIC, name)
    broker = call.service.broker
    topic = broker.image.topics.get(name)
    if topic is not None and is_visible(name):
        return describe(call, request, topic)
    check_kafka_name(name)
    # Versions before 4 lack the flag, so every request may create topics.
    is_wanted = request.allow_auto_topic_creation or call.version < 4
    if not (is_wanted and broker.settings.auto_create_topics_enable):
        raise UnknownTopic(f"there is no topic {name!r}")
    call.authorize_new_topic(name)

    with suppress(TopicExists):
        await broker.topics.ensure(NewTopic(name=name))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"topic {name!r} is gone")
    return describe(call, request, topic)


def _refused(
    call: Call, requested: m.MetadataRequestTopic, error: DragomanError
) -> m.MetadataResponseTopic:
    if requested.name is not None and not _has_id(requested):
        return m.MetadataResponseTopic(error_code=wire_code(error), name=requested.name)
    # In versions 10 and 11 a request may leave the name out, and a response may not.
    name = None if call.version >= 12 else ""
    return m.MetadataResponseTopic(
        error_code=wire_code(error), name=name, topic_id=requested.topic_id
    )


def describe(
    call: Call, request: m.MetadataRequest, topic: TopicMetadata
) -> m.MetadataResponseTopic:
    wants_operations = request.include_topic_authorized_operations
    return m.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            m.MetadataResponsePartition(
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.in_sync),
            )
            for partition in topic.partitions
        ],
        topic_authorized_operations=allowed_operations(call, Resource.TOPIC, topic.name)
        if wants_operations
        else NOT_REQUESTED,
    )


def _response(call: Call, request: m.MetadataRequest) -> m.MetadataResponse:
    """The response without topics."""
    broker = call.service.broker
    return m.MetadataResponse(
        brokers=[
            m.MetadataResponseBroker(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in call.service.nodes(
                call.session.channel, with_lately_fenced=True
            )
        ],
        cluster_id=broker.image.cluster_id,
        controller_id=broker.quorum.leader,
        cluster_authorized_operations=cluster_operations(call)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def handle_pages(call: Call) -> None:
    request = call.decode(m.DescribeTopicPartitionsRequest)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        # The response has no field for an error of the whole request.
        raise DecodeError(f"cursor at partition {cursor.partition_index}")
    names = sorted({each.name for each in request.topics}) or _visible_names(call)
    page = _Page(call, max(1, min(request.response_partition_limit, DESCRIBED_PARTITIONS_MAX)))
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        is_first = cursor is not None and name == cursor.topic_name
        page.add(name, cursor.partition_index if cursor is not None and is_first else 0)
        if page.cursor is not None:
            break
    call.reply(m.DescribeTopicPartitionsResponse(topics=page.topics, next_cursor=page.cursor))


def _visible_names(call: Call) -> list[str]:
    topics = call.service.broker.image.topics
    return sorted(filter(is_visible, call.describable(Resource.TOPIC, topics)))


class _Page:
    def __init__(self, call: Call, partitions_max: int) -> None:
        self._call = call
        self._room = partitions_max
        self.topics: list[m.DescribeTopicPartitionsResponseTopic] = []
        self.cursor: m.DescribeTopicPartitionsResponseCursor | None = None

    def add(self, name: str, first: int) -> None:
        """Add the partitions of a topic from `first` on that fit into the page."""
        if not self._room:
            self._end_at(name, first)
            return
        try:
            topic = self._find(name)
        except DragomanError as error:
            self.topics.append(
                m.DescribeTopicPartitionsResponseTopic(error_code=wire_code(error), name=name)
            )
            return
        shown = topic.partitions[first : first + self._room]
        self._room -= len(shown)
        self.topics.append(
            m.DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[_partition(each) for each in shown],
                topic_authorized_operations=allowed_operations(self._call, Resource.TOPIC, name),
            )
        )
        if first + len(shown) < len(topic.partitions):
            self._end_at(name, first + len(shown))

    def _end_at(self, name: str, index: int) -> None:
        self.cursor = m.DescribeTopicPartitionsResponseCursor(
            topic_name=name, partition_index=index
        )

    def _find(self, name: str) -> TopicMetadata:
        self._call.authorize(Operation.DESCRIBE, Resource.TOPIC, name)
        return topic_of(self._call, name)


def _partition(partition: PartitionMetadata) -> m.DescribeTopicPartitionsResponsePartition:
    return m.DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.in_sync),
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
