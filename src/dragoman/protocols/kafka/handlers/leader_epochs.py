"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leadership's records end.

Consumers ask after a change of leader whether what they have read is still part of the log.
"""

from __future__ import annotations

from dragoman.broker.work_queue import Steps
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.protocols.kafka.handlers.slices import answer
from dragoman.security.authorizer import Operation, Resource


def handle(call: Call) -> None:
    request = call.decode(m.OffsetForLeaderEpochRequest)
    answer(call, _find_all(call, request))


def _find_all(call: Call, request: m.OffsetForLeaderEpochRequest) -> Steps[m.Message]:
    topics: list[m.OffsetForLeaderEpochResponseTopic] = []
    for topic in request.topics:
        found: list[m.OffsetForLeaderEpochResponsePartition] = []
        for each in topic.partitions:
            found.append(_look_up(call, topic.topic, each))
            yield 2
        topics.append(m.OffsetForLeaderEpochResponseTopic(topic=topic.topic, partitions=found))
    return m.OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    call: Call, topic: str, asked: m.OffsetForLeaderEpochRequestPartition
) -> m.OffsetForLeaderEpochResponsePartition:
    try:
        call.session.authorize(Operation.DESCRIBE, Resource.TOPIC, topic)
        replica = call.service.broker.partitions.find(topic, asked.partition)
        replica.check_epoch(asked.current_leader_epoch)
        found = replica.end_of_epoch(asked.leader_epoch)
    except DragomanError as error:
        return m.OffsetForLeaderEpochResponsePartition(
            partition=asked.partition, error_code=wire_code(error)
        )
    epoch, end_offset = found if found is not None else (-1, -1)
    return m.OffsetForLeaderEpochResponsePartition(
        partition=asked.partition, leader_epoch=epoch, end_offset=end_offset
    )
