"""CreateTopics (19), versions 2 to 7, and DeleteTopics (20), versions 1 to 6."""

from __future__ import annotations

from collections import Counter

from dragoman.broker.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    NotAuthorized,
    UnknownTopic,
    UnknownTopicId,
)
from dragoman.broker.topics import NewTopic
from dragoman.config.topics import describe_topic_config
from dragoman.errors import DecodeError, DragomanError
from dragoman.protocols.kafka.handlers.config_resources import SOURCES
from dragoman.protocols.kafka.handlers.metadata import check_kafka_name
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    NO_ID,
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)
from dragoman.security.authorizer import Operation, Resource


def handle_create(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, CreateTopicsRequest)
    _Create(call, request).start()


class _Create:
    def __init__(self, call: Call, request: CreateTopicsRequest) -> None:
        self._call = call
        self._request = request
        self._results: list[CreateTopicsResponseTopic | None] = [None] * len(request.topics)
        self._missing = len(request.topics) + 1
        self._names = Counter(topic.name for topic in request.topics)

    def start(self) -> None:
        for index, topic in enumerate(self._request.topics):
            try:
                self._create(index, topic)
            except DragomanError as error:
                self._set(index, _create_failed(topic.name, error))
        self._one_less()

    def _create(self, index: int, topic: CreateTopicsRequestTopic) -> None:
        broker = self._call.service.broker
        principal = self._call.session.principal
        if self._names[topic.name] > 1:
            raise DecodeError(f"topic {topic.name!r} is in the request more than once")
        check_kafka_name(topic.name)
        if not broker.authorizer.is_allowed(
            principal, Operation.CREATE, Resource.TOPIC, topic.name
        ):
            raise NotAuthorized(f"{principal.name} may not create topic {topic.name!r}")
        new = _new_topic(topic)
        if self._request.validate_only:
            broker.topics.check_new(new)
            self._set(index, self._created(new))
            return

        def done(error: DragomanError | None) -> None:
            failed = _create_failed(new.name, error) if error is not None else None
            self._set(index, failed or self._created(new))

        broker.topics.create(new, done)

    def _created(self, new: NewTopic) -> CreateTopicsResponseTopic:
        broker = self._call.service.broker
        topic = broker.image.topics.get(new.name)
        partitions = (
            [each.replicas for each in topic.partitions]
            if topic is not None
            else list(broker.topics.check_new(new))
        )
        return CreateTopicsResponseTopic(
            name=new.name,
            topic_id=topic.topic_id if topic is not None else NO_ID,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0]),
            configs=[
                CreateTopicsResponseConfig(
                    name=entry.key.name,
                    value=entry.text,
                    config_source=SOURCES[entry.source],
                )
                for entry in describe_topic_config(broker.settings, new.config)
            ],
        )

    def _set(self, index: int, result: CreateTopicsResponseTopic) -> None:
        self._results[index] = result
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing and not self._call.is_done:
            topics = [each for each in self._results if each is not None]
            self._call.reply(CreateTopicsResponse(topics=topics))


def _new_topic(topic: CreateTopicsRequestTopic) -> NewTopic:
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


def _create_failed(name: str, error: DragomanError) -> CreateTopicsResponseTopic:
    return CreateTopicsResponseTopic(
        name=name, error_code=wire_code(error), error_message=str(error), configs=[]
    )


def handle_delete(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, DeleteTopicsRequest)
    asked = request.topics or [DeleteTopicsRequestTopic(name=each) for each in request.topic_names]
    _Delete(call, asked).start()


class _Delete:
    def __init__(self, call: Call, asked: list[DeleteTopicsRequestTopic]) -> None:
        self._call = call
        self._asked = asked
        self._results: list[DeleteTopicsResponseTopic | None] = [None] * len(asked)
        self._missing = len(asked) + 1

    def start(self) -> None:
        for index, topic in enumerate(self._asked):
            name = topic.name
            try:
                name = self._name_of(topic)
                self._delete(index, name)
            except DragomanError as error:
                self._set(index, name, topic.topic_id, error)
        self._one_less()

    def _name_of(self, topic: DeleteTopicsRequestTopic) -> str:
        image = self._call.service.broker.image
        if topic.name is not None:
            found = image.topics.get(topic.name)
            if found is None or found.is_internal:
                raise UnknownTopic(f"there is no topic {topic.name!r}")
            return topic.name
        found = image.topics_by_id.get(topic.topic_id)
        if found is None or found.is_internal:
            raise UnknownTopicId(f"there is no topic with id {topic.topic_id.hex()}")
        return found.name

    def _delete(self, index: int, name: str) -> None:
        broker = self._call.service.broker
        principal = self._call.session.principal
        if not broker.authorizer.is_allowed(principal, Operation.DELETE, Resource.TOPIC, name):
            raise NotAuthorized(f"{principal.name} may not delete topic {name!r}")
        known_id = broker.image.topics[name].topic_id

        def done(error: DragomanError | None) -> None:
            self._set(index, name, known_id, error)

        broker.topics.delete(name, done)

    def _set(
        self, index: int, name: str | None, topic_id: bytes, error: DragomanError | None
    ) -> None:
        # Versions before 6 cannot leave the name out.
        shown = name if name is not None or self._call.version >= 6 else ""
        self._results[index] = DeleteTopicsResponseTopic(
            name=shown,
            topic_id=topic_id,
            error_code=0 if error is None else wire_code(error),
            error_message=None if error is None else str(error),
        )
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing and not self._call.is_done:
            found = [each for each in self._results if each is not None]
            self._call.reply(DeleteTopicsResponse(responses=found))
