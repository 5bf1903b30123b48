"""The records that this node stores: the partitions of the internal topic that it leads, and the
timer.

Records are stored, decided about and read back here; when one has come due, `Delivery` or
`HeldRecords` takes over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set
from functools import partial
from typing import ClassVar, Final

from dragoman.broker.accumulator import size_of
from dragoman.broker.caller_rights import authorize, caller_of
from dragoman.broker.context import NodeContext
from dragoman.broker.delayed import records as stored
from dragoman.broker.delayed.delivery import Delivery
from dragoman.broker.delayed.held_records import HeldRecords
from dragoman.broker.delayed.listing import Place, places
from dragoman.broker.delayed.records import Kind, Release, Stored
from dragoman.broker.delayed.state import (
    Batch,
    Content,
    Entry,
    Phase,
    StoredPartition,
    Target,
    TargetQueue,
    Token,
)
from dragoman.broker.delayed.targets import Targets
from dragoman.broker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidRecord,
    NotCoordinator,
    NotLeader,
    Overloaded,
    RequestTimedOut,
    UnknownDelayedRecord,
    UnknownTopic,
)
from dragoman.broker.internal_topic import InternalTopic, Keeper, KeyValue
from dragoman.broker.partitions import Partitions
from dragoman.broker.produce import check_produced
from dragoman.broker.topics import Topics
from dragoman.broker.transactions import ProducerIds
from dragoman.broker.work_queue import Steps
from dragoman.cluster.metadata import PartitionMetadata
from dragoman.errors import DragomanError, NotSentError
from dragoman.limits import (
    DELAYED_LOOK_S_MAX,
    DELAYED_PARTITIONS,
    DELAYED_RECORDS_MAX,
    DELAYED_RECORDS_PER_SLICE,
    RELAY_PATIENCE_S,
    RELAY_RETRY_S,
)
from dragoman.log.batch import Record, build_batch, records
from dragoman.outcome import Retry, acknowledged
from dragoman.rpc import Answer, Call, Done, Registry, Reply, Request
from dragoman.security.access import Caller, Operation, Resource
from dragoman.world import Handle

log = logging.getLogger("dragoman.delayed")
#: What it costs to read a stored record, in items of the work queue.
_READ_ITEMS: Final = 20
#: While no node stores the record, or the node is still loading, nothing is done.
_RETRY: Final = Retry(
    (CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator, NotLeader, NotSentError),
    RELAY_RETRY_S,
    RELAY_PATIENCE_S,
)


class Delayed(Answer, frozen=True, kw_only=True, tag="Deferred"):
    """The storing node of a record."""

    partition_id: int
    offset: int


class DelayRecord(Request[Delayed], frozen=True, kw_only=True, tag="DeferRecord"):
    """The body is a batch with one record, which is stored until `when_ms` or, if it is held, until
    its owner decides; the owner is asked from `when_ms` on.
    """

    retry: ClassVar[Retry | None] = _RETRY
    topic: str
    partition: int
    when_ms: int
    is_held: bool = False
    labels: dict[str, str] = {}
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_rights`.
    caller: Caller | None = None


class DecideDelayed(Request[Done], frozen=True, kw_only=True, tag="DecideDeferred"):
    """Release a held record, or drop a delayed or held one."""

    retry: ClassVar[Retry | None] = _RETRY
    partition_id: int
    offset: int
    labels: dict[str, str] = {}
    is_release: bool = False
    #: None only from nodes below `SECURITY_LEVEL`; see `caller_rights`.
    caller: Caller | None = None


class DelayedContent(Answer, frozen=True, kw_only=True, tag="DeferredContent"):
    """The body is a batch with the record."""

    topic: str
    partition: int
    labels: dict[str, str] = {}


class ReadDelayed(Request[DelayedContent], frozen=True, kw_only=True, tag="ReadDeferred"):
    """The contents of a delayed or held record."""

    retry: ClassVar[Retry | None] = _RETRY
    partition_id: int
    offset: int


class RecordStore:
    """The stored records of a node; also a port of `Delivery` and `HeldRecords`, which describe its
    methods.
    """

    def __init__(
        self,
        context: NodeContext,
        partitions: Partitions,
        topics: Topics,
        producer_ids: ProducerIds,
        targets: Targets,
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._producer_ids = producer_ids
        self._targets = targets
        self.log = InternalTopic(
            context,
            partitions,
            topics,
            stored.TOPIC,
            DELAYED_PARTITIONS,
            context.settings.transaction_state_log_replication_factor,
            Keeper(self._load, self._resume, self._unload),
        )
        self._stored: dict[int, StoredPartition] = {}
        #: Records that are being written and have no partition yet.
        self._arriving = 0
        self._delivery = Delivery(context.clock, context.scheduler, self, targets)
        self.held_records = HeldRecords(context.clock, context.scheduler, self)
        self._timer: Handle | None = None
        self._timer_ms = 0
        self._is_closed = False

    # ---- requests about records of this node

    def serve(self, registry: Registry) -> None:
        registry.serve(DelayRecord, self._delay)
        registry.serve(DecideDelayed, self._decide)
        registry.serve(ReadDelayed, self._read)

    def serves_target(self, name: str) -> bool:
        """Whether this node stores the records for a partition of that name."""
        is_served = self.log.is_served(self.log.partition_of(name))
        return is_served and stored.TOPIC in self._context.image.topics

    def serves(self, token: Token) -> bool:
        """Whether this node stores a record, if there is one. Raises `UnknownDelayedRecord`."""
        return self.log.is_served(self.home(token).index)

    async def _delay(self, call: Call[DelayRecord]) -> Delayed:
        found = records(call.body, check_produced(call.body))
        if len(found) != 1:
            raise InvalidRecord(f"{len(found)} records to be delayed, where one is expected")
        token = await self.delay(call.request, found[0])
        return Delayed(partition_id=token.partition_id, offset=token.offset)

    async def delay(self, request: DelayRecord, record: Record) -> Token:
        """Store a record, and wait until it is durable."""
        target = Target(request.topic, request.partition)
        index = self.log.partition_of(target.name)
        self.log.require_partition(index)
        self._authorize(caller_of(self._context.image, request.caller), request.topic)
        metadata = self._targets.check(target, record, request.when_ms, request.labels)
        if self.record_count + self._arriving >= DELAYED_RECORDS_MAX:
            raise Overloaded(f"{DELAYED_RECORDS_MAX} records wait for their time already")
        value = Stored(
            target_id=metadata.partition_id,
            when_ms=request.when_ms,
            is_held=request.is_held,
            labels=request.labels,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        offset = -1

        def placed(log_end_offset: int) -> list[KeyValue]:
            nonlocal offset
            offset = log_end_offset
            key = stored.encode_key(Kind.RECORD, index, offset)
            return [(key, stored.encode_value(value))]

        self._arriving += 1
        try:
            await acknowledged(partial(self.log.append, index, placed))
        except DragomanError as error:
            raise _uncertain(error) from None
        finally:
            self._arriving -= 1
        self._add(self._stored[index], offset, value)
        if self._timer is None or request.when_ms < self._timer_ms:
            self._arm()
        return Token(self._partition(index).partition_id, offset)

    async def _decide(self, call: Call[DecideDelayed]) -> Done:
        request = call.request
        token = Token(request.partition_id, request.offset)
        caller = caller_of(self._context.image, request.caller)
        await self.decide(token, request.labels, caller, is_release=request.is_release)
        return Done()

    async def decide(
        self,
        token: Token,
        labels: dict[str, str],
        caller: Caller,
        *,
        is_release: bool,
    ) -> None:
        """Release or drop a record, and wait until the decision is durable."""
        partition = self._partition_of(token)
        entry = partition.entries.get(token.offset)
        if entry is not None:
            target = self._context.image.partitions.get(entry.queue.target_id)
            # A record whose topic is gone is not delivered whoever asks.
            if target is not None:
                self._authorize(caller, target.topic.name)
        try:
            await self.held_records.decide(partition, token, labels, is_release)
        except DragomanError as error:
            raise _uncertain(error) from None
        finally:
            self._arm()

    def _authorize(self, caller: Caller, topic: str) -> None:
        """Raises `NotAuthorized`."""
        authorize(self._context.authorizer, caller, Operation.WRITE, Resource.TOPIC, topic)

    async def _read(self, call: Call[ReadDelayed]) -> Reply[DelayedContent]:
        token = Token(call.request.partition_id, call.request.offset)
        partition = self._partition_of(token)
        if token.offset not in partition.entries:
            raise UnknownDelayedRecord(f"no record is kept as {token.offset}")
        found = self.content(partition.index, token.offset)
        topic, index = found.target
        answer = DelayedContent(topic=topic, partition=index, labels=found.labels)
        return Reply(answer, (build_batch([found.record]),))

    @property
    def record_count(self) -> int:
        """Delayed and held records that are stored here."""
        return sum(len(each.entries) for each in self._stored.values())

    def counts(self) -> dict[int, int]:
        """How many of them are for which partition, by its id."""
        found: dict[int, int] = {}
        for stored_here in self._stored.values():
            for target_id, queue in stored_here.queues.items():
                if queue.count:
                    found[target_id] = found.get(target_id, 0) + queue.count
        return found

    def listed(
        self, target_ids: Set[int], after: Place, most: int, bytes_max: int
    ) -> Steps[tuple[list[tuple[Place, Phase, Stored]], bool]]:
        """The records for these partitions that are stored here, in the order of their times, after
        a place: at most so many, and no more once they have so many bytes. And whether bytes have
        not cut them off.
        """
        served = [each for each in self._stored.values() if self.log.is_served(each.index)]
        found: list[tuple[Place, Phase, Stored]] = []
        for place in (yield from places(served, target_ids, after, most)):
            if bytes_max <= 0:
                return found, False
            yield _READ_ITEMS
            partition = self._stored.get(place.partition)
            entry = None if partition is None else partition.entries.get(place.offset)
            if entry is None:
                # It was delivered, or dropped, or another node stores it now.
                continue
            found.append((place, entry.phase, self.stored(place.partition, place.offset)))
            bytes_max -= entry.size
        return found, True

    def is_delivering_to(self, partition_id: int) -> bool:
        """Whether a batch is, or may be, in flight to a partition, which must then keep its
        producer state to recognise it.
        """
        queues = (each.queues.get(partition_id) for each in self._stored.values())
        return bool(self.log.loading) or any(
            queue is not None and queue.batch is not None for queue in queues
        )

    def home(self, token: Token) -> PartitionMetadata:
        """The partition that stores a record. Raises `UnknownDelayedRecord`."""
        found = self._context.image.partitions.get(token.partition_id)
        if found is None or found.topic.name != stored.TOPIC:
            raise UnknownDelayedRecord(f"no records are kept in partition {token.partition_id}")
        return found

    def _partition_of(self, token: Token) -> StoredPartition:
        index = self.home(token).index
        self.log.require_partition(index)
        return self._stored[index]

    def _partition(self, index: int) -> PartitionMetadata:
        return self._context.image.topics[stored.TOPIC].partitions[index]

    # ---- life

    def targets_deleted(self) -> None:
        """Topics were deleted: drop the records for them."""
        for partition in self._stored.values():
            if self.log.is_served(partition.index):
                for queue in list(partition.queues.values()):
                    if self._targets.is_deleted(queue.target_id):
                        self._delivery.begin(partition, queue)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.log.close()
        for partition in self._stored.values():
            partition.is_gone = True
        self._stored.clear()

    def _load(self, key: bytes, value: bytes | None) -> None:
        kind, index, number = stored.decode_key(key)
        partition = self._stored.get(index)
        if partition is None:
            partition = self._stored[index] = StoredPartition(index)
        match kind:
            case Kind.RECORD if value is not None:
                self._add(partition, number, stored.decode_value(Stored, value))
            case Kind.RECORD:
                partition.remove(number)
            case Kind.RELEASE if value is not None:
                release = stored.decode_value(Release, value)
                self.held_records.released(partition, number, release)
            case Kind.BATCH:
                queue = partition.queue(number)
                queue.batch = None if value is None else stored.decode_value(Batch, value)

    def _add(self, partition: StoredPartition, offset: int, value: Stored) -> None:
        phase = Phase.HELD if value.is_held else Phase.WAITING
        size = size_of(value.record(0))
        queue = partition.queue(value.target_id)
        partition.add(offset, Entry(queue, value.when_ms, phase, size))

    def _resume(self, index: int) -> None:
        partition = self._stored.setdefault(index, StoredPartition(index))
        resumed = self._delivery.resume(partition)
        if resumed:
            log.info("delivering %d records that came due earlier", resumed)
        self._arm()

    def _unload(self, index: int, _error: NotCoordinator) -> None:
        partition = self._stored.pop(index, None)
        if partition is not None:
            partition.is_gone = True

    # ---- time

    def _arm(self) -> None:
        """One timer, for the next record that is due."""
        served = [each for each in self._stored.values() if self.log.is_served(each.index)]
        times = [each.next_ms for each in served if each.next_ms is not None]
        if not times or self._is_closed:
            return
        due_ms = min(times)
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        delay_s = max(0, due_ms - self._context.clock.wall_ms()) / 1000
        self._timer_ms = due_ms
        self._timer = self._context.scheduler.call_later(
            min(delay_s, DELAYED_LOOK_S_MAX), self._look
        )

    def _look(self) -> None:
        """Handle due records, a bounded number at a time. The wall clock decides, since it may have
        been set since the timer was.
        """
        self._timer = None
        now_ms = self._context.clock.wall_ms()
        for partition in list(self._stored.values()):
            if self.log.is_served(partition.index):
                self._take_due(partition, partition.due(now_ms, DELAYED_RECORDS_PER_SLICE))
        self._arm()

    def _take_due(self, partition: StoredPartition, offsets: Sequence[int]) -> None:
        queues: dict[TargetQueue, None] = {}
        for offset in offsets:
            entry = partition.entries[offset]
            if entry.phase is Phase.HELD:
                self.held_records.check(partition, offset, entry)
            else:
                entry.phase = Phase.DUE
                entry.queue.ready.append(offset)
                queues[entry.queue] = None
        for queue in queues:
            self._delivery.begin(partition, queue)

    # ---- ports

    async def persist(self, index: int, records: Sequence[KeyValue]) -> None:
        await acknowledged(partial(self.log.append, index, records))

    async def new_producer_id(self) -> int:
        return await self._producer_ids.next()

    def stored(self, index: int, offset: int) -> Stored:
        """A stored record, as it is in the log. Raises `DragomanError`."""
        partition = self._partitions.find(stored.TOPIC, index).log
        for found in partition.iterate(offset, min(offset + 1, partition.high_watermark)):
            if found.offset == offset and found.value is not None:
                return stored.decode_value(Stored, found.value)
        raise UnknownDelayedRecord(f"{partition.describe()} has no record at {offset}")

    def read_record(self, index: int, offset: int, timestamp: int) -> Record:
        return self.stored(index, offset).record(timestamp)

    def content(self, index: int, offset: int) -> Content:
        found = self.stored(index, offset)
        metadata = self._context.image.partitions.get(found.target_id)
        if metadata is None:
            raise UnknownTopic(f"partition {found.target_id} was deleted")
        target = Target(metadata.topic.name, metadata.index)
        return Content(target, found.record(self._context.clock.wall_ms()), found.labels)

    def token(self, index: int, offset: int) -> Token:
        return Token(self._partition(index).partition_id, offset)

    def check_settings(self) -> tuple[int, int]:
        settings = self._context.settings
        return settings.held_record_check_interval_ms, settings.held_record_check_max


def _uncertain(error: DragomanError) -> DragomanError:
    """The outcome of a write that was pending when the leadership ended is unknown."""
    if isinstance(error, NotCoordinator | CoordinatorNotAvailable):
        return RequestTimedOut(f"{error}; the outcome is unknown")
    return error
