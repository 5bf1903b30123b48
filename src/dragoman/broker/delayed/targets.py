"""The targets of delayed records: checks, leaders, and appends."""

from __future__ import annotations

from functools import partial

from dragoman.broker.accumulator import refusal, room_in_a_batch, size_of
from dragoman.broker.context import NodeContext
from dragoman.broker.delayed.state import Target
from dragoman.broker.directory import NO_NODE
from dragoman.broker.errors import InvalidRecord, NotAuthorized, UnknownTopic
from dragoman.broker.partitions import Partitions
from dragoman.broker.produce import append_fitted, as_configured, check_led, check_produced
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.limits import DELAYED_LABELS_BYTES_MAX, GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record
from dragoman.outcome import acknowledged
from dragoman.rpc import Call, Done, Leader, Registry, Request, Rpc


class DeliverDelayed(Request[Done], frozen=True, kw_only=True, tag="DeliverDeferred"):
    """The body is a batch for a partition that the node leads, under the decided producer id and
    sequence. Answered when it is committed, even if it was before.
    """

    partition_id: int


class Targets:
    """The targets by partition id. Also a port of `Delivery`, which describes its methods."""

    def __init__(self, context: NodeContext, partitions: Partitions, rpc: Rpc) -> None:
        self._context = context
        self._partitions = partitions
        self._rpc = rpc

    def serve(self, registry: Registry) -> None:
        registry.serve(DeliverDelayed, self._deliver)

    def check(
        self, target: Target, record: Record, when_ms: int, labels: dict[str, str]
    ) -> PartitionMetadata:
        """The target, if it may get the record. Raises `BrokerError`."""
        topic = self._context.image.topics.get(target.topic)
        if topic is None or not 0 <= target.partition < len(topic.partitions):
            raise UnknownTopic(f"there is no partition {target.name}")
        if topic.is_internal:
            raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
        config = self._context.config_of(topic)
        error = refusal(config, target.name, record, size_of(record))
        if error is not None:
            raise error
        if not 0 <= when_ms < 1 << 63:
            raise InvalidRecord(f"a record cannot be due at {when_ms}")
        size = sum(len(each.encode()) for pair in labels.items() for each in pair)
        if size > DELAYED_LABELS_BYTES_MAX:
            raise InvalidRecord(f"labels of {size} bytes; at most {DELAYED_LABELS_BYTES_MAX}")
        return topic.partitions[target.partition]

    def room_for(self, target_id: int) -> int:
        metadata = self._context.image.partitions.get(target_id)
        if metadata is None:
            return GATHERED_BATCH_BYTES_MAX
        return room_in_a_batch(self._context.config_of(metadata.topic))

    def is_deleted(self, target_id: int) -> bool:
        """Ids rise, so an unknown higher one belongs to a topic that this node does not know
        yet.
        """
        image = self._context.image
        return target_id not in image.partitions and target_id < image.next_partition_id

    def leader_of(self, target_id: int) -> int:
        metadata = self._context.image.partitions.get(target_id)
        return NO_NODE if metadata is None else metadata.leader

    async def deliver(self, target_id: int, batch: bytearray) -> None:
        request = DeliverDelayed(partition_id=target_id)
        await self._rpc.call(request, Leader(target_id), (batch,))

    async def _deliver(self, call: Call[DeliverDelayed]) -> Done:
        target_id = call.request.partition_id
        metadata = self._context.image.partitions.get(target_id)
        if metadata is None:
            raise UnknownTopic(f"there is no partition {target_id}")
        replica = self._partitions.replica(metadata)
        check_led(replica)
        replica.check_in_sync()
        # The log keeps the buffer, and writes offsets into it.
        batch = memoryview(bytearray(call.body))
        # Without the topic's rules, which may have become stricter since the record was accepted.
        now_ms = self._context.clock.wall_ms()
        fitted = as_configured(replica, batch, check_produced(batch), now_ms)
        appended = append_fitted(replica, *fitted)
        await acknowledged(partial(replica.when_committed, appended.next_offset))
        return Done()
