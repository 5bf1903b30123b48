"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leadership's records end.

Consumers ask after a change of leader whether what they have read is still part of the log.
"""

from __future__ import annotations

from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.access import authorize
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource


def handle(call: Call) -> None:
    request = call.decode(m.OffsetForLeaderEpochRequest)
    call.reply(
        m.OffsetForLeaderEpochResponse(
            topics=[
                m.OffsetForLeaderEpochResponseTopic(
                    topic=topic.topic,
                    partitions=[_look_up(call, topic.topic, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )
    )


def _look_up(
    call: Call, topic: str, asked: m.OffsetForLeaderEpochRequestPartition
) -> m.OffsetForLeaderEpochResponsePartition:
    try:
        authorize(call, Operation.DESCRIBE, Resource.TOPIC, topic)
        replica = call.service.broker.find(topic, asked.partition)
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
