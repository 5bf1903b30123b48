"""The publisher in the broker: its internal topic, the requests to leaders, and timers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from dragoman.broker.context import NodeContext
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    InvalidPublication,
    NotCoordinator,
    RequestTimedOut,
    UnknownTopic,
)
from dragoman.broker.internal_topic import InternalTopic, Keeper, KeyValue
from dragoman.broker.partitions import Partitions
from dragoman.broker.staged_writes import records
from dragoman.broker.staged_writes.destinations import (
    CheckPieces,
    CopyPieces,
    Destinations,
    NextSequence,
)
from dragoman.broker.staged_writes.publication import (
    Destination,
    Piece,
    Publication,
    Target,
    Writer,
)
from dragoman.broker.staged_writes.publisher import Publisher
from dragoman.broker.staged_writes.staging_topic import StagingTopic
from dragoman.broker.topics import Topics
from dragoman.broker.transactions import ProducerIds
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.limits import (
    PUBLICATION_RETRY_INTERVAL_S,
    STAGING_SWEEP_INTERVAL_S,
    WRITER_EXPIRY_INTERVAL_S,
)
from dragoman.outcome import acknowledged, gather, start
from dragoman.rpc import Answer, Call, Coordinator, Leader, Node, Registry, Request, Rpc
from dragoman.world import Handle

log = logging.getLogger("dragoman.staged_writes")


class Published(Answer, frozen=True, kw_only=True, tag="Published"):
    was_before: bool


class Publish(Request[Published], frozen=True, kw_only=True, tag="Publish"):
    """A client's request to the node that coordinates the writer."""

    publication: Publication


class StagedWrites:
    """Staged writes of a node, and the ports of the publisher, which describes their methods."""

    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        producer_ids: ProducerIds,
        rpc: Rpc,
    ) -> None:
        self._context = context
        self._producer_ids = producer_ids
        self._rpc = rpc
        settings = context.settings
        #: The writers. The leader of a writer's partition coordinates it.
        self.log = InternalTopic(
            context,
            partitions,
            topics,
            records.TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self.staging_topic = StagingTopic(context, partitions, topics, producer_ids, rpc)
        self._destinations = Destinations(context, partitions, rpc)
        self.publisher = Publisher(context.clock, self, self.log.partition_of)
        self._timers: dict[str, Handle] = {}

    def serve(self, registry: Registry) -> None:
        registry.serve(Publish, self._publish)
        self._destinations.serve(registry)
        self.staging_topic.serve(registry)

    # ---- life

    def start(self) -> None:
        """From now on the writers of led partitions are served."""
        self._every(STAGING_SWEEP_INTERVAL_S, self.staging_topic.sweep)
        self._every(PUBLICATION_RETRY_INTERVAL_S, self.publisher.retry_stalled)
        self._every(WRITER_EXPIRY_INTERVAL_S, self.publisher.expire_idle)

    def _load(self, key: bytes, value: bytes | None) -> None:
        self.publisher.load(key, value)

    def _resume(self, index: int) -> None:
        resumed = self.publisher.resume(index)
        if resumed:
            log.info("publishing %d batches that were decided before", resumed)

    def _unload(self, index: int, error: NotCoordinator) -> None:
        self.publisher.unload(index, error)

    def is_publishing_to(self, partition_id: int) -> bool:
        """Whether a decided batch is, or may be, in flight to the partition."""
        return bool(self.log.loading) or self.publisher.is_publishing_to(partition_id)

    def _every(self, interval_s: float, action: Callable[[], object]) -> None:
        def due() -> None:
            try:
                action()
            except DragomanError as error:
                log.warning("publishing: %s; tried again", error)
            arm()

        def arm() -> None:
            later = self._context.scheduler.call_later
            self._timers[action.__qualname__] = later(interval_s, due)

        arm()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.log.close()
        self.publisher.close()

    # ---- requests

    async def publish(self, publication: Publication) -> bool:
        """Have the coordinator of the writer publish the batch. Returns whether it had been
        published before.
        """
        at = Coordinator(records.TOPIC, publication.writer_id)
        try:
            published = await self._rpc.call(Publish(publication=publication), at)
        except NotSentError as error:
            raise CoordinatorNotAvailable(str(error)) from None
        except ClusterError as error:
            raise RequestTimedOut(f"{error}; it may still be published") from None
        return published.was_before

    async def _publish(self, call: Call[Publish]) -> Published:
        return Published(was_before=await self.publisher.publish(call.request.publication))

    # ---- ports

    def require(self, writer_id: str) -> None:
        self.log.require(writer_id)

    async def persist(self, writer_id: str, record: KeyValue) -> None:
        index = self.log.partition_of(writer_id)
        await acknowledged(partial(self.log.append, index, [record]))

    async def new_producer_id(self) -> int:
        return await self._producer_ids.next()

    async def check(self, destinations: Sequence[Destination]) -> None:
        """Each piece is checked on the leader that it would be copied to."""
        await gather([start(self._check(each)) for each in destinations])

    async def _check(self, destination: Destination) -> None:
        partition = self._partition(destination)
        if partition is None:
            where = f"partition {destination.partition} of topic {destination.topic!r}"
            raise UnknownTopic(f"there is no {where}")
        request = CheckPieces(destination=destination)
        await self._rpc.call(request, Leader(partition.partition_id))

    async def decide_targets(
        self, destinations: Sequence[Destination], producer_id: int
    ) -> tuple[Target, ...]:
        """The partitions' own state decides about sequences, because it alone reflects the log.

        Nothing of this writer is in flight, so a partition that does not know the producer has none
        of its records, or has expired its state; the next sequence is 0 in both cases.
        """
        found: dict[int, tuple[PartitionMetadata, Destination]] = {}
        for each in destinations:
            partition = self._partition(each)
            if partition is None or partition.partition_id in found:
                where = f"{each.topic}-{each.partition}"
                raise InvalidPublication(f"{where} is named twice, or is gone")
            if each.pieces:
                found[partition.partition_id] = (partition, each)
        sequences = await gather(
            [start(self._next_sequence(each, producer_id)) for each, _ in found.values()]
        )
        return tuple(
            Target(partition_id, sequence, destination.pieces)
            for (partition_id, (_, destination)), sequence in zip(
                found.items(), sequences, strict=True
            )
        )

    async def _next_sequence(self, partition: PartitionMetadata, producer_id: int) -> int:
        request = NextSequence(
            topic=partition.topic.name, partition=partition.index, producer_id=producer_id
        )
        return (await self._rpc.call(request, Leader(partition.partition_id))).number

    async def copy(self, writer: Writer) -> None:
        await gather([start(self._copy(each, writer.producer_id)) for each in writer.targets])

    async def _copy(self, target: Target, producer_id: int) -> None:
        # This node itself handles a deleted topic.
        is_known = target.partition_id in self._context.image.partitions
        at = Leader(target.partition_id) if is_known else Node(self._context.node_id)
        await self._rpc.call(CopyPieces(target=target, producer_id=producer_id), at)

    def _partition(self, destination: Destination) -> PartitionMetadata | None:
        topic = self._context.image.topics.get(destination.topic)
        if topic is None or not 0 <= destination.partition < len(topic.partitions):
            return None
        return topic.partitions[destination.partition]

    def hold(self, writer_id: str, pieces: Sequence[Piece]) -> None:
        self.staging_topic.hold(writer_id, pieces)

    def let_go(self, writer_id: str, unneeded: Sequence[Piece]) -> None:
        self.staging_topic.let_go(writer_id)
        self.staging_topic.release(unneeded)
