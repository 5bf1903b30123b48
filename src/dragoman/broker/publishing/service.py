"""The publisher joined to the broker: its internal topic, staging, the partitions, and timers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    InvalidPublication,
    NotCoordinator,
    NotLeader,
    RequestTimedOut,
)
from dragoman.broker.internal import InternalTopic, Keeper, KeyValue
from dragoman.broker.neighbours import (
    Answer,
    CheckPieces,
    CopyPieces,
    NextSequence,
    Publish,
    Published,
    SequenceNumber,
    told,
)
from dragoman.broker.placement import NOBODY
from dragoman.broker.publications import Destination, Piece, Publication, Target
from dragoman.broker.publishing import records
from dragoman.broker.publishing.copying import check, copy, next_sequence
from dragoman.broker.publishing.publisher import Publisher, ReplyPublished
from dragoman.broker.publishing.staging import Staging
from dragoman.broker.publishing.state import Writer
from dragoman.broker.replica import Acknowledge
from dragoman.broker.steps import AllOf
from dragoman.broker.transactions import ProducerIds
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import ClusterError, DragomanError, NotSentError
from dragoman.limits import (
    PUBLICATION_RETRY_INTERVAL_S,
    STAGING_SWEEP_INTERVAL_S,
    WRITER_EXPIRY_INTERVAL_S,
)
from dragoman.outcome import start
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.publishing")


class Publishing:
    """Also the ports of the publisher; their meaning is described there."""

    def __init__(self, broker: Broker, producer_ids: ProducerIds) -> None:
        self._broker = broker
        self._producer_ids = producer_ids
        self._log = InternalTopic(
            broker.context,
            broker.partitions,
            broker.topics,
            records.TOPIC,
            broker.settings.transaction_state_log_num_partitions,
            broker.settings.transaction_state_log_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self.staging = Staging(broker, producer_ids)
        self.publisher = Publisher(broker.clock, self, self._log.partition_of)
        self._timers: dict[str, Handle] = {}
        #: Who waits for which copy: partition, producer and first sequence.
        self._copying: dict[tuple[int, int, int], list[Acknowledge]] = {}

    # ---- life

    def start(self) -> None:
        """From now on writers are served as their partitions are led."""
        self._every(STAGING_SWEEP_INTERVAL_S, self.staging.sweep)
        self._every(PUBLICATION_RETRY_INTERVAL_S, self.publisher.retry_stalled)
        self._every(WRITER_EXPIRY_INTERVAL_S, self.publisher.expire_idle)

    def topics(self) -> dict[str, int]:
        """Partitions of the internal topic whose leaders decide about publications."""
        return {self._log.name: self._log.partition_count}

    def led(self, topic: str, index: int, leader_epoch: int) -> None:
        """This node leads a partition of an internal topic, ours or not."""
        if topic == self._log.name:
            self._log.lead(index, leader_epoch)

    def resigned(self, topic: str, index: int) -> None:
        if topic == self._log.name:
            self._log.resign(index)

    def _load(self, key: bytes, value: bytes | None) -> None:
        self.publisher.load(key, value)

    def _resume(self, index: int) -> None:
        resumed = self.publisher.resume(index)
        if resumed:
            log.info("publishing %d batches that were decided before", resumed)

    def _unload(self, index: int, error: NotCoordinator) -> None:
        self.publisher.unload(index, error)

    def is_publishing_to(self, partition_id: int) -> bool:
        """Whether a decided batch is, or may be, on its way there."""
        return bool(self._log.loading) or self.publisher.is_publishing_to(partition_id)

    def _every(self, interval_s: float, action: Callable[[], object]) -> None:
        def due() -> None:
            try:
                action()
            except DragomanError as error:
                log.warning("publishing: %s; tried again", error)
            arm()

        def arm() -> None:
            later = self._broker.scheduler.call_later
            self._timers[action.__qualname__] = later(interval_s, due)

        arm()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._log.close()
        self.publisher.close()

    # ---- requests

    def publish(self, publication: Publication, reply: ReplyPublished) -> None:
        """Have the batch published by whoever decides about its writer."""

        def answered(answer: Answer | DragomanError) -> None:
            match answer:
                case NotSentError():
                    reply(CoordinatorNotAvailable(str(answer)))
                case ClusterError():
                    reply(RequestTimedOut(f"{answer}; it may still be published"))
                case DragomanError():
                    reply(answer)
                case Answer():
                    assert isinstance(answer.reply, Published)
                    reply(answer.reply.was_before)

        def made(error: DragomanError | None) -> None:
            node = self._log.leader_of(publication.writer_id)
            if error is not None:
                reply(error)
            elif node in (self._broker.node_id, NOBODY):
                self.publisher.publish(publication, reply)
            else:
                request = Publish(publication=publication)
                self._broker.neighbours.ask(node, request, (), answered)

        if self._log.leader_of(publication.writer_id) == NOBODY:
            start(self._log.ensure()).then(made)
        else:
            made(None)

    # ---- ports

    def require(self, writer_id: str) -> None:
        self._log.require(writer_id)

    def persist(self, writer_id: str, record: KeyValue, done: Acknowledge) -> None:
        self._log.append(self._log.partition_of(writer_id), [record], done)

    def new_producer_id(self, done: Callable[[int | DragomanError], None]) -> None:
        self._producer_ids.next(done)

    def check(self, destinations: Sequence[Destination], done: Acknowledge) -> None:
        """Each where it is led, which is where it would be copied to."""
        steps = []
        for each in destinations:
            here = partial(check, self._broker, each)
            there = CheckPieces(destination=each)
            steps.append(partial(self._at_leader, self._partition(each), here, there))
        AllOf(len(steps), done).run(steps)

    def decide_targets(
        self,
        destinations: Sequence[Destination],
        producer_id: int,
        done: Callable[[tuple[Target, ...] | DragomanError], None],
    ) -> None:
        """The partitions' own state decides about sequences: alone it knows what is in the log.

        Nothing of this writer is under way, so a partition that does not know the producer has
        nothing of it, or has forgotten it for its age; it takes sequence 0 in both cases.
        """
        targets: dict[int, Target] = {}
        steps = []
        for each in destinations:
            partition = self._partition(each)
            if partition is None or partition.partition_id in targets:
                where = f"{each.topic}-{each.partition}"
                done(InvalidPublication(f"{where} is named twice, or is gone"))
                return
            if each.pieces:
                targets[partition.partition_id] = Target(partition.partition_id, 0, each.pieces)
                steps.append(partial(self._look_up_sequence, partition, producer_id, targets))

        def looked_up(error: DragomanError | None) -> None:
            done(tuple(targets.values()) if error is None else error)

        AllOf(len(steps), looked_up).run(steps)

    def _look_up_sequence(
        self,
        partition: PartitionMetadata,
        producer_id: int,
        targets: dict[int, Target],
        done: Acknowledge,
    ) -> None:
        def found(first_sequence: int) -> None:
            known = targets[partition.partition_id]
            targets[partition.partition_id] = msgspec.structs.replace(
                known, first_sequence=first_sequence
            )
            done(None)

        def answered(answer: Answer | DragomanError) -> None:
            if isinstance(answer, DragomanError):
                done(answer)
            else:
                assert isinstance(answer.reply, SequenceNumber)
                found(answer.reply.number)

        if partition.leader != self._broker.node_id:
            request = NextSequence(
                topic=partition.topic.name, partition=partition.index, producer_id=producer_id
            )
            self._broker.neighbours.ask(partition.leader, request, (), answered)
            return
        try:
            number = next_sequence(self._broker.replica(partition), producer_id)
        except DragomanError as error:
            done(error)
        else:
            found(number)

    def copy(self, writer: Writer, done: Acknowledge) -> None:
        steps = []
        for target in writer.targets:
            here = partial(self.copy_here, target, writer.producer_id)
            there = CopyPieces(target=target, producer_id=writer.producer_id)
            partition = self._broker.image.partitions.get(target.partition_id)
            steps.append(partial(self._at_leader, partition, here, there))
        AllOf(len(steps), done).run(steps)

    def copy_here(self, target: Target, producer_id: int, done: Acknowledge) -> None:
        """Copy a target that this node leads. Who asks again before it is done waits for it, too:
        a large one takes longer than another node waits for the answer.
        """
        key = (target.partition_id, producer_id, target.first_sequence)
        waiting = self._copying.get(key)
        if waiting is not None:
            waiting.append(done)
            return
        self._copying[key] = [done]

        def copied(error: DragomanError | None) -> None:
            for each in self._copying.pop(key):
                each(error)

        copy(self._broker, target, producer_id, copied)

    def _partition(self, destination: Destination) -> PartitionMetadata | None:
        topic = self._broker.image.topics.get(destination.topic)
        if topic is None or not 0 <= destination.partition < len(topic.partitions):
            return None
        return topic.partitions[destination.partition]

    def _at_leader(
        self,
        partition: PartitionMetadata | None,
        here: Callable[[Acknowledge], None],
        there: CheckPieces | CopyPieces,
        done: Acknowledge,
    ) -> None:
        """Have something done by the node that leads a partition, or here if there is none."""
        if partition is None or partition.leader == self._broker.node_id:
            here(done)
        elif partition.leader == NOBODY:
            where = f"{partition.topic.name}-{partition.index}"
            done(NotLeader(f"nobody leads {where}"))
        else:
            self._broker.neighbours.ask(partition.leader, there, (), partial(told, done))

    def hold(self, writer_id: str, pieces: Sequence[Piece]) -> None:
        self.staging.hold(writer_id, pieces)

    def let_go(self, writer_id: str, unneeded: Sequence[Piece]) -> None:
        self.staging.let_go(writer_id)
        self.staging.release(unneeded)
