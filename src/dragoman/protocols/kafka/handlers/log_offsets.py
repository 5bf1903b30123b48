"""Offsets of a partition's log: ListOffsets (2), versions 1 to 11, DeleteRecords (21), versions 0
to 2, and OffsetForLeaderEpoch (23), versions 2 to 4.

ListOffsets finds offsets by time, or by a special time below zero. An offset that is not found is
-1, without an error. There is no tiered storage: earliest local (-4) is the earliest offset; latest
tiered (-5) and earliest pending upload (-6) are not found.

DeleteRecords raises the log start; offset -1 means the high watermark. After a change of leader,
consumers use OffsetForLeaderEpoch to find out whether the log still has what they have read.
"""

from __future__ import annotations

from dragoman.broker.administration import note
from dragoman.broker.errors import InvalidTopicName
from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.errors import ErrorCode
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import answer
from dragoman.security.access import Operation, Resource

#: Cost of a lookup by time, in items of the work queue.
_TIME_LOOK_UP_ITEMS = 100
_NOT_AVAILABLE_SINCE_VERSION = 5
_EPOCH_SINCE_VERSION = 4
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
#: First version of each special time.
_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle_list(call: Call) -> None:
    request = call.decode(m.ListOffsetsRequest)
    answer(call, _list(call, request))


def _list(call: Call, request: m.ListOffsetsRequest) -> Steps[m.Message]:
    topics: list[m.ListOffsetsResponseTopic] = []
    for topic in request.topics:
        found: list[m.ListOffsetsResponsePartition] = []
        for each in topic.partitions:
            found.append(_listed(call, topic.name, each, request.isolation_level == 1))
            # A lookup by time reads the log.
            yield _TIME_LOOK_UP_ITEMS if each.timestamp >= 0 else 2
        topics.append(m.ListOffsetsResponseTopic(name=topic.name, partitions=found))
    return m.ListOffsetsResponse(topics=topics)


def _listed(
    call: Call, topic: str, partition: m.ListOffsetsRequestPartition, committed_only: bool
) -> m.ListOffsetsResponsePartition:
    index = partition.partition_index
    try:
        call.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
        replica = call.service.broker.partitions.find(topic, index)
        replica.check_epoch(partition.current_leader_epoch)
        log = replica.log
        limit = log.last_stable_offset if committed_only else log.high_watermark
        time = partition.timestamp
        if time < 0 and call.version < _SINCE.get(time, 1 << 15):
            return m.ListOffsetsResponsePartition(
                partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION
            )
        if replica.is_catching_up and time not in (EARLIEST, EARLIEST_LOCAL):
            code = ErrorCode.OFFSET_NOT_AVAILABLE
            if call.version < _NOT_AVAILABLE_SINCE_VERSION:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return m.ListOffsetsResponsePartition(partition_index=index, error_code=code)
        found: tuple[int, int] | None
        if time == LATEST:
            found = (limit, -1)
        elif time in (EARLIEST, EARLIEST_LOCAL):
            found = (log.log_start_offset, -1)
        elif time in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            found = None
        elif time == MAX_TIMESTAMP:
            latest = log.latest_timestamp()
            found = log.offset_for_time(latest, limit) if latest >= 0 else None
        else:
            found = log.offset_for_time(time, limit)
    except DragomanError as error:
        return m.ListOffsetsResponsePartition(partition_index=index, error_code=wire_code(error))
    offset, timestamp = found if found is not None else (-1, -1)
    # Versions before 4 have no field for the epoch.
    has_epoch = found is not None and call.version >= _EPOCH_SINCE_VERSION
    return m.ListOffsetsResponsePartition(
        partition_index=index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=replica.leader_epoch if has_epoch else -1,
    )


_NO_OFFSET = -1


def handle_delete(call: Call) -> None:
    request = call.decode(m.DeleteRecordsRequest)
    call.reply(
        m.DeleteRecordsResponse(
            topics=[
                m.DeleteRecordsResponseTopic(
                    name=topic.name,
                    partitions=[_delete(call, topic.name, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )
    )


def _delete(
    call: Call, topic: str, requested: m.DeleteRecordsRequestPartition
) -> m.DeleteRecordsResponsePartition:
    index = requested.partition_index
    try:
        call.authorize(Operation.DELETE, Resource.TOPIC, topic)
        replica = call.service.broker.partitions.find(topic, index)
        if replica.metadata.topic.is_internal:
            raise InvalidTopicName(f"records of {topic} are the broker's own")
        low_watermark = replica.delete_below(requested.offset)
        detail = f"partition {index}: records before {low_watermark}"
        note(call.service.broker.audit, "topic.truncate", call.actor, f"topic:{topic}", detail)
    except DragomanError as error:
        return m.DeleteRecordsResponsePartition(
            partition_index=index, low_watermark=_NO_OFFSET, error_code=wire_code(error)
        )
    return m.DeleteRecordsResponsePartition(partition_index=index, low_watermark=low_watermark)


def handle_leader_epochs(call: Call) -> None:
    request = call.decode(m.OffsetForLeaderEpochRequest)
    answer(call, _epoch_ends(call, request))


def _epoch_ends(call: Call, request: m.OffsetForLeaderEpochRequest) -> Steps[m.Message]:
    topics: list[m.OffsetForLeaderEpochResponseTopic] = []
    for topic in request.topics:
        found: list[m.OffsetForLeaderEpochResponsePartition] = []
        for each in topic.partitions:
            found.append(_epoch_end(call, topic.topic, each))
            yield 2
        topics.append(m.OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=found))
    return m.OffsetForLeaderEpochResponse(topics=topics)


def _epoch_end(
    call: Call, topic: str, requested: m.OffsetForLeaderEpochRequestPartition
) -> m.OffsetForLeaderEpochResponsePartition:
    try:
        call.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
        replica = call.service.broker.partitions.find(topic, requested.partition)
        replica.check_epoch(requested.current_leader_epoch)
        found = replica.end_of_epoch(requested.leader_epoch)
    except DragomanError as error:
        return m.OffsetForLeaderEpochResponsePartition(
            partition=requested.partition, error_code=wire_code(error)
        )
    epoch, end_offset = found if found is not None else (-1, -1)
    return m.OffsetForLeaderEpochResponsePartition(
        partition=requested.partition, leader_epoch=epoch, end_offset=end_offset
    )
