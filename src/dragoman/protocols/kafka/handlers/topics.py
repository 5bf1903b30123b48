"""CreateTopics (19), versions 2 to 7, DeleteTopics (20), versions 1 to 6, and CreatePartitions
(37), versions 0 to 3.
"""

from __future__ import annotations

from collections import Counter

from dragoman.broker.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidTopicName,
    NotAuthorized,
    UnknownTopic,
    UnknownTopicId,
)
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.config.overrides import describe_topic_config
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import TOPIC_PARTITIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.configs import SOURCES
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.resources import check_kafka_name, topic_of
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.protocols.kafka.handlers.slices import gather
from dragoman.security.access import Operation, Resource

#: First versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_CREATE_STRICT_SINCE = 6
_DELETE_STRICT_SINCE = 5
_ADD_STRICT_SINCE = 3


@awaited
async def handle_create(call: Call) -> m.CreateTopicsResponse:
    request = call.decode(m.CreateTopicsRequest)
    named = Counter(topic.name for topic in request.topics)
    topics = call.service.broker.topics
    total = sum(_count(call, each) for each in request.topics)

    async def create(requested: m.CreateTopicsRequestTopic) -> m.CreateTopicsResponseTopic:
        if named[requested.name] > 1:
            raise DecodeError(f"topic {requested.name!r} is in the request more than once")
        call.authorize_new_topic(requested.name)
        topics.check_request(total)
        check_kafka_name(requested.name)
        new = _new_topic(requested)
        if request.validate_only or call.service.broker.throttles.is_on:
            # What cannot be created uses nothing of a quota.
            topics.check_new(new)
        if not request.validate_only:
            count = len(new.assignment) or _count(call, requested)
            call.take_mutations(count, is_strict=call.version >= _CREATE_STRICT_SINCE)
            await topics.create(new, call.actor)
        return _created(call, new)

    results = await gather(call, request.topics, create, timeout_ms=request.timeout_ms)
    return m.CreateTopicsResponse(
        topics=[
            _create_failed(requested.name, each) if isinstance(each, DragomanError) else each
            for requested, each in zip(request.topics, results, strict=True)
        ]
    )


def _count(call: Call, topic: m.CreateTopicsRequestTopic) -> int:
    """The number of partitions that the topic adds to the request's total. A topic that exceeds its
    own bound counts as zero, because it is refused individually.
    """
    default = call.service.broker.settings.num_partitions
    count = len(topic.assignments) or topic.num_partitions
    return default if count < 0 else count if count <= TOPIC_PARTITIONS_MAX else 0


def _created(call: Call, new: NewTopic) -> m.CreateTopicsResponseTopic:
    broker = call.service.broker
    topic = broker.image.topics.get(new.name)
    if not call.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, new.name):
        return m.CreateTopicsResponseTopic(
            name=new.name,
            topic_id=topic.topic_id if topic is not None else m.NO_ID,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
            configs=[],
        )
    partitions = (
        [each.replicas for each in topic.partitions]
        if topic is not None
        else list(broker.topics.check_new(new))
    )
    return m.CreateTopicsResponseTopic(
        name=new.name,
        topic_id=topic.topic_id if topic is not None else m.NO_ID,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0]),
        configs=[
            m.CreateTopicsResponseConfig(
                name=entry.key.name,
                value=entry.text,
                config_source=SOURCES[entry.source],
            )
            for entry in describe_topic_config(broker.settings, new.config)
        ],
    )


def _create_failed(name: str, error: DragomanError) -> m.CreateTopicsResponseTopic:
    return m.CreateTopicsResponseTopic(
        name=name, error_code=wire_code(error), error_message=str(error), configs=[]
    )


def _new_topic(topic: m.CreateTopicsRequestTopic) -> NewTopic:
    placed = sorted(topic.assignments, key=lambda each: each.partition_index)
    if [each.partition_index for each in placed] != list(range(len(placed))):
        raise InvalidReplicaAssignment("the assignment must name partitions 0, 1, 2 and so on")
    missing = [each.name for each in topic.configs if each.value is None]
    if missing:
        raise InvalidConfig(f"{', '.join(missing)}: a value is missing")
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=tuple(tuple(each.broker_ids) for each in placed),
        config={each.name: each.value for each in topic.configs if each.value is not None},
    )


