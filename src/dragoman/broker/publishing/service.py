"""The publisher joined to the broker: its internal topic, staging, the partitions, and timers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from dragoman.broker.errors import InvalidPublication
from dragoman.broker.internal import InternalTopic, KeyValue
from dragoman.broker.placement import coordinator_partition
from dragoman.broker.produce import check_rules
from dragoman.broker.publishing import records
from dragoman.broker.publishing.copying import copy, next_sequence, resequenced
from dragoman.broker.publishing.publisher import Publisher
from dragoman.broker.publishing.staging import Staging
from dragoman.broker.publishing.state import Destination, Piece, Target, Writer
from dragoman.broker.replica import Acknowledge
from dragoman.broker.transactions import ProducerIds
from dragoman.errors import DragomanError
from dragoman.limits import (
    PUBLICATION_RETRY_INTERVAL_S,
    PUBLISH_SLICE_BYTES,
    STAGING_SWEEP_INTERVAL_S,
    WRITER_EXPIRY_INTERVAL_S,
)
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.publishing")


class Publishing:
    """Also the ports of the publisher; their meaning is described there."""

    def __init__(self, broker: Broker, producer_ids: ProducerIds) -> None:
        self._broker = broker
        self._producer_ids = producer_ids
        count = broker.settings.transaction_state_log_num_partitions
        self._log = InternalTopic(broker, records.TOPIC, count)
        self.staging = Staging(broker, producer_ids)
        self.publisher = Publisher(broker.clock, self)
        self._timers: dict[str, Handle] = {}

    # ---- life

    def start(self) -> None:
        self._log.load(self.publisher.load, self._loaded)

    def _loaded(self) -> None:
        resumed = self.publisher.resume()
        if resumed:
            log.info("publishing %d batches that were decided before the restart", resumed)
        self._every(STAGING_SWEEP_INTERVAL_S, self.staging.sweep)
        self._every(PUBLICATION_RETRY_INTERVAL_S, self.publisher.retry_stalled)
        self._every(WRITER_EXPIRY_INTERVAL_S, self.publisher.expire_idle)

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
        self.publisher.close()

    # ---- ports

    def persist(self, writer_id: str, record: KeyValue, done: Acknowledge) -> None:
        index = coordinator_partition(writer_id, self._log.partition_count)
        self._log.append(index, [record], done)

    def new_producer_id(self, done: Callable[[int | DragomanError], None]) -> None:
        self._producer_ids.next(done)

    def check(self, destinations: Sequence[Destination], done: Acknowledge) -> None:
        checking = self._check_all(destinations)

        def some() -> None:
            size = 0
            try:
                for checked in checking:
                    size += checked
                    if size >= PUBLISH_SLICE_BYTES:
                        self._broker.scheduler.call_soon(some)
                        return
            except DragomanError as error:
                done(error)
                return
            done(None)

        some()

    def _check_all(self, destinations: Sequence[Destination]) -> Generator[int, None, None]:
        """Sizes of the batches, as they are looked at."""
        now_ms = self._broker.clock.wall_ms()
        for each in destinations:
            replica = self._broker.find(each.topic, each.partition)
            if replica.metadata.topic.is_internal:
                raise InvalidPublication(f"topic {each.topic!r} is written by the broker only")
            for piece in each.pieces:
                for header, batch in self.staging.verify(piece):
                    check_rules(replica, batch, header, now_ms)
                    yield header.size

    def decide_targets(
        self, destinations: Sequence[Destination], producer_id: int
    ) -> tuple[Target, ...]:
        """The partitions' own state decides about sequences: alone it knows what is in the log.

        Nothing of this writer is under way, so a partition that does not know the producer has
        nothing of it, or has forgotten it for its age; it takes sequence 0 in both cases.
        """
        targets: dict[int, Target] = {}
        for each in destinations:
            replica = self._broker.find(each.topic, each.partition)
            partition_id = replica.metadata.partition_id
            if partition_id in targets:
                raise InvalidPublication(f"{each.topic}-{each.partition} is named twice")
            if each.pieces:
                first = next_sequence(replica, producer_id)
                targets[partition_id] = Target(partition_id, first, each.pieces)
        return tuple(targets.values())

    def resequenced(self, writer: Writer) -> Writer:
        return resequenced(self._broker, writer)

    def copy(self, writer: Writer, done: Acknowledge) -> None:
        copy(self._broker, self.staging, writer, done)

    def hold(self, writer_id: str, pieces: Sequence[Piece]) -> None:
        self.staging.hold(writer_id, pieces)

    def let_go(self, writer_id: str, unneeded: Sequence[Piece]) -> None:
        self.staging.let_go(writer_id)
        self.staging.release(unneeded)
