"""Requests about topics for callers of the HTTP API on other nodes: the part that leads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dragoman.api.node_requests import (
    FindMarks,
    FindOffset,
    FindTime,
    FoundMarks,
    FoundOffset,
    FoundTime,
    MeasureTopic,
    PartitionMarks,
    TopicUse,
    Truncated,
    TruncatePartition,
)
from dragoman.api.node_rpc import NodeHandlers
from dragoman.broker.caller_rights import authorize
from dragoman.broker.errors import InvalidTopicName
from dragoman.broker.groups.coordinator import GroupCoordinator
from dragoman.broker.groups.records import TopicPartition
from dragoman.broker.partitions import Partitions
from dragoman.broker.replica_marks import ReplicaMarks
from dragoman.broker.work_queue import Steps, WorkQueue
from dragoman.cluster.metadata import MetadataImage
from dragoman.errors import DragomanError
from dragoman.limits import HTTP_PAGE_ITEMS_MAX
from dragoman.log.offset_times import is_in_memory, time_at
from dragoman.log.readable_log import ReadableLog
from dragoman.replication.errors import UnknownTopic
from dragoman.replication.replica import ALL_COMMITTED, Replica
from dragoman.security.access import Operation, Resource
from dragoman.security.authorizer import Authorizer

#: Cost of the marks of a partition, in items of the work queue: it may read a manifest.
MARKS_ITEMS = 20
#: Cost of the time of a record that is read from a file, in items of the work queue.
_READ_ITEMS = 50


class Coordination(Protocol):
    @property
    def groups(self) -> GroupCoordinator: ...


class NodeBroker(Protocol):
    """What the handlers use of the broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def replica_marks(self) -> ReplicaMarks: ...

    @property
    def coordination(self) -> Coordination: ...

    @property
    def work(self) -> WorkQueue: ...


class NodeTopics:
    def __init__(self, broker: NodeBroker) -> None:
        self._broker = broker

    def serve(self, handlers: NodeHandlers) -> None:
        handlers.serve(TruncatePartition, self._truncate)
        handlers.serve(MeasureTopic, self._measure)
        handlers.serve(FindMarks, self._find_marks)
        handlers.serve(FindOffset, self._find_offset)
        handlers.serve(FindTime, self._find_time)

    async def _truncate(self, request: TruncatePartition) -> Truncated:
        broker, topic = self._broker, request.topic
        authorize(broker.authorizer, request.caller, Operation.DELETE, Resource.TOPIC, topic)
        replica = broker.partitions.find(topic, request.partition)
        if replica.metadata.topic.is_internal:
            raise InvalidTopicName(f"records of {topic} are the broker's own")
        before = replica.log.log_start_offset
        offset = _end_of_truncation(replica, request)
        if request.validate_only:
            return Truncated(before=before, after=max(before, replica.check_deletable(offset)))
        return Truncated(before=before, after=replica.delete_below(offset))

    async def _find_marks(self, request: FindMarks) -> FoundMarks:
        broker, topic = self._broker, request.topic
        authorize(broker.authorizer, request.caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        return await broker.work.run(self._marks(request))

    def _marks(self, request: FindMarks) -> Steps[FoundMarks]:
        topic = self._broker.image.topics.get(request.topic)
        partitions = () if topic is None else topic.partitions
        found = []
        for index in request.partitions:
            yield MARKS_ITEMS
            if index in range(len(partitions)):
                marks = self._broker.replica_marks.find(partitions[index])
                if marks is not None:
                    found.append(
                        PartitionMarks(
                            partition=index,
                            log_start_offset=marks.log_start_offset,
                            high_watermark=marks.high_watermark,
                            log_end_offset=marks.log_end_offset,
                            size_bytes=marks.size,
                        )
                    )
        return FoundMarks(items=tuple(found))

    async def _find_offset(self, request: FindOffset) -> FoundOffset:
        broker, topic = self._broker, request.topic
        authorize(broker.authorizer, request.caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        log = broker.partitions.find(topic, request.partition).log
        found = log.offset_for_time(request.time_ms, log.high_watermark)
        return FoundOffset(offset=None if found is None else found[0])

    async def _find_time(self, request: FindTime) -> FoundTime:
        broker, topic = self._broker, request.topic
        authorize(broker.authorizer, request.caller, Operation.DESCRIBE, Resource.TOPIC, topic)
        log = broker.partitions.find(topic, request.partition).log
        return await broker.work.run(_time(log, max(request.offset, log.log_start_offset)))

    async def _measure(self, request: MeasureTopic) -> TopicUse:
        broker = self._broker
        authorize(
            broker.authorizer, request.caller, Operation.DELETE, Resource.TOPIC, request.topic
        )
        return await broker.work.run(self._measured(request))

    def _measured(self, request: MeasureTopic) -> Steps[TopicUse]:
        broker = self._broker
        topic = broker.image.topics.get(request.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {request.topic!r}")
        records = size = 0
        for each in topic.partitions:
            if each.leader == broker.node_id:
                marks = broker.replica_marks.find(each)
                if marks is not None:
                    records += marks.high_watermark - marks.log_start_offset
                    size += marks.size
                yield MARKS_ITEMS
        groups = []
        for group in broker.coordination.groups.table:
            if _has_topic(group.ledger.committed, request.topic):
                groups.append(str(group.group_id))
            yield 1 + len(group.ledger.committed) // 10
        allowed_among = broker.authorizer.allowed_among
        shown = allowed_among(request.caller, Operation.DESCRIBE, Resource.GROUP, groups)
        return TopicUse(
            records=records,
            size_bytes=size,
            groups=tuple(sorted(shown)[:HTTP_PAGE_ITEMS_MAX]),
            group_count=len(shown),
        )


def _time(log: ReadableLog, offset: int) -> Steps[FoundTime]:
    yield 1 if is_in_memory(log, offset) else _READ_ITEMS
    try:
        return FoundTime(time_ms=time_at(log, offset))
    except (DragomanError, OSError):
        # Damage, which readers report.
        return FoundTime()


def _has_topic(committed: Iterable[TopicPartition], topic: str) -> bool:
    return any(name == topic for name, _ in committed)


def _end_of_truncation(replica: Replica, request: TruncatePartition) -> int:
    if request.time_ms is None:
        return request.offset
    log = replica.log
    found = log.offset_for_time(request.time_ms, log.high_watermark)
    # All records are older.
    return ALL_COMMITTED if found is None else found[0]
