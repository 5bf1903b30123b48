"""CreatePartitions (37), versions 0 to 3: topics grow, existing partitions stay as they are."""

from __future__ import annotations

from collections import Counter

from dragoman.broker.errors import InvalidTopicName
from dragoman.errors import DecodeError
from dragoman.limits import TOPIC_PARTITIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.items import gather
from dragoman.protocols.kafka.handlers.names import topic_of
from dragoman.protocols.kafka.handlers.refusals import wire_code, wire_text
from dragoman.protocols.kafka.handlers.session import Call, awaited
from dragoman.security.authorizer import Operation, Resource


@awaited
async def handle(call: Call) -> m.CreatePartitionsResponse:
    request = call.decode(m.CreatePartitionsRequest)
    named = Counter(topic.name for topic in request.topics)

    total = sum(_added(call, topic) for topic in request.topics)

    async def create(topic: m.CreatePartitionsRequestTopic) -> None:
        if named[topic.name] > 1:
            raise DecodeError(f"topic {topic.name!r} is in the request more than once")
        call.service.broker.topics.check_request(total)
        assignment = _checked(call, topic)
        if not request.validate_only:
            topics = call.service.broker.topics
            await topics.add_partitions(topic.name, topic.count, assignment)

    results = await gather(call, request.topics, create, timeout_ms=request.timeout_ms)
    return m.CreatePartitionsResponse(
        results=[
            m.CreatePartitionsResponseTopic(
                name=topic.name, error_code=wire_code(error), error_message=wire_text(error)
            )
            for topic, error in zip(request.topics, results, strict=True)
        ]
    )


def _added(call: Call, asked: m.CreatePartitionsRequestTopic) -> int:
    topic = call.service.broker.image.topics.get(asked.name)
    if topic is None or asked.count > TOPIC_PARTITIONS_MAX:
        # Refused for itself.
        return 0
    return max(asked.count - len(topic.partitions), 0)


def _checked(call: Call, asked: m.CreatePartitionsRequestTopic) -> tuple[tuple[int, ...], ...]:
    call.session.authorize(Operation.ALTER, Resource.TOPIC, asked.name)
    topic = topic_of(call, asked.name)
    if topic.is_internal:
        # Which partition keeps a group or a transactional id depends on how many there are.
        raise InvalidTopicName(f"the partitions of {topic.name} cannot be changed")
    assignment = tuple(tuple(each.broker_ids) for each in asked.assignments or ())
    call.service.broker.topics.check_added(topic, asked.count, assignment)
    return assignment
