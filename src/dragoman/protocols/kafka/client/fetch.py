"""Fetch: whole batches from the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.limits import BATCH_HEADER_BYTES, KAFKA_CLIENT_FETCH_BYTES
from dragoman.log.batch import LENGTH_PREFIX_BYTES, WALK
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.broker import Broker
from dragoman.protocols.kafka.client.cluster import Cluster
from dragoman.protocols.kafka.client.errors import KafkaError, kafka_error
from dragoman.protocols.kafka.client.leaders import Part, from_leaders
from dragoman.protocols.kafka.client.values import (
    AbortedTransaction,
    Fetched,
    FetchFrom,
    Isolation,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode

#: What a reader can do about records that the broker cannot read.
_DAMAGED = (
    "the broker's disk is damaged where the next record lies; `dragoman cluster status` names the "
    "offsets: read on behind them, or stop the node and run `dragoman log repair`"
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
        # A broker that has no room left in its reply may leave partitions out.
        code = ErrorCode.LEADER_NOT_AVAILABLE
        results[where] = kafka_error(code, topic=where.topic, partition=where.partition)
    return results


def _result(where: TopicPartition, each: m.FetchResponsePartition) -> Fetched | KafkaError:
    if each.error_code == ErrorCode.CORRUPT_MESSAGE:
        # The broker's disk is damaged: another try finds the same.
        return kafka_error(
            each.error_code, _DAMAGED, topic=where.topic, partition=where.partition, retriable=False
        )
    if each.error_code:
        return kafka_error(each.error_code, topic=where.topic, partition=where.partition)
    # Tuples of buffers occur in replies to be encoded only.
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
    """Bytes of the batches that are there to their end; a broker may cut off the last one."""
    position, available = 0, len(records)
    while available - position >= BATCH_HEADER_BYTES:
        _, length, _ = WALK.unpack_from(records, position)
        end = position + LENGTH_PREFIX_BYTES + length
        # A length that makes no sense stays in: the decoder of the batch reports it.
        if length < 0 or end > available:
            return position if length >= 0 else available
        position = end
    return position
