"""Staging and publishing: records become readable atomically, and exactly once.

Each task attempt of a writer opens its own staging place, produces whole batches there with the
place's producer id, and records their offsets. `publish_staged` then names the pieces that make up
the writer's batch, without those of failed attempts. Only Dragoman serves these requests; with
another broker the calls raise `UnsupportedRequestError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dragoman.protocols.kafka import messages as m
from dragoman.protocols.kafka.client.cluster import Calls
from dragoman.protocols.kafka.client.errors import kafka_error
from dragoman.protocols.kafka.client.values import ProducerIdentity, TopicPartition


class StagingPlace(msgspec.Struct, frozen=True):
    """A staging place for the batches of one attempt. They carry `identity` and sequence numbers
    from 0.
    """

    partition: TopicPartition
    identity: ProducerIdentity


class StagedPiece(msgspec.Struct, frozen=True):
    """Consecutive batches in a staging partition, from `first_offset` up to `next_offset`.

    `checksum` is the CRC-32C over the CRC fields (bytes 17 to 21) of the batches, in order.
    """

    partition: int
    first_offset: int
    next_offset: int
    record_count: int
    checksum: int


class StagedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a writer: the pieces for each partition, in order.

    `writer_id` identifies the writer, and `query_id` the query that numbers its batches. Batch ids
    increase; an id that is not above the last one is treated as a retry. `is_single`: the writer
    has no other batch.
    """

    writer_id: str
    query_id: str
    batch_id: int
    is_single: bool = False
    pieces: Mapping[TopicPartition, Sequence[StagedPiece]]


class StagingCalls(Calls):
    async def open_staging(self, writer_id: str) -> StagingPlace:
        """Open a staging place for one attempt of a writer."""

        async def attempt() -> StagingPlace:
            broker = await self._cluster.controller()
            reply = await broker.ask(
                m.OpenStagingResponse, m.OpenStagingRequest(writer_id=writer_id)
            )
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message)
            return StagingPlace(
                TopicPartition(reply.topic, reply.partition),
                ProducerIdentity(reply.producer_id, reply.producer_epoch),
            )

        return await self._cluster.retry.call(attempt)

    async def publish_staged(self, batch: StagedBatch) -> bool:
        """Publish a batch. Does nothing and returns true if it was published before.

        Retried until the operation times out, which is safe. Raises `OffsetRangeError` when the
        staged records are gone: the batch must be staged again.
        """
        request = _request(batch)

        async def attempt() -> bool:
            broker = await self._cluster.controller()
            wait_s = self._cluster.settings.operation_timeout_s
            reply = await broker.ask(m.PublishStagedResponse, request, wait_s=wait_s)
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message)
            return reply.was_published_before

        return await self._cluster.retry.call(attempt)


def _request(batch: StagedBatch) -> m.PublishStagedRequest:
    topics: dict[str, list[m.PublishStagedRequestPartition]] = {}
    for where, pieces in batch.pieces.items():
        partition = m.PublishStagedRequestPartition(
            index=where.partition,
            pieces=[
                m.PublishStagedRequestPiece(
                    staging_partition=piece.partition,
                    first_offset=piece.first_offset,
                    next_offset=piece.next_offset,
                    record_count=piece.record_count,
                    checksum=piece.checksum,
                )
                for piece in pieces
            ],
        )
        topics.setdefault(where.topic, []).append(partition)
    return m.PublishStagedRequest(
        writer_id=batch.writer_id,
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        is_single=batch.is_single,
        topics=[
            m.PublishStagedRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
