"""DeleteRecords (21), versions 0 to 2: what is below an offset goes; -1 is the high watermark."""

from __future__ import annotations

from dragoman.broker.errors import InvalidTopicName
from dragoman.errors import DragomanError
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.handlers.refusals import wire_code
from dragoman.protocols.kafka.handlers.session import Call
from dragoman.security.authorizer import Operation, Resource

_NO_OFFSET = -1


def handle(call: Call) -> None:
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
    call: Call, topic: str, asked: m.DeleteRecordsRequestPartition
) -> m.DeleteRecordsResponsePartition:
    index = asked.partition_index
    try:
        call.session.authorize(Operation.DELETE, Resource.TOPIC, topic)
        replica = call.service.broker.partitions.find(topic, index)
        if replica.metadata.topic.is_internal:
            raise InvalidTopicName(f"records of {topic} are the broker's own")
        low_watermark = replica.delete_below(asked.offset)
    except DragomanError as error:
        return m.DeleteRecordsResponsePartition(
            partition_index=index, low_watermark=_NO_OFFSET, error_code=wire_code(error)
        )
    return m.DeleteRecordsResponsePartition(partition_index=index, low_watermark=low_watermark)
