"""ListOffsets: offsets by age, and where a partition begins and ends."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Calls
from dragoman.protocols.kafka.client.errors import KafkaError, UnsupportedRequestError, kafka_error
from dragoman.protocols.kafka.client.leaders import Part, from_leaders
from dragoman.protocols.kafka.client.values import (
    MAX_TIMESTAMP,
    Isolation,
    OffsetAt,
    TopicPartition,
)

_FIRST_VERSION_WITH_MAX_TIMESTAMP = 7
_FIRST_VERSION_WITH_ISOLATION = 2
_FIRST_VERSION_WITH_TIMEOUT = 10
_CONSUMER = -1


class OffsetCalls(Calls):
    """Calls about the offsets of partitions."""

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after a time in ms; or `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`.

        `LATEST` is the last stable offset for a reader of committed records, else the high
        watermark: the offset of the next record in either case.
        """
        timeout_s = self._cluster.settings.request_timeout_s

        async def ask(
            broker: Broker, parts: Mapping[TopicPartition, Part[int]]
        ) -> Mapping[TopicPartition, OffsetAt | KafkaError]:
            reply = await broker.ask(
                m.ListOffsetsResponse,
                lambda version: _request(parts, isolation, version, timeout_s),
            )
            return _read(reply, parts)

        return await from_leaders(self._cluster, partitions, ask)


def _request(
    parts: Mapping[TopicPartition, Part[int]],
    isolation: Isolation,
    version: int,
    timeout_s: float,
) -> m.ListOffsetsRequest:
    topics: dict[str, m.ListOffsetsRequestTopic] = {}
    for (name, partition), part in parts.items():
        if part.wanted == MAX_TIMESTAMP and version < _FIRST_VERSION_WITH_MAX_TIMESTAMP:
            raise UnsupportedRequestError("the broker cannot look up the newest timestamp")
        topic = topics.setdefault(name, m.ListOffsetsRequestTopic(name=name, partitions=[]))
        topic.partitions.append(
            m.ListOffsetsRequestPartition(
                partition_index=partition,
                current_leader_epoch=part.leader_epoch,
                timestamp=part.wanted,
            )
        )
    return m.ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation if version >= _FIRST_VERSION_WITH_ISOLATION else 0,
        topics=list(topics.values()),
        timeout_ms=int(timeout_s * 1000) if version >= _FIRST_VERSION_WITH_TIMEOUT else 0,
    )


def _read(
    reply: m.ListOffsetsResponse, parts: Mapping[TopicPartition, Part[int]]
) -> dict[TopicPartition, OffsetAt | KafkaError]:
    results: dict[TopicPartition, OffsetAt | KafkaError] = {
        where: kafka_error(-1, "the reply leaves it out", topic=where.topic, retriable=True)
        for where in parts
    }
    for topic in reply.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                results[where] = kafka_error(
                    each.error_code, topic=topic.name, partition=each.partition_index
                )
            else:
                results[where] = OffsetAt(each.offset, each.timestamp, each.leader_epoch)
    return results
