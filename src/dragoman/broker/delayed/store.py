"""What this node keeps aside: the partitions of the internal topic that it leads, and the timer.

Records are taken in, decided about and read back here; when one has come due, `Delivery` or
`Holding` goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dragoman.broker.delayed import records as stored
from dragoman.broker.delayed.delivery import Delivery
from dragoman.broker.delayed.held_records import Holding
from dragoman.broker.delayed.records import Kind, Release, Stored
from dragoman.broker.delayed.state import (
    Batch,
    Content,
    Entry,
    Lane,
    Phase,
    Shelf,
    TakeContent,
    TakeToken,
    Target,
    Token,
)
from dragoman.broker.delayed.targets import Targets, name_of
from dragoman.broker.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
    RequestTimedOut,
    UnknownDeferredRecord,
    UnknownTopic,
)
from dragoman.broker.gather import size_of
from dragoman.broker.internal import InternalTopic, Keeper, KeyValue
from dragoman.broker.neighbours import DecideDeferred, DeferRecord
from dragoman.broker.replica import Acknowledge
from dragoman.broker.transactions import ProducerIds
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError
from dragoman.limits import (
    DEFERRED_LOOK_S_MAX,
    DEFERRED_PARTITIONS,
    DEFERRED_RECORDS_MAX,
    DEFERRED_RECORDS_PER_SLICE,
)
from dragoman.log.batch import Record
from dragoman.world import Handle

if TYPE_CHECKING:
    from dragoman.broker.broker import Broker

log = logging.getLogger("dragoman.deferring")


class Keeping:
    """Also a port of `Delivery` and `Holding`; its meaning is described there."""

    def __init__(self, broker: Broker, producer_ids: ProducerIds, targets: Targets) -> None:
        self._broker = broker
        self._producer_ids = producer_ids
        self._targets = targets
        self.log = InternalTopic(
            broker.context,
            broker.partitions,
            broker.topics,
            stored.TOPIC,
            DEFERRED_PARTITIONS,
            broker.settings.transaction_state_log_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self._shelves: dict[int, Shelf] = {}
        #: Records that are being written and are on no shelf yet.
        self._arriving = 0
        self._delivery = Delivery(broker.clock, broker.scheduler, self, targets)
        self.holding = Holding(broker.clock, broker.scheduler, self)
        self._timer: Handle | None = None
        self._timer_ms = 0
        self._is_closed = False

    # ---- requests, for what this node keeps

    def defer_here(self, request: DeferRecord, record: Record, done: TakeToken) -> None:
        """Raises `DragomanError`: nothing was done."""
        self.log.require(name_of(request))
        target = self._targets.check(request, record)
        if self.record_count + self._arriving >= DEFERRED_RECORDS_MAX:
            raise Overloaded(f"{DEFERRED_RECORDS_MAX} records wait for their time already")
        index = self.log.partition_of(name_of(request))
        value = Stored(
            target_id=target.partition_id,
            when_ms=request.when_ms,
            is_held=request.is_held,
            labels=request.labels,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        offsets: list[int] = []

        def placed(offset: int) -> list[KeyValue]:
            offsets.append(offset)
            key = stored.encode_key(Kind.RECORD, index, offset)
            return [(key, stored.encode_value(value))]

        def written(error: DragomanError | None) -> None:
            self._arriving -= 1
            if error is not None:
                done(_uncertain(error))
                return
            (offset,) = offsets
            self._add(self._shelves[index], offset, value)
            self._arm()
            done(Token(self._partition(index).partition_id, offset))

        self._arriving += 1
        self.log.append(index, placed, written)

    def decide_here(self, request: DecideDeferred, done: Acknowledge) -> None:
        """Raises `DragomanError`: nothing was done."""
        token = Token(request.partition_id, request.offset)
        shelf = self._shelf_of(token)

        def decided(error: DragomanError | None) -> None:
            self._arm()
            done(None if error is None else _uncertain(error))

        self.holding.decide(shelf, token, request.labels, request.is_release, decided)

    def read_here(self, token: Token, done: TakeContent) -> None:
        """Raises `DragomanError`."""
        shelf = self._shelf_of(token)
        if token.offset not in shelf.entries:
            raise UnknownDeferredRecord(f"no record is kept as {token.offset}")
        done(self.content(shelf.index, token.offset))

    @property
    def record_count(self) -> int:
        """Records that are kept aside here."""
        return sum(len(shelf.entries) for shelf in self._shelves.values())

    def is_delivering_to(self, partition_id: int) -> bool:
        """Whether a batch is, or may be, on its way there: what the partition knows of its producer
        tells whether it has arrived.
        """
        lanes = (shelf.lanes.get(partition_id) for shelf in self._shelves.values())
        return bool(self.log.loading) or any(
            lane is not None and lane.batch is not None for lane in lanes
        )

    def home(self, token: Token) -> PartitionMetadata:
        found = self._broker.image.partitions.get(token.partition_id)
        if found is None or found.topic.name != stored.TOPIC:
            raise UnknownDeferredRecord(f"no records are kept in partition {token.partition_id}")
        return found

    def _shelf_of(self, token: Token) -> Shelf:
        index = self.home(token).index
        self.log.require_partition(index)
        return self._shelves[index]

    def _partition(self, index: int) -> PartitionMetadata:
        return self._broker.image.topics[stored.TOPIC].partitions[index]

    # ---- life

    def targets_deleted(self) -> None:
        """Topics are gone: nobody will get what waits for them."""
        for shelf in self._shelves.values():
            if self.log.is_served(shelf.index):
                for lane in list(shelf.lanes.values()):
                    if self._targets.is_deleted(lane.target_id):
                        self._delivery.go_on(shelf, lane)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.log.close()
        for shelf in self._shelves.values():
            shelf.is_gone = True
        self._shelves.clear()

    def _load(self, key: bytes, value: bytes | None) -> None:
        kind, index, number = stored.decode_key(key)
        shelf = self._shelves.get(index)
        if shelf is None:
            shelf = self._shelves[index] = Shelf(index)
        match kind:
            case Kind.RECORD if value is not None:
                self._add(shelf, number, stored.decode_value(Stored, value))
            case Kind.RECORD:
                shelf.entries.pop(number, None)
            case Kind.RELEASE if value is not None:
                self.holding.released(shelf, number, stored.decode_value(Release, value))
            case Kind.BATCH:
                lane = shelf.lane(number)
                lane.batch = None if value is None else stored.decode_value(Batch, value)

    def _add(self, shelf: Shelf, offset: int, value: Stored) -> None:
        phase = Phase.HELD if value.is_held else Phase.WAITING
        size = size_of(value.record(0))
        shelf.add(offset, Entry(shelf.lane(value.target_id), value.when_ms, phase, size))

    def _resume(self, index: int) -> None:
        shelf = self._shelves.setdefault(index, Shelf(index))
        resumed = self._delivery.resume(shelf)
        if resumed:
            log.info("delivering %d records that had come due before", resumed)
        self._arm()

    def _unload(self, index: int, _error: NotCoordinator) -> None:
        shelf = self._shelves.pop(index, None)
        if shelf is not None:
            shelf.is_gone = True

    # ---- time

    def _arm(self) -> None:
        """One timer, for the record that is due next."""
        served = [each for each in self._shelves.values() if self.log.is_served(each.index)]
        times = [each.next_ms for each in served if each.next_ms is not None]
        if not times or self._is_closed:
            return
        due_ms = min(times)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        delay_s = max(0, due_ms - self._broker.clock.wall_ms()) / 1000
        self._timer_ms = due_ms
        self._timer = self._broker.scheduler.call_later(
            min(delay_s, DEFERRED_LOOK_S_MAX), self._look
        )

    def _look(self) -> None:
        """Take what is due by now, some at a time. Only the wall clock says what is: it may have
        been set since the timer was."""
        self._timer = None
        now_ms = self._broker.clock.wall_ms()
        for shelf in list(self._shelves.values()):
            if self.log.is_served(shelf.index):
                self._take_due(shelf, shelf.due(now_ms, DEFERRED_RECORDS_PER_SLICE))
        self._arm()

    def _take_due(self, shelf: Shelf, offsets: Sequence[int]) -> None:
        lanes: dict[Lane, None] = {}
        for offset in offsets:
            entry = shelf.entries[offset]
            if entry.phase is Phase.HELD:
                self.holding.check(shelf, offset, entry)
            else:
                entry.phase = Phase.DUE
                entry.lane.ready.append(offset)
                lanes[entry.lane] = None
        for lane in lanes:
            self._delivery.go_on(shelf, lane)

    # ---- ports

    def persist(self, index: int, records: Sequence[KeyValue], done: Acknowledge) -> None:
        self.log.append(index, records, done)

    def new_producer_id(self, done: Callable[[int | DragomanError], None]) -> None:
        self._producer_ids.next(done)

    def stored(self, index: int, offset: int) -> Stored:
        """A record that is kept aside, as it is in the log. Raises `DragomanError`."""
        partition = self._broker.find(stored.TOPIC, index).log
        for found in partition.iterate(offset, min(offset + 1, partition.high_watermark)):
            if found.offset == offset and found.value is not None:
                return stored.decode_value(Stored, found.value)
        raise UnknownDeferredRecord(f"{partition.describe()} has no record at {offset}")

    def read_record(self, index: int, offset: int, timestamp: int) -> Record:
        return self.stored(index, offset).record(timestamp)

    def content(self, index: int, offset: int) -> Content:
        found = self.stored(index, offset)
        metadata = self._broker.image.partitions.get(found.target_id)
        if metadata is None:
            raise UnknownTopic(f"partition {found.target_id} was deleted")
        target = Target(metadata.topic.name, metadata.index)
        return Content(target, found.record(self._broker.clock.wall_ms()), found.labels)

    def token(self, index: int, offset: int) -> Token:
        return Token(self._partition(index).partition_id, offset)

    def check_settings(self) -> tuple[int, int]:
        settings = self._broker.settings
        return settings.held_record_check_interval_ms, settings.held_record_check_max


def _uncertain(error: DragomanError) -> DragomanError:
    """What was being written when the leadership ended may be in the log, or not."""
    if isinstance(error, NotCoordinator | CoordinatorNotAvailable):
        return RequestTimedOut(f"{error}; the outcome is unknown")
    return error
