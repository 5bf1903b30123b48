"""Produce: whole batches to the leader of a partition, and identities for idempotent producers.

A batch with a producer id and a sequence number can always be retried: the broker recognises it and
answers with its base offset. A batch without them is retried only when the broker has certainly not
written it. Otherwise the caller gets the error, because only the caller can choose between losing
the batch and duplicating it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dragoman.client_core.errors import ClientError
from dragoman.log.batch import NO_PRODUCER, read_header
from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.cluster import Cluster, Part
from dragoman.protocols.kafka.client.errors import KafkaError, RecordRefusedError, kafka_error
from dragoman.protocols.kafka.client.values import (
    NO_OFFSET,
    Acks,
    Produced,
    ProducerIdentity,
    TopicPartition,
)
from dragoman.protocols.kafka.errors import ErrorCode, error_text
from dragoman.types import Buffer

_NOTHING_KNOWN = Produced(NO_OFFSET, -1, NO_OFFSET)


class ProduceOptions(msgspec.Struct, frozen=True, kw_only=True):
    acks: Acks = -1
    #: How long the leader may wait for other replicas.
    timeout_ms: int = 30_000
    transactional_id: str | None = None
    #: Whether the broker may create a topic that does not exist.
    auto_create: bool = True


async def produce(
    cluster: Cluster,
    where: TopicPartition,
    batch: Buffer,
    options: ProduceOptions,
    since: float | None = None,
) -> Produced:
    """`since` is when the time for it began to count, by the loop's clock."""
    is_repeatable = read_header(batch).producer_id != NO_PRODUCER

    def may_retry(error: ClientError) -> bool:
        # The same bytes would be refused again.
        if isinstance(error, RecordRefusedError):
            return False
        return error.retriable and (is_repeatable or not error.is_ambiguous)

    async def attempt() -> Produced:
        located = await cluster.leader(where, auto_create=options.auto_create)
        parts = {where: Part(batch, located.topic_id, located.leader_epoch)}
        reply = await located.broker.send(
            m.ProduceResponse,
            produce_request(parts, options),
            wait_s=options.timeout_ms / 1000,
            with_topic_ids=located.topic_id != m.NO_ID,
        )
        return _NOTHING_KNOWN if reply is None else _read(where, reply)

    return await cluster.retry.call(attempt, may_retry=may_retry, since=since)


def produce_request(
    parts: Mapping[TopicPartition, Part[Buffer]], options: ProduceOptions
) -> m.ProduceRequest:
    topics: dict[str, m.ProduceRequestTopic] = {}
    for (name, partition), part in parts.items():
        topic = topics.get(name)
        if topic is None:
            topic = m.ProduceRequestTopic(name=name, topic_id=part.topic_id, partition_data=[])
            topics[name] = topic
        topic.partition_data.append(m.ProduceRequestPartition(index=partition, records=part.wanted))
    return m.ProduceRequest(
        transactional_id=options.transactional_id,
        acks=options.acks,
        timeout_ms=options.timeout_ms,
        topic_data=list(topics.values()),
    )


def _read(where: TopicPartition, reply: m.ProduceResponse) -> Produced:
    if not reply.responses or not reply.responses[0].partition_responses:
        raise unanswered(where)
    outcome = read_outcome(where, reply.responses[0].partition_responses[0])
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


def unanswered(where: TopicPartition) -> KafkaError:
    return kafka_error(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        "the reply says nothing about the partition",
        topic=where.topic,
        partition=where.partition,
    )


def read_outcome(where: TopicPartition, each: m.ProduceResponsePartition) -> Produced | KafkaError:
    if each.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        # A duplicate whose offset the broker no longer remembers.
        return _NOTHING_KNOWN
    if each.error_code:
        return kafka_error(
            each.error_code, _reason(each), topic=where.topic, partition=where.partition
        )
    return Produced(each.base_offset, each.log_append_time_ms, each.log_start_offset)


def _reason(each: m.ProduceResponsePartition) -> str | None:
    """The broker's error text, including the texts for single records."""
    parts = [each.error_message or error_text(each.error_code)]
    parts += (
        f"record {record.batch_index}: {record.batch_index_error_message or 'refused'}"
        for record in each.record_errors[:3]
    )
    return "; ".join(part.rstrip(".") for part in parts)


async def new_producer_identity(cluster: Cluster) -> ProducerIdentity:
    """A new producer id, from any broker."""

    async def attempt() -> ProducerIdentity:
        broker = await cluster.controller()
        reply = await broker.ask(
            m.InitProducerIdResponse,
            # The timeout has no effect without a transactional id, but brokers check its range.
            m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        )
        if reply.error_code:
            raise kafka_error(reply.error_code)
        return ProducerIdentity(reply.producer_id, reply.producer_epoch)

    return await cluster.retry.call(attempt)
