"""What the driver does with staged records: it publishes them with one call.

Spark makes a new process for every commit of a micro-batch, which imports this first: so nothing
here needs Arrow or numpy. How it all fits together is told in docs/concepts/exactly-once-writes.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.client.kafka import (
    BlockingKafkaClient,
    ClientSettings,
    StagedBatch,
    StagedPiece,
    TopicPartition,
)
from dragoman.spark.sink_options import SinkOptions


class Staged(msgspec.Struct, frozen=True):
    """What one attempt tells the driver."""

    writer_id: str
    query_id: str
    pieces: dict[TopicPartition, list[StagedPiece]]


def publish(
    client: BlockingKafkaClient, staged: Iterable[Staged], batch_id: int, *, is_single: bool
) -> bool:
    """Publish what these attempts staged, in this order; whether that had been done before."""
    pieces: dict[TopicPartition, list[StagedPiece]] = {}
    owner: Staged | None = None
    for each in staged:
        owner = each
        for where, found in each.pieces.items():
            pieces.setdefault(where, []).extend(found)
    if owner is None or not pieces:
        return False
    return client.publish_staged(
        StagedBatch(
            writer_id=owner.writer_id,
            query_id=owner.query_id,
            batch_id=batch_id,
            is_single=is_single,
            pieces=pieces,
        )
    )


def open_client(options: SinkOptions) -> BlockingKafkaClient:
    """Connected when first used."""
    settings = ClientSettings(
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_s,
        operation_timeout_s=options.delivery_timeout_s,
    )
    return BlockingKafkaClient(options.bootstrap, settings)


class _Shared:
    """The connection of this worker process: it runs the tasks of one query after another."""

    client: BlockingKafkaClient | None = None
    options: SinkOptions | None = None


def shared_client(options: SinkOptions) -> BlockingKafkaClient:
    """The worker's connection to the brokers, kept for its next task."""
    if _Shared.client is None or _Shared.options != options:
        if _Shared.client is not None:
            _Shared.client.close()
        _Shared.client, _Shared.options = open_client(options), options
    return _Shared.client
