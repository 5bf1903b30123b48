"""DescribeTopicPartitions (75), version 0: topics and partitions page by page.

Topics come in the order of their names. When a page is full, its cursor names the partition that
the next one begins with. There are no eligible leaders outside the in-sync set: those lists are
empty, not null, or Java's admin client fails.
"""

from __future__ import annotations

from dragoman.cluster.metadata import PartitionMetadata, TopicMetadata
from dragoman.errors import DecodeError, DragomanError
from dragoman.limits import DESCRIBED_PARTITIONS_MAX
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.access import allowed_operations
from dragoman.protocols.kafka.handlers.names import is_visible, topic_of
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource


def handle(call: Call) -> None:
    request = call.decode(m.DescribeTopicPartitionsRequest)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        # The reply has no place for an error of the whole request.
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
    return sorted(
        name
        for name in call.service.broker.image.topics
        if is_visible(name) and call.session.is_allowed(Operation.DESCRIBE, Resource.TOPIC, name)
    )


class _Page:
    def __init__(self, call: Call, partitions_max: int) -> None:
        self._call = call
        self._room = partitions_max
        self.topics: list[m.DescribeTopicPartitionsResponseTopic] = []
        self.cursor: m.DescribeTopicPartitionsResponseCursor | None = None

    def add(self, name: str, first: int) -> None:
        """Add a topic from partition `first` on, or as much of it as there is room for."""
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
        self._call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, name)
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
