"""Whole batches from the leaders of partitions (Fetch), and offsets by time (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.limits import BATCH_HEADER_BYTES, KAFKA_CLIENT_FETCH_BYTES
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Calls, Cluster, Part, from_leaders
from dragoman.protocols.kafka.client.errors import KafkaError, UnsupportedRequestError, kafka_error
from dragoman.protocols.kafka.client.values import (
    MAX_TIMESTAMP,
    AbortedTransaction,
    Fetched,
    FetchFrom,
    Isolation,
    OffsetAt,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode

#: Advice when the broker cannot read records.
_DAMAGED = (
    "the broker's disk is damaged at the next record; `dragoman cluster status` lists the damaged "
    "offsets: continue reading after them, or stop the node and run `dragoman log repair`"
)


class FetchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`max_wait_ms` is how long a broker waits for `min_bytes`; `max_bytes` is per broker."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = KAFKA_CLIENT_FETCH_BYTES
    isolation: Isolation = Isolation.READ_COMMITTED


async def fetch(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, FetchFrom],
    options: FetchOptions,
) -> dict[TopicPartition, Fetched]:
    async def ask(
        broker: Broker, parts: Mapping[TopicPartition, Part[FetchFrom]]
    ) -> Mapping[TopicPartition, Fetched | KafkaError]:
        has_ids = all(part.topic_id != m.NO_ID for part in parts.values())
        reply = await broker.ask(
            m.FetchResponse,
            _request(parts, options),
            lane="fetch",
            wait_s=options.max_wait_ms / 1000,
            with_topic_ids=has_ids,
        )
        return _read(reply, parts)

    return await from_leaders(cluster, wanted, ask)


def _request(
    parts: Mapping[TopicPartition, Part[FetchFrom]], options: FetchOptions
) -> m.FetchRequest:
    topics: dict[str, m.FetchRequestTopic] = {}
    for (name, partition), part in parts.items():
        topic = topics.get(name)
        if topic is None:
            topic = m.FetchRequestTopic(topic=name, topic_id=part.topic_id, partitions=[])
            topics[name] = topic
        topic.partitions.append(
            m.FetchRequestPartition(
                partition=partition,
                current_leader_epoch=part.leader_epoch,
                fetch_offset=part.wanted.offset,
                partition_max_bytes=part.wanted.max_bytes,
            )
        )
    return m.FetchRequest(
        max_wait_ms=options.max_wait_ms,
        min_bytes=options.min_bytes,
        max_bytes=options.max_bytes,
        isolation_level=options.isolation,
        topics=list(topics.values()),
    )


def _read(
    reply: m.FetchResponse, parts: Mapping[TopicPartition, Part[FetchFrom]]
) -> dict[TopicPartition, Fetched | KafkaError]:
    if reply.error_code:
        raise kafka_error(reply.error_code)
    names = {part.topic_id: where.topic for where, part in parts.items()}
    results: dict[TopicPartition, Fetched | KafkaError] = {}
    for topic in reply.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for each in topic.partitions:
            where = TopicPartition(name, each.partition_index)
            if where in parts:
                results[where] = _result(where, each)
    for where in parts.keys() - results.keys():
        # A broker may leave out partitions for which its reply has no room.
        code = ErrorCode.LEADER_NOT_AVAILABLE
        results[where] = kafka_error(code, topic=where.topic, partition=where.partition)
    return results


def _result(where: TopicPartition, each: m.FetchResponsePartition) -> Fetched | KafkaError:
    if each.error_code == ErrorCode.CORRUPT_MESSAGE:
        # The broker's disk is damaged: a retry finds the same damage.
        return kafka_error(
            each.error_code, _DAMAGED, topic=where.topic, partition=where.partition, retriable=False
        )
    if each.error_code:
        return kafka_error(each.error_code, topic=where.topic, partition=where.partition)
    # Tuples of buffers occur only in replies to encode.
    assert not isinstance(each.records, tuple)
    records = memoryview(each.records if each.records is not None else b"")
    aborted = each.aborted_transactions or []
    return Fetched(
        records=records[: whole_batches_size(records)],
        high_watermark=each.high_watermark,
        last_stable_offset=each.last_stable_offset,
        log_start_offset=each.log_start_offset,
        aborted=tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in aborted),
    )


def whole_batches_size(records: memoryview) -> int:
    """Size of the complete batches; a broker may truncate the last one."""
    position, available = 0, len(records)
    while available - position >= BATCH_HEADER_BYTES:
        _, length, _ = WALK.unpack_from(records, position)
        end = position + LENGTH_PREFIX_BYTES + length
        # An impossible length is kept, so that the batch decoder reports it.
        if length < 0 or end > available:
            return position if length >= 0 else available
        position = end
    return position


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

        `LATEST` is the offset of the next record: the last stable offset for a read-committed
        reader, else the high watermark.
        """
        timeout_s = self._cluster.settings.request_timeout_s

        async def ask(
            broker: Broker, parts: Mapping[TopicPartition, Part[int]]
        ) -> Mapping[TopicPartition, OffsetAt | KafkaError]:
            reply = await broker.ask(
                m.ListOffsetsResponse,
                lambda version: _offsets_request(parts, isolation, version, timeout_s),
            )
            return _offsets_of(reply, parts)

        return await from_leaders(self._cluster, partitions, ask)


def _offsets_request(
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


def _offsets_of(
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
