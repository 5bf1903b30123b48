"""CreatePartitions (37), versions 0 to 3: topics grow, existing partitions stay as they are."""

from __future__ import annotations

from collections import Counter

from dragoman.broker.errors import InvalidTopicName
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka.handlers.access import authorize
from dragoman.protocols.kafka.handlers.config_resources import topic_of
from dragoman.protocols.kafka.handlers.gathering import Gathering
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)
from dragoman.security.authorizer import Operation, Resource


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, CreatePartitionsRequest)
    gathering: Gathering[CreatePartitionsResponseTopic] = Gathering(
        call, len(request.topics), lambda results: CreatePartitionsResponse(results=results)
    )
    named = Counter(topic.name for topic in request.topics)
    for index, topic in enumerate(request.topics):

        def done(error: DragomanError | None, index: int = index, name: str = topic.name) -> None:
            gathering.set(
                index,
                CreatePartitionsResponseTopic(
                    name=name,
                    error_code=0 if error is None else wire_code(error),
                    error_message=None if error is None else str(error),
                ),
            )

        try:
            if named[topic.name] > 1:
                raise DecodeError(f"topic {topic.name!r} is in the request more than once")
            assignment = _checked(call, topic)
        except DragomanError as error:
            done(error)
            continue
        if request.validate_only:
            done(None)
        else:
            call.service.broker.topics.add_partitions(topic.name, topic.count, assignment, done)


def _checked(call: Call, asked: CreatePartitionsRequestTopic) -> tuple[tuple[int, ...], ...]:
    authorize(call, Operation.ALTER, Resource.TOPIC, asked.name)
    topic = topic_of(call, asked.name)
    if topic.is_internal:
        # Which partition keeps a group or a transactional id depends on how many there are.
        raise InvalidTopicName(f"the partitions of {topic.name} cannot be changed")
    assignment = tuple(tuple(each.broker_ids) for each in asked.assignments or ())
    call.service.broker.topics.check_added(topic, asked.count, assignment)
    return assignment
