"""OffsetCommit (8), versions 2 to 10, and OffsetFetch (9), versions 1 to 10: committed offsets.

A partition without a committed offset has offset -1 and no error, even in a group that does not
exist. From version 10 on topics are named by id, so an offset of a deleted topic does not apply to
a new one of the same name. As in Kafka, any offset may be committed and is returned: KafkaJS
commits -2 to start over. Consumers and all other protocols treat a negative offset as missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from dragoman.broker.errors import UnknownTopic, UnknownTopicId
from dragoman.broker.groups.offsets import CommitRequest, OffsetCommit, PreparedOffsets
from dragoman.broker.work_queue import Steps
from dragoman.cluster.metadata import TopicMetadata
from dragoman.errors import BrokerError, DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.consumer_groups import (
    check_commit_version,
    check_fetching_member,
)
from dragoman.protocols.kafka.handlers.groups import OWNER, open_groups
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import answer
from dragoman.security.access import Operation, Resource
from dragoman.types import Epoch, GroupId, MemberId, Offset, Partition, TopicName

AnyPartition = TypeVar("AnyPartition")

#: First version of both requests that names topics by id.
_TOPIC_IDS_SINCE = 10


def handle_commit(call: Call) -> None:
    request = call.decode(m.OffsetCommitRequest)
    try:
        call.authorize(Operation.READ, Resource.GROUP, request.group_id)
    except DragomanError as error:
        # Before the topics are looked up, because their errors reveal which of them exist.
        call.reply(_committed(call, request, {}, None, error))
        return
    commits: list[OffsetCommit] = []
    # By the topic's index in the request, because an unknown id has no name.
    refused: dict[tuple[int, int], DragomanError] = {}
    for place, requested in enumerate(request.topics):
        topic, refusal = _topic_of(call, requested.name, requested.topic_id, Operation.READ)
        for each in requested.partitions:
            index = each.partition_index
            if topic is None or not 0 <= index < len(topic.partitions):
                refused[place, index] = refusal or UnknownTopic(
                    f"there is no {requested.name}-{index}"
                )
                continue
            commits.append(_commit(topic, each))

    def done(prepared: PreparedOffsets | None, error: DragomanError | None) -> None:
        if not call.is_done:
            call.reply(_committed(call, request, refused, prepared, error))

    try:
        open_groups(call, request.group_id)
        check_commit_version(call, request.group_id, request.member_id)
    except DragomanError as error:
        done(None, error)
        return
    call.service.broker.coordination.groups.commit(
        CommitRequest(
            group_id=GroupId(request.group_id),
            offsets=tuple(commits),
            member_id=MemberId(request.member_id),
            generation=request.generation_id_or_member_epoch,
            instance_id=request.group_instance_id,
            takes_negative=True,
            retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
            owner=OWNER,
        ),
        done,
    )


def _topic_of(
    call: Call, name: str, topic_id: bytes, operation: Operation
) -> tuple[TopicMetadata | None, DragomanError | None]:
    """The topic, None if it is not known or the operation is refused; and the error, without one
    for a name that is not known.
    """
    image = call.service.broker.image
    try:
        if call.version < _TOPIC_IDS_SINCE:
            call.authorize(operation, Resource.TOPIC, name)
            return image.topics.get(name), None
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id.hex()}")
        call.authorize(operation, Resource.TOPIC, topic.name)
    except DragomanError as error:
        return None, error.with_traceback(None)
    return topic, None


def _commit(topic: TopicMetadata, requested: m.OffsetCommitRequestPartition) -> OffsetCommit:
    return OffsetCommit(
        topic=TopicName(topic.name),
        partition=Partition(requested.partition_index),
        offset=Offset(requested.committed_offset),
        leader_epoch=Epoch(requested.committed_leader_epoch),
        metadata=requested.committed_metadata or "",
    )


def _committed(
    call: Call,
    request: m.OffsetCommitRequest,
    refused: dict[tuple[int, int], DragomanError],
    prepared: PreparedOffsets | None,
    error: DragomanError | None,
) -> m.OffsetCommitResponse:
    by_name = {} if prepared is None else prepared.errors

    def code(place: int, name: str, index: int) -> int:
        found: DragomanError | None = refused.get((place, index), error)
        if found is None:
            found = by_name.get((TopicName(name), Partition(index)))
        return wire_code(found)

    topics = []
    topics_by_id = call.service.broker.image.topics_by_id
    for place, requested in enumerate(request.topics):
        topic = topics_by_id.get(requested.topic_id)
        name = requested.name if topic is None else topic.name
        topics.append(
            m.OffsetCommitResponseTopic(
                name=requested.name,
                topic_id=requested.topic_id,
                partitions=[
                    m.OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=code(place, name, each.partition_index),
                    )
                    for each in requested.partitions
                ],
            )
        )
    return m.OffsetCommitResponse(topics=topics)


class _Found(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0

    def to_message(self, kind: Callable[..., AnyPartition]) -> AnyPartition:
        """The message as the class of old or new versions, which have the same fields."""
        return kind(
            partition_index=self.partition,
            committed_offset=self.offset,
            committed_leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            error_code=self.error_code,
        )


def handle_fetch(call: Call) -> None:
    request = call.decode(m.OffsetFetchRequest)
    answer(call, _fetch_groups(call, request) if call.version >= 8 else _fetch(call, request))


def _fetch(call: Call, request: m.OffsetFetchRequest) -> Steps[m.Message]:
    """Serve versions before 8, which fetch the offsets of one group."""
    topics = request.topics
    wanted = None if topics is None else [(each.name, each.partition_indexes) for each in topics]
    try:
        found = yield from _find(call, request.group_id, wanted, request.require_stable)
    except BrokerError as error:
        code = wire_code(error)
        if call.version >= 2:
            return m.OffsetFetchResponse(error_code=code)
        # Version 1 has no error field for the group: each partition carries the error.
        found = [
            (name, [_Found(index, error_code=code) for index in indexes])
            for name, indexes in wanted or ()
        ]
    return m.OffsetFetchResponse(
        topics=[
            m.OffsetFetchResponseTopic(
                name=name,
                partitions=[each.to_message(m.OffsetFetchResponsePartition) for each in places],
            )
            for name, places in found
        ]
    )


def _fetch_groups(call: Call, request: m.OffsetFetchRequest) -> Steps[m.Message]:
    groups: list[m.OffsetFetchResponseGroup] = []
    complete: set[str] = set()
    for requested in request.groups:
        if requested.topics is None and requested.group_id in complete:
            # The reply already has all offsets of the group.
            continue
        if requested.topics is None:
            complete.add(requested.group_id)
        group = yield from _group(call, requested, request.require_stable)
        groups.append(group)
        yield 1
    return m.OffsetFetchResponse(groups=groups)


def _group(
    call: Call, requested: m.OffsetFetchRequestGroup, require_stable: bool
) -> Steps[m.OffsetFetchResponseGroup]:
    wanted = None
    refused: list[tuple[m.OffsetFetchRequestGroupTopic, DragomanError]] = []
    try:
        open_groups(call, requested.group_id, Operation.DESCRIBE)
        if requested.topics is not None:
            wanted = []
            for each in requested.topics:
                topic, refusal = _topic_of(call, each.name, each.topic_id, Operation.DESCRIBE)
                if refusal is not None:
                    refused.append((each, refusal))
                    continue
                wanted.append((each.name if topic is None else topic.name, each.partition_indexes))
        check_fetching_member(call, requested)
        found = yield from _find(call, requested.group_id, wanted, require_stable)
    except BrokerError as error:
        return m.OffsetFetchResponseGroup(group_id=requested.group_id, error_code=wire_code(error))
    known = call.service.broker.image.topics
    topics = [
        _found_topic(name, known[name].topic_id if name in known else m.NO_ID, places)
        for name, places in found
        # A deleted topic has no id.
        if call.version < _TOPIC_IDS_SINCE or name in known
    ]
    for each, refusal in refused:
        code = wire_code(refusal)
        places = [_Found(index, error_code=code) for index in each.partition_indexes]
        topics.append(_found_topic(each.name, each.topic_id, places))
    return m.OffsetFetchResponseGroup(group_id=requested.group_id, topics=topics)


def _found_topic(
    name: str, topic_id: bytes, places: list[_Found]
) -> m.OffsetFetchResponseGroupTopic:
    return m.OffsetFetchResponseGroupTopic(
        name=name,
        topic_id=topic_id,
        partitions=[each.to_message(m.OffsetFetchResponseGroupPartition) for each in places],
    )


def _find(
    call: Call,
    group_id: str,
    wanted: list[tuple[str, list[int]]] | None,
    require_stable: bool,
) -> Steps[list[tuple[str, list[_Found]]]]:
    open_groups(call, group_id, Operation.DESCRIBE)
    may_describe = partial(call.may, Operation.DESCRIBE, Resource.TOPIC)
    offsets = call.service.broker.coordination.groups.offsets
    group = GroupId(group_id)
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(offsets.all_stored(group)):
            by_topic.setdefault(topic, []).append(partition)
        # Topics that the client may not see are left out, as in Kafka.
        wanted = [(name, indexes) for name, indexes in by_topic.items() if may_describe(name)]

    stored = offsets.all_stored(group)

    def one(name: str, index: int) -> _Found:
        topic, partition = TopicName(name), Partition(index)
        if require_stable and offsets.has_unstable(group, topic, partition):
            return _Found(index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = stored.get((topic, partition))
        if committed is None:
            return _Found(index)
        return _Found(index, committed.offset, committed.leader_epoch, committed.metadata)

    found: list[tuple[str, list[_Found]]] = []
    for name, indexes in wanted:
        code = 0 if may_describe(name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        places: list[_Found] = []
        for index in indexes:
            places.append(_Found(index, error_code=code) if code else one(name, index))
            yield 1
        found.append((name, places))
    return found