@awaited
async def handle_delete(call: Call) -> m.DeleteTopicsResponse:
    request = call.decode(m.DeleteTopicsRequest)
    requested = request.topics or [
        m.DeleteTopicsRequestTopic(name=each) for each in request.topic_names
    ]
    # Looked up before the deletion, because the response names topics that were requested by id.
    named = [(each, _topic_of(call, each)) for each in requested]

    async def delete(pair: tuple[m.DeleteTopicsRequestTopic, TopicMetadata | None]) -> None:
        each, topic = pair
        if each.name is not None:
            call.authorize(Operation.DELETE, Resource.TOPIC, each.name)
        if topic is None and each.name is not None:
            raise UnknownTopic(f"there is no topic {each.name!r}")
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {each.topic_id.hex()}")
        call.authorize_by_id(Operation.DELETE, topic.topic_id)
        is_strict = call.version >= _DELETE_STRICT_SINCE
        call.take_mutations(len(topic.partitions), is_strict=is_strict)
        await call.service.broker.topics.delete(topic.name, call.actor)

    results = await gather(call, named, delete, timeout_ms=request.timeout_ms)
    return m.DeleteTopicsResponse(
        responses=[_deleted(call, *pair, error) for pair, error in zip(named, results, strict=True)]
    )


def _topic_of(call: Call, requested: m.DeleteTopicsRequestTopic) -> TopicMetadata | None:
    image = call.service.broker.image
    if requested.name is not None:
        found = image.topics.get(requested.name)
    else:
        found = image.topics_by_id.get(requested.topic_id)
    return None if found is None or found.is_internal else found


def _deleted(
    call: Call,
    requested: m.DeleteTopicsRequestTopic,
    topic: TopicMetadata | None,
    error: DragomanError | None,
) -> m.DeleteTopicsResponseTopic:
    if (
        isinstance(error, NotAuthorized)
        and topic is not None
        and not call.may(Operation.DESCRIBE, Resource.TOPIC, topic.name)
    ):
        # The response names the topic only as the request did.
        topic = None
    # Before version 6 the name cannot be null.
    unnamed = requested.name if requested.name is not None or call.version >= 6 else ""
    return m.DeleteTopicsResponseTopic(
        name=unnamed if topic is None else topic.name,
        topic_id=requested.topic_id if topic is None else topic.topic_id,
        error_code=wire_code(error),
        error_message=wire_text(error),
    )


@awaited
async def handle_create_partitions(call: Call) -> m.CreatePartitionsResponse:
    request = call.decode(m.CreatePartitionsRequest)
    named = Counter(topic.name for topic in request.topics)

    total = sum(_added_count(call, topic) for topic in request.topics)

    async def create(topic: m.CreatePartitionsRequestTopic) -> None:
        if named[topic.name] > 1:
            raise DecodeError(f"topic {topic.name!r} is in the request more than once")
        call.authorize(Operation.ALTER, Resource.TOPIC, topic.name)
        call.service.broker.topics.check_request(total)
        assignment = _checked_assignment(call, topic)
        if not request.validate_only:
            is_strict = call.version >= _ADD_STRICT_SINCE
            call.take_mutations(_added_count(call, topic), is_strict=is_strict)
            topics = call.service.broker.topics
            await topics.add_partitions(topic.name, topic.count, assignment, call.actor)

    results = await gather(call, request.topics, create, timeout_ms=request.timeout_ms)
    return m.CreatePartitionsResponse(
        results=[
            m.CreatePartitionsResponseTopic(
                name=topic.name, error_code=wire_code(error), error_message=wire_text(error)
            )
            for topic, error in zip(request.topics, results, strict=True)
        ]
    )


def _added_count(call: Call, requested: m.CreatePartitionsRequestTopic) -> int:
    topic = call.service.broker.image.topics.get(requested.name)
    if topic is None or requested.count > TOPIC_PARTITIONS_MAX:
        # The topic is refused individually.
        return 0
    return max(requested.count - len(topic.partitions), 0)


def _checked_assignment(
    call: Call, requested: m.CreatePartitionsRequestTopic
) -> tuple[tuple[int, ...], ...]:
    topic = topic_of(call, requested.name)
    if topic.is_internal:
        # The partition of a group or transactional id depends on the number of partitions.
        raise InvalidTopicName(f"the partitions of {topic.name} cannot be changed")
    assignment = tuple(tuple(each.broker_ids) for each in requested.assignments or ())
    call.service.broker.topics.check_added(topic, requested.count, assignment)
    return assignment
