"""The partitions that deferred records go to: what they take, who leads them, and the way there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dragoman.broker.errors import InvalidRecord, NotAuthorized, NotLeader, UnknownTopic
from dragoman.broker.gather import refusal, room_in_a_batch, size_of
from dragoman.broker.neighbours import DeferRecord, DeliverDeferred, told
from dragoman.broker.placement import NOBODY
from dragoman.broker.produce import append_fitted, as_configured, check_led, check_produced
from dragoman.broker.replica import Acknowledge
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import DEFERRED_LABELS_BYTES_MAX, GATHERED_BATCH_BYTES_MAX
from dragoman.log.batch import Record

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker


def name_of(request: DeferRecord) -> str:
    """All records for one partition wait in one place, where they keep their order."""
    return f"{request.topic}-{request.partition}"


class Targets:
    """By partition id. Also a port of `Delivery`; its meaning is described there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def check(self, request: DeferRecord, record: Record) -> PartitionMetadata:
        """The target, if it may get the record. Raises `BrokerError`."""
        name = name_of(request)
        topic = self._broker.image.topics.get(request.topic)
        if topic is None or not 0 <= request.partition < len(topic.partitions):
            raise UnknownTopic(f"there is no partition {name}")
        if topic.is_internal:
            raise NotAuthorized(f"topic {topic.name!r} is written by the broker only")
        config = self._broker.topics.config_of(topic)
        error = refusal(config, name, record, size_of(record))
        if error is not None:
            raise error
        if not 0 <= request.when_ms < 1 << 63:
            raise InvalidRecord(f"a record cannot be due at {request.when_ms}")
        size = sum(len(each.encode()) for pair in request.labels.items() for each in pair)
        if size > DEFERRED_LABELS_BYTES_MAX:
            raise InvalidRecord(f"labels of {size} bytes; at most {DEFERRED_LABELS_BYTES_MAX}")
        return topic.partitions[request.partition]

    def room_for(self, target_id: int) -> int:
        metadata = self._broker.image.partitions.get(target_id)
        if metadata is None:
            return GATHERED_BATCH_BYTES_MAX
        return room_in_a_batch(self._broker.topics.config_of(metadata.topic))

    def is_deleted(self, target_id: int) -> bool:
        """Ids rise: one that is not known yet is that of a topic of which this node will hear."""
        image = self._broker.image
        return target_id not in image.partitions and target_id < image.next_partition_id

    def leader_of(self, target_id: int) -> int:
        metadata = self._broker.image.partitions.get(target_id)
        return NOBODY if metadata is None else metadata.leader

    def deliver(self, target_id: int, batch: bytearray, done: Acknowledge) -> None:
        broker, leader = self._broker, self.leader_of(target_id)
        if leader == NOBODY:
            done(NotLeader(f"nobody leads partition {target_id}"))
        elif leader != broker.node_id:
            request = DeliverDeferred(partition_id=target_id)
            broker.neighbours.ask(leader, request, (batch,), partial(told, done))
        else:
            try:
                self.deliver_here(target_id, batch, done)
            except DragomanError as error:
                done(error)

    def deliver_here(self, target_id: int, batch: bytearray, done: Acknowledge) -> None:
        """Append a batch that was decided on, unless it is there. Raises `DragomanError`."""
        broker = self._broker
        metadata = broker.image.partitions.get(target_id)
        if metadata is None:
            raise UnknownTopic(f"there is no partition {target_id}")
        replica = broker.replica(metadata)
        check_led(replica)
        replica.check_in_sync()
        view = memoryview(batch)
        # Not the topic's rules, which may have become stricter since the record was taken.
        fitted = as_configured(replica, view, check_produced(view), broker.clock.wall_ms())
        appended = append_fitted(replica, *fitted)
        replica.when_committed(appended.next_offset, done)
