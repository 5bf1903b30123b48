"""Metadata (3), versions 0 to 13: brokers, topics, partitions and who leads them.

A topic that does not exist is created when the client allows it and the broker is set to, and the
answer waits until it is usable: clients that create a topic by asking need no second try.
"""

from __future__ import annotations

import re

from dragoman.broker.errors import (
    InvalidTopicName,
    NotAuthorized,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from dragoman.broker.topics import NewTopic
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import DragomanError
from dragoman.protocols.kafka.handlers.access import (
    CLUSTER_NAME,
    NOT_ASKED,
    allowed_operations,
    authorize,
)
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.messages import (
    NO_ID,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dragoman.security.authorizer import Operation, Resource

#: What Kafka allows; a topic with another name exists for other protocols only.
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_visible(topic: TopicMetadata) -> bool:
    return LEGAL_NAME.fullmatch(topic.name) is not None


def check_kafka_name(name: str) -> None:
    if LEGAL_NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicName(
            f"topic {name[:260]!r} is illegal: 1 to 249 ASCII letters, digits, '.', '_' and '-'"
        )


def handle(call: Call) -> None:
    request = call.request.decode()
    assert isinstance(request, MetadataRequest)
    image = call.service.broker.image
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        visible = [topic for topic in image.topics.values() if is_visible(topic)]
        _reply(call, request, [describe(call, request, topic) for topic in visible])
        return
    assert request.topics is not None
    _Lookup(call, request, request.topics).start()


class _Lookup:
    """The topics asked for, those that had to be created among them, in the order asked."""

    def __init__(
        self, call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic]
    ) -> None:
        self._call = call
        self._request = request
        self._asked = asked
        broker = call.service.broker
        # Before version 4 there is no flag: asking means wanting it.
        self._may_create = (
            request.allow_auto_topic_creation or call.version < 4
        ) and broker.settings.auto_create_topics_enable
        self._found: list[MetadataResponseTopic | None] = [None] * len(asked)
        self._missing = len(asked)

    def start(self) -> None:
        if not self._asked:
            _reply(self._call, self._request, [])
            return
        for index, topic in enumerate(self._asked):
            if topic.name is None:
                self._by_id(index, topic.topic_id)
            else:
                self._by_name(index, topic.name)

    def _by_id(self, index: int, topic_id: bytes) -> None:
        topic = self._call.service.broker.image.topics_by_id.get(topic_id)
        if topic is None:
            error = UnknownTopicId(f"there is no topic with id {topic_id.hex()}")
            # Versions 10 and 11 can ask without a name but not answer without one.
            name = None if self._call.version >= 12 else ""
            self._set(index, refused(name, topic_id, error))
        else:
            self._set(index, describe(self._call, self._request, topic))

    def _by_name(self, index: int, name: str) -> None:
        broker = self._call.service.broker
        topic = broker.image.topics.get(name)
        if topic is not None and is_visible(topic):
            self._set(index, describe(self._call, self._request, topic))
            return
        try:
            check_kafka_name(name)
            if not self._may_create:
                raise UnknownTopic(f"there is no topic {name!r}")
            authorize(self._call, Operation.CREATE, Resource.TOPIC, name)
        except DragomanError as error:
            self._set(index, refused(name, NO_ID, error))
            return

        def created(error: DragomanError | None) -> None:
            topic = broker.image.topics.get(name)
            if topic is not None and (error is None or isinstance(error, TopicExists)):
                self._set(index, describe(self._call, self._request, topic))
            else:
                reason = error if error is not None else UnknownTopic(f"topic {name!r} is gone")
                self._set(index, refused(name, NO_ID, reason))

        broker.ensure_topic(NewTopic(name=name), created)

    def _set(self, index: int, topic: MetadataResponseTopic) -> None:
        assert self._found[index] is None
        self._found[index] = topic
        self._missing -= 1
        if not self._missing and not self._call.is_done:
            found = [each for each in self._found if each is not None]
            _reply(self._call, self._request, found)


def describe(call: Call, request: MetadataRequest, topic: TopicMetadata) -> MetadataResponseTopic:
    try:
        authorize(call, Operation.DESCRIBE, Resource.TOPIC, topic.name)
    except NotAuthorized as error:
        return refused(topic.name, NO_ID, error)
    wants_operations = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
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
        else NOT_ASKED,
    )


def refused(name: str | None, topic_id: bytes, error: DragomanError) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=wire_code(error), name=name, topic_id=topic_id)


def _reply(call: Call, request: MetadataRequest, found: list[MetadataResponseTopic]) -> None:
    broker = call.service.broker
    host, port = call.service.advertised(call.session.channel)
    call.reply(
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=broker.node_id, host=host, port=port)],
            cluster_id=broker.image.cluster_id,
            controller_id=broker.quorum.leader,
            topics=found,
            cluster_authorized_operations=allowed_operations(call, Resource.CLUSTER, CLUSTER_NAME)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )
    )
